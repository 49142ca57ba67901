"""What densification would do with one Gaussian, by the rules of app/training/densify/."""

from __future__ import annotations

import torch

from app.inspection.results import Fate
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.mcmc import MarkovChain
from app.training.densify.none import NoDensification
from app.training.densify.operations import SCREEN_LIMIT, largest_scale
from app.training.densify.statistics import COUNT, RADIUS, statistic_label
from app.training.densify.taming import Taming
from app.training.marks import FROZEN
from app.training.trainer import Trainer


def fate(trainer: Trainer, index: int) -> Fate:
    """Of row `index`, if a densification came now."""
    rows, strategy = trainer.state.rows, trainer.strategy
    statistics, limit, absolute = _statistic(trainer, index)
    runs, plan = not isinstance(strategy, NoDensification), trainer.schedule
    end = min(plan.stop, trainer.config.iterations + 1)
    event = _next(max(trainer.iteration, plan.start), plan.every, end) if runs else None
    reset = _next(trainer.iteration, plan.reset_every, end) if isinstance(strategy, AdaptiveDensityControl) else None
    verdict, why = "nothing", "This run does not densify."
    if runs and event is None:
        why = "No densification is to come."
    elif runs and event is not None and is_frozen(trainer, index):
        why = "It is frozen."
    elif isinstance(strategy, MarkovChain):
        verdict, why = _moved(trainer, index)
    elif runs and event is not None:
        verdict, why = _pruned(trainer, index, after_reset=event > trainer.schedule.reset_every) or (
            _drawn(trainer, index) if isinstance(strategy, Taming) else _grown(trainer, index))
    return Fate(verdict, why, float(statistics[index]), limit, statistic_label(absolute), int(rows[COUNT][index]), event, reset)


def _statistic(trainer: Trainer, index: int) -> tuple[torch.Tensor, float, bool]:
    """(the statistic [N] that decides on row `index`, its threshold, whether it sums absolutes)."""
    config, absolute = trainer.config.densify, trainer.config.densify.absolute
    if config.strategy == "absgs":
        absolute = not _small(trainer, index)
        return trainer.statistics.average(absolute), config.absgs_threshold if absolute else config.grad_threshold, absolute
    return trainer.statistics.average(absolute), config.absgrad_threshold if absolute else config.grad_threshold, absolute


def _small(trainer: Trainer, index: int) -> bool:
    return float(largest_scale(trainer.gaussians())[index]) <= trainer.config.densify.percent_dense * trainer.state.extent


def _moved(trainer: Trainer, index: int) -> tuple[str, str]:
    opacity, limit = float(trainer.gaussians().opacities[index]), trainer.config.densify.mcmc_dead_opacity
    if not opacity > limit:
        return "move", f"Opacity {opacity:.3g} is at most {limit:g}: it moves onto one that is drawn by opacity."
    return "nothing", "It is alive: others may move onto it, drawn by opacity."


def _drawn(trainer: Trainer, index: int) -> tuple[str, str]:
    statistics, limit, _ = _statistic(trainer, index)
    what = "clone" if _small(trainer, index) else "split"
    if float(statistics[index]) >= limit:
        return "nothing", f"Above the threshold: it may be drawn, by its score, to be {'cloned' if what == 'clone' else what}."
    return "nothing", (f"The statistic is {float(statistics[index]) / limit:.0%} of the threshold: it is drawn only where "
                       "those above do not fill the budget.")


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
    statistics, limit, _ = _statistic(trainer, index)
    statistic = float(statistics[index])
    if bool(trainer.statistics.never_seen[index]):
        return "nothing", "No view has seen it since the last densification."
    if not statistic >= limit:
        return "nothing", f"The statistic is {statistic / limit:.0%} of the threshold."
    plan = trainer.candidates()
    if plan.left_out and not bool((plan.clone | plan.split)[index]):
        room = max(0, state.cap - len(state.rows))
        return "nothing", f"The cap of {trainer.cap:,} Gaussians leaves room for {room:,}, and others are ahead of it."
    largest, small = float(largest_scale(trainer.gaussians())[index]), config.percent_dense * state.extent
    if largest <= small:
        return "clone", f"Above the threshold and small: largest scale {largest:.3g}, at most {small:.3g} world units."
    return "split", f"Above the threshold and large: largest scale {largest:.3g}, more than {small:.3g} world units."
