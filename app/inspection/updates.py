"""Instrument "optimiser": how far each step moves each parameter group, and against how large its numbers are.

Nothing is kept of a step that nobody looked at: the curves have a point for each time the question was answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from app.curves import decimate
from app.inspection.questions import Unanswerable, UpdatesQuestion
from app.inspection.update_results import GroupUpdates, Updates
from app.training.trainer import Trainer
from app.training.updates import gradient_iteration, last_rates, last_update, took_part
from render.types import PARAM_GROUPS

if TYPE_CHECKING:
    from app.engine.model import Model

POINTS = 400
"""A curve with twice as many is decimated to these."""


@dataclass
class _Recorder:
    """(iteration, mean |update|, mean |parameter|) of each group, as it was read."""

    points: dict[str, list[tuple[float, float, float]]] = field(default_factory=lambda: {name: [] for name in PARAM_GROUPS})

    def add(self, group: str, iteration: int, update: float, size: float) -> np.ndarray:
        """[P,3] with the new point; NaN is no point."""
        kept = self.points[group]
        while kept and kept[-1][0] >= iteration:   # the run went back
            kept.pop()
        if not math.isnan(update):
            kept.append((float(iteration), update, size))
        if len(kept) >= 2 * POINTS:
            table = np.array(kept)
            chosen = decimate(table[:, 0], table[:, 1], POINTS).x
            kept[:] = [point for point in kept if point[0] in set(chosen.tolist())]
        return np.array(kept, np.float64).reshape(-1, 3)


_recorders: WeakKeyDictionary[Trainer, _Recorder] = WeakKeyDictionary()


def mean_size(values: Tensor) -> float:
    """Mean of the absolute values, in float64."""
    return float(values.detach().abs().mean(dtype=torch.float64)) if values.numel() else math.nan


def updates(model: Model, question: UpdatesQuestion) -> Updates:
    """Raises Unanswerable for a model that nobody trains."""
    trainer = model.trainer
    if trainer is None:
        raise Unanswerable("This model is only looked at: no optimiser moves it.")
    recorder, rates = _recorders.setdefault(trainer, _Recorder()), last_rates(trainer)
    iteration, optimizer, groups = gradient_iteration(trainer), trainer.state.optimizer, []
    there = took_part(trainer)
    for group in PARAM_GROUPS:
        update = last_update(trainer, group)
        moved = math.nan if update is None else mean_size(update[there])   # NaN: of some it is not known, or they are gone
        unknown = update is not None and math.isnan(moved)
        size = mean_size(trainer.state.rows[group])
        table = recorder.add(group, iteration, moved, size)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(table[:, 2] > 0, table[:, 1] / table[:, 2], np.nan)
        groups.append(GroupUpdates(group, optimizer.rules[group], rates[group], optimizer.steps[group], moved, size,
                                   table[:, 0], table[:, 1], ratios, unknown))
    return Updates(iteration, trainer.phase == "backward", tuple(groups))
