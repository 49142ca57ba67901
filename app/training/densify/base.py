"""What a densification strategy is: two hooks around the optimiser's step.

A new one is a file beside this and its name in StrategyName of app/config.py and STRATEGIES of app/training/trainer.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from app.config import TrainConfig
from app.messages import Densified, Histogram
from app.training.densify.lineage import Lineage
from app.training.optimizer import Adam
from app.training.rows import Rows
from app.training.schedule import Schedule
from render.types import Camera, Gaussians, GradientTap


@dataclass
class TrainState:
    """What a strategy may look at and change."""

    rows: Rows
    optimizer: Adam
    lineage: Lineage
    rng: np.random.Generator        # of the strategy alone: the order of views does not depend on it
    extent: float                   # world radius of the cameras
    cap: int                        # never more Gaussians than this
    activate: Callable[[], Gaussians]   # of the parameters as they are now, without gradients
    warn: Callable[[str], None]     # one sentence for the user


@dataclass(frozen=True)
class ViewGradients:
    """What one view's loss left behind; not scaled by 1/k where a step has k views."""

    tap: GradientTap
    extents: Tensor      # [N,2] px, 0 = culled
    camera: Camera
    generation: int      # of the rows it speaks of (F05)
    ok: Tensor | None = None   # [1] 0 = not finite, found on the device: counts for nothing; None = all is finite


def union(views: Sequence[ViewGradients]) -> Tensor:
    """[N,2] px: the largest extents in any of the views; 0 = in none of them."""
    extents = views[0].extents
    for seen in views[1:]:
        extents = torch.maximum(extents, seen.extents)
    return extents


@dataclass(frozen=True)
class DensifyRecord:
    """One event and who took part in it, by uid; `born[i]` descends from `parents[i]`."""

    event: Densified
    cloned: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))   # originals that got a copy
    split: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))    # originals replaced by two
    pruned: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    born: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    parents: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    histogram: Histogram | None = None   # of the statistic that decided


class Strategy(ABC):
    """Decides how Gaussians are born and die. Order within a step (F05):
    backward -> regularise -> after_backward -> optimiser -> gradients dropped -> after_step."""

    KEPT: ClassVar[tuple[str, ...]] = ()
    """Attributes, JSON values all, that a run needs to go on exactly where it was saved."""

    def wants_absolute(self, config: TrainConfig) -> bool:
        """Whether backward also adds up absolute screen-space gradients (AbsGS), which costs a little."""
        return config.densify.absgrad

    def regularise(self, state: TrainState, gradients: dict[str, Tensor], config: TrainConfig) -> dict[str, Tensor]:
        """The gradients of a step with those of loss terms that do not come from pictures; most strategies have none."""
        return gradients

    @abstractmethod
    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        """Gather statistics of one view."""

    @abstractmethod
    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        """Change the rows when it is time; None when nothing was due."""

    def memory(self) -> dict[str, Any]:
        """What the strategy itself remembers between steps."""
        return {name: getattr(self, name) for name in self.KEPT}

    def remember(self, memory: dict[str, Any]) -> None:
        """Take up what memory() gave; what is not in it keeps its first value."""
        for name in self.KEPT:
            setattr(self, name, memory.get(name, getattr(self, name)))
