"""What adaptive density control would do with one Gaussian, by the rules of app/training/densify/adc.py."""

from __future__ import annotations

import torch

from app.inspection.results import Fate
from app.training.densify.adc import SCREEN_LIMIT, AdaptiveDensityControl, largest_scale
from app.training.densify.statistics import COUNT, RADIUS, statistic_label, threshold
from app.training.marks import FROZEN
from app.training.trainer import Trainer


def fate(trainer: Trainer, index: int) -> Fate:
    """Of row `index`, if a densification came now."""
    config, rows = trainer.config.densify, trainer.state.rows
    statistics = trainer.statistics.average(config.absgrad)
    statistic, limit = float(statistics[index]), threshold(config)
    runs, plan = isinstance(trainer.strategy, AdaptiveDensityControl), trainer.schedule
    end = min(plan.stop, trainer.config.iterations + 1)
    event = _next(max(trainer.iteration, plan.start), plan.every, end) if runs else None
    reset = _next(trainer.iteration, plan.reset_every, end) if runs else None
    verdict, why = "nothing", "This run does not densify."
    if runs and event is None:
        why = "Densification is over."
    elif runs and event is not None and is_frozen(trainer, index):
        why = "It is frozen."
    elif runs and event is not None:
        verdict, why = _pruned(trainer, index, after_reset=event > trainer.schedule.reset_every) or _grown(trainer, index)
    return Fate(verdict, why, statistic, limit, statistic_label(config.absgrad), int(rows[COUNT][index]), event, reset)


def is_frozen(trainer: Trainer, index: int) -> bool:
    """Whether the user keeps training away from it."""
    marks = trainer.state.rows.get(FROZEN)
    return marks is not None and bool(marks[index])


def _next(after: int, every: int, end: int) -> int | None:
    """The first multiple of `every` in (after, end)."""
    found = (after // every + 1) * every
    return found if found < end else None


def _pruned(trainer: Trainer, index: int, *, after_reset: bool) -> tuple[str, str] | None:
    config, gaussians, extent = trainer.config.densify, trainer.gaussians(), trainer.state.extent
    opacity, largest = float(gaussians.opacities[index]), float(gaussians.scales[index].max())
    radius = float(trainer.state.rows[RADIUS][index])
    if opacity < config.prune_opacity:
        return "prune", f"Opacity {opacity:.3g} is below {config.prune_opacity:g}."
    if after_reset and largest > config.prune_world * extent:
        return "prune", f"Largest scale {largest:.3g} exceeds {config.prune_world * extent:.3g} world units."
    if after_reset and config.prune_screen and radius > SCREEN_LIMIT:
        return "prune", f"Its radius of {radius:.0f} px exceeds {SCREEN_LIMIT:.0f} px."
    return None


def _grown(trainer: Trainer, index: int) -> tuple[str, str]:
    config, state = trainer.config.densify, trainer.state
    statistics = trainer.statistics.average(config.absgrad)
    statistic, limit = float(statistics[index]), threshold(config)
    if bool(trainer.statistics.never_seen[index]):
        return "nothing", "No view has seen it since the last densification."
    if not statistic >= limit:
        return "nothing", f"The statistic is {statistic / limit:.0%} of the threshold."
    room = max(0, state.cap - len(state.rows))
    above, marks = statistics >= limit, state.rows.get(FROZEN)
    if marks is not None:
        above = above & ~marks
        statistics = torch.where(marks, -torch.inf, statistics)
    if int(above.sum()) > room:   # the largest go first, equal ones by their row
        ahead = int((statistics > statistics[index]).sum()) + int((statistics[:index] == statistics[index]).sum())
        if ahead >= room:
            return "nothing", f"The cap of {trainer.cap:,} Gaussians leaves room for {room:,}, and {ahead:,} are ahead of it."
    largest, small = float(largest_scale(trainer.gaussians())[index]), config.percent_dense * state.extent
    if largest <= small:
        return "clone", f"Above the threshold and small: largest scale {largest:.3g}, at most {small:.3g} world units."
    return "split", f"Above the threshold and large: largest scale {largest:.3g}, more than {small:.3g} world units."
