"""Taming-3DGS (Mallick et al. 2024): growth to an exact budget, by a score of how much each Gaussian matters in some views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.training.arrays import host
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.base import Candidates, DensifyRecord, Rule, TrainState
from app.training.densify.operations import any_of, free, largest_scale, sound
from app.training.densify.relocation import draw_apart
from app.training.densify.statistics import GradientStatistics
from app.training.densify.survey import Seen
from app.training.schedule import Schedule
from render.types import Gaussians

VIEW, GRADIENT, OPACITY, DEPTH, RADIUS, SCALE = 50.0, 25.0, 100.0, 5.0, 10.0, 25.0
SPREAD, SALIENCY, COUNT, BLEND = 50.0, 10.0, 0.1, 50.0
"""Coefficients of the score in the authors' code."""
DEFAULT_FACTOR = 10
"""Times as many Gaussians as at the first event, where neither a budget nor a cap is set."""


def normalised(values: np.ndarray) -> np.ndarray:
    """Over the median of those above 0; 0 for the others."""
    values = np.where(np.isfinite(values), values, 0.0).astype(np.float64)
    positive = values > 0
    return np.where(positive, values / np.median(values[positive]), 0.0) if positive.any() else np.zeros_like(values)


def score(views: Sequence[Seen], statistic: np.ndarray, opacities: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """[N] float64 >= 0: over views, the view's loss times what the Gaussian is and does in it, each over its median.

    The authors count every blended pixel as one; here a pixel counts with the weight w that it is blended with, which the
    compositor's backward adds up. The distance of pixels from the mean is that of the ellipse's own spread.
    """
    own = GRADIENT * normalised(statistic) + OPACITY * normalised(opacities) + SCALE * normalised(volumes)
    total = np.zeros(len(own))
    for seen in views:
        here = (DEPTH * normalised(seen.depths) + RADIUS * normalised(seen.radii) + SPREAD * normalised(seen.spread)
                + SALIENCY * normalised(seen.saliency) + (COUNT + BLEND) * normalised(seen.blend))
        total += np.where(seen.visible, VIEW * seen.loss * (own + here), 0.0)
    return total


def planned_count(start: int, budget: int, done: float) -> int:
    """Eq. 2: the quadratic from `start` to `budget` that grows fastest at first and not at all at the end; done in [0,1]."""
    if done >= 1.0:
        return budget
    return int(start + (budget - start) * (2.0 * done - done * done))


@dataclass(frozen=True)
class TamingPlan(Candidates):
    start: tuple[int, int] = (0, 0)   # start_count and start_event, from this event on


class Taming(AdaptiveDensityControl):
    """Each event clones and splits as many as its schedule says, drawn by their score: those above the gradient threshold
    first, small ones and large ones in proportion, and the rest only where these do not suffice, so that the budget is
    reached exactly. What pruning takes is given back in the same event.
    """

    NAME: StrategyName = "taming"
    KEPT = ("start_count", "start_event")

    def __init__(self) -> None:
        self.start_count = 0    # Gaussians at its first event; 0 = there was none yet
        self.start_event = 0    # densifications of the schedule before that one

    def goal(self, state: TrainState, iteration: int, config: DensifyConfig, schedule: Schedule) -> tuple[int, int, int]:
        """(Gaussians that an event at `iteration` aims at, start_count, start_event)."""
        event, events = schedule.ordinal(iteration)
        count, before = (self.start_count, self.start_event) if self.start_count else (len(state.rows), event - 1)
        budget = min(config.taming_budget or config.cap or DEFAULT_FACTOR * count, state.cap)
        done = (event - before) / max(events - before, 1)
        return planned_count(count, budget, done), count, before

    def plan(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule,
             rng: np.random.Generator) -> Candidates:
        densify, after_reset = config.densify, iteration > schedule.reset_every
        gaussians, mine = state.activate(), free(state.rows)
        prune = any_of(self.prunable(state, gaussians, densify, after_reset)) & mine
        able = mine & sound(state.rows) & ~prune
        goal, *start = self.goal(state, iteration, densify, schedule)
        room = min(goal, state.cap) - len(state.rows) + int(prune.sum())
        wanted = max(0, min(room, int(able.sum())))
        scores = self.scores(state, gaussians, densify, rng) if wanted else np.zeros(len(state.rows))
        clone, split, rules = self.drawn(state, gaussians, host(able), scores, wanted, densify, rng)
        plan = self.with_pruning(state, gaussians, clone, split, rules, densify, iteration, after_reset=after_reset)
        notes = plan.notes
        if room < 0:
            notes = (*notes, "There are more Gaussians than the budget plans for now: none is added, and only pruning lowers "
                     "their number.")
        problem = plan.problem and f"the schedule aims at {goal:,} Gaussians now, and nothing would be pruned."
        return TamingPlan(**(vars(plan) | {"problem": problem, "notes": notes}), start=(start[0], start[1]))

    def scores(self, state: TrainState, gaussians: Gaussians, config: DensifyConfig, rng: np.random.Generator) -> np.ndarray:
        """[N] of some views drawn at random."""
        assert state.survey is not None, "taming looks at training views"
        views = rng.choice(len(state.survey), min(config.taming_views, len(state.survey)), replace=False)
        x, y, z = host(gaussians.scales).astype(np.float64).T
        statistic = host(GradientStatistics(state.rows).average(False))
        return score([state.survey.see(int(i)) for i in views], statistic, host(gaussians.opacities), x * y * z)

    def drawn(self, state: TrainState, gaussians: Gaussians, able: np.ndarray, scores: np.ndarray, wanted: int,
              config: DensifyConfig, rng: np.random.Generator) -> tuple[Tensor, Tensor, list[Rule]]:
        """Masks of `wanted` that are cloned or split, and the rules."""
        statistic = host(GradientStatistics(state.rows).average(False))
        small = host(largest_scale(gaussians) <= config.percent_dense * state.extent)
        above = able & (statistic >= config.grad_threshold)
        clones, splits = np.flatnonzero(above & small), np.flatnonzero(above & ~small)
        qualified = min(wanted, len(clones) + len(splits))
        of_clones = qualified * len(clones) // max(len(clones) + len(splits), 1)
        rest = np.flatnonzero(able & ~above)
        chosen = np.zeros(len(able), bool)
        for group, count in ((clones, of_clones), (splits, qualified - of_clones), (rest, wanted - qualified)):
            if count:
                chosen[group[draw_apart(scores[group], count, rng)]] = True
        device = state.rows["uids"].device
        values = torch.from_numpy(scores.astype(np.float32)).to(device)
        clone, split = (torch.from_numpy(chosen & mask).to(device) for mask in (small, ~small))
        label = "score, drawn in proportion"
        return clone, split, [Rule("cloned", clone, label, values, "", float("nan")),
                              Rule("split", split, label, values, "", float("nan"))]

    def carry_out(self, state: TrainState, plan: Candidates, iteration: int) -> DensifyRecord:
        assert isinstance(plan, TamingPlan)
        self.start_count, self.start_event = plan.start
        return super().carry_out(state, plan, iteration)
