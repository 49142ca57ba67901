"""When things happen in a run: densification, resets, SH degrees and the learning rate of the means. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.config import TrainConfig

REFERENCE_ITERATIONS = 30_000
"""The run length that the iteration numbers of TrainConfig and DensifyConfig are made for (Kerbl et al. 2023)."""
START_POWER = 1 / 3
EVERY_POWER = -1 / 4
SH_POWER = 1 / 2
RULE = ("Schedules are written for 30 000 iterations. For a run of M < 30 000, with r = M/30 000, densification begins at "
        "500 r^(1/3), ends at 15 000 r (half the run) and happens every 100 r^(-1/4): fewer events, farther apart, so "
        "that what is born settles before it multiplies. The SH degree rises every 1000 r^(1/2). Opacities are reset "
        "every 3000 iterations whatever the length, while densification goes on: shorter runs could not recover. "
        "The learning rate of the means always decays over M.")


@dataclass(frozen=True)
class Schedule:
    """The iteration numbers in force. An iteration is counted from 1, as it is shown."""

    length: int
    start: int        # densify after this iteration
    stop: int         # and not from this one on
    every: int
    reset_every: int
    sh_every: int

    def densifies(self, iteration: int) -> bool:
        return self.start < iteration < self.stop and iteration % self.every == 0

    def next_densification(self, iteration: int) -> int | None:
        """The first iteration after this one that densifies; None where there is none any more."""
        found = (max(iteration, self.start) // self.every + 1) * self.every
        return found if found < self.stop else None

    def first_and_last(self, end: int | None = None) -> tuple[int, int] | None:
        """The first and the last iteration that densify, of a run that goes to `end`; None where none does."""
        first = self.next_densification(0)
        stop = self.stop if end is None else min(self.stop, end + 1)
        return None if first is None or first >= stop else (first, (stop - 1) // self.every * self.every)

    def ordinal(self, iteration: int) -> tuple[int, int]:
        """(which densification of the schedule the next one is, counted from 1; how many there are).

        An iteration that densifies is its own next one."""
        before = self.start // self.every
        return max(-(-iteration // self.every) - before, 1), max((self.stop - 1) // self.every - before, 1)

    def resets(self, iteration: int) -> bool:
        return iteration < self.stop and iteration % self.reset_every == 0

    def sh_degree(self, iteration: int, highest: int) -> int:
        """The SH degree in use at an iteration: one more every `sh_every`."""
        return min(highest, iteration // self.sh_every)

    @property
    def window(self) -> str:
        """When it densifies, a clause (F18). Short schedules are made of so few events that there may be one, or none."""
        made = f"made for {self.length:,} iterations"
        found = self.first_and_last()
        if found is None:
            return (f"no densification fits into {self.length:,} iterations, with one every {self.every:,} after "
                    f"{self.start:,} and before {self.stop:,}")
        if found[0] == found[1]:
            return f"it densifies once, at iteration {found[0]:,}, {made}"
        return f"it densifies every {self.every:,} after {self.start:,} and before {self.stop:,}, {made}"


def resolve(config: TrainConfig) -> Schedule:
    """The schedule of a configuration; RULE says in words how short runs are scaled."""
    ratio = min(1.0, config.schedule_length / REFERENCE_ITERATIONS)
    densify = config.densify
    return Schedule(
        length=config.schedule_length,
        start=round(densify.start * ratio ** START_POWER),
        stop=round(densify.stop * ratio),
        every=max(1, round(densify.every * ratio ** EVERY_POWER)),
        reset_every=densify.reset_every,
        sh_every=max(1, round(config.sh_every * ratio ** SH_POWER)))


def window_moves(config: TrainConfig) -> str:
    """What a change of `iterations` does to the densification window, in one sentence (F18)."""
    found = resolve(config)
    if config.densify.strategy == "none":
        after = "the strategy is none, so nothing densifies."
    elif not config.schedule_iterations:
        after = f"{found.window}."
    else:
        after = "the densification window does not move with the length of the run"
        none = found.first_and_last(config.iterations) is None
        after += f", and no densification falls into its {config.iterations:,} iterations." if none else "."
    if config.schedule_iterations:
        return f"Schedules stay as made for {config.schedule_iterations:,} iterations: {after}"
    return f"Schedules follow the length of the run: {after}"


def means_lr(config: TrainConfig, iteration: int, extent: float) -> float:
    """Learning rate of the means: exponential from means_lr to means_lr_final over the schedule, times the extent."""
    t = min(max(iteration / config.schedule_length, 0.0), 1.0)
    return extent * math.exp((1.0 - t) * math.log(config.means_lr) + t * math.log(config.means_lr_final))


def learning_rates(config: TrainConfig, iteration: int, extent: float) -> dict[str, float]:
    """The learning rate of every parameter group at an iteration, its factor included."""
    rates = {"means": means_lr(config, iteration, extent), "quats": config.quat_lr, "log_scales": config.scale_lr,
             "logit_opacities": config.opacity_lr, "sh0": config.sh0_lr, "shN": config.shN_lr}
    return {group: rate * config.optimizer.factor(group) for group, rate in rates.items()}
