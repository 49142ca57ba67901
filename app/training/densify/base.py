"""What a densification strategy is: a plan of the next event that anybody may look at, and hooks around the optimiser's step.

A new one is a file beside this, its name in StrategyName of app/config.py, its class in STRATEGIES of app/training/trainer.py,
and what the window says of it in app/gui/panels/densify_strategy.py.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from app.config import TrainConfig
from app.messages import Densified, Histogram
from app.training.densify.lineage import Lineage
from app.training.optimizer import Optimizer
from app.training.rows import Rows
from app.training.schedule import Schedule
from render.types import Camera, GaussianParams, Gaussians, GradientTap

if TYPE_CHECKING:
    from app.training.densify.survey import Survey

Action = Literal["cloned", "split", "pruned", "relocated", "added"]

@dataclass
class TrainState:
    """What a strategy may look at and change."""

    rows: Rows
    optimizer: Optimizer
    lineage: Lineage
    rng: np.random.Generator        # of the strategy alone: the order of views does not depend on it
    extent: float                   # world radius of the cameras
    cap: int                        # never more Gaussians than this
    activate: Callable[[], Gaussians]   # of the parameters as they are now, without gradients
    warn: Callable[[str], None]     # one sentence for the user
    survey: Survey | None = None    # looks at the Gaussians in training views


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
class Rule:
    """Why rows are in a mask of a plan: their `values` [N] against `limit`."""

    action: Action
    mask: Tensor       # [N] bool
    label: str
    values: Tensor     # [N] what was looked at
    relation: str      # between value and limit; empty = drawn with the probability of its value
    limit: float


@dataclass(frozen=True)
class Why:
    """What decided on the Gaussians `uids` [K] of an event: `values` [K] `relation` `limit`."""

    action: Action
    uids: np.ndarray
    label: str
    values: np.ndarray
    relation: str
    limit: float


@dataclass(frozen=True)
class Candidates:
    """What an event would do to the rows as they are; masks are [N] bool. One that is cloned may be pruned with its copy."""

    clone: Tensor
    split: Tensor
    prune: Tensor          # would go without children
    dead: Tensor           # would move onto others
    sources: Tensor        # would get copies beside them, in their place
    stillborn: Tensor      # parents whose children the same event would prune
    count: int             # Gaussians afterwards
    added: int = 0         # copies that add to the count, beside clones and children
    left_out: int = 0      # more would grow without the cap
    rules: tuple[Rule, ...] = ()
    histogram: Histogram | None = None   # of the statistic that decides
    notes: tuple[str, ...] = ()          # sentences for the user, said when the event comes
    problem: str = ""      # why nothing would happen, one sentence
    moves: tuple[np.ndarray, np.ndarray] | None = None   # of relocation: see mcmc.py

    @classmethod
    def nothing(cls, rows: Rows, problem: str, histogram: Histogram | None = None) -> Candidates:
        """None at all, with the reason."""
        none = torch.zeros(len(rows), dtype=torch.bool, device=rows["uids"].device)
        return cls(none, none, none, none, none, none, len(rows), histogram=histogram, problem=problem)


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
    relocated: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))   # dead ones; their rows were born anew
    why: tuple[Why, ...] = ()


class Strategy(ABC):
    """Decides how Gaussians are born and die. Order within a step (F05):
    backward -> regularise -> after_backward -> optimiser -> gradients dropped -> after_step.

    An event is plan() and then carry_out() of what it gave; candidates() is plan() alone, so that a preview equals what
    then happens."""

    refused: str = ""
    """Why the last densify_now() did nothing; empty where it did something."""
    KEPT: ClassVar[tuple[str, ...]] = ()
    """Attributes, JSON values all, that a run needs to go on exactly where it was saved."""

    def wants_absolute(self, config: TrainConfig) -> bool:
        """Whether backward also adds up absolute screen-space gradients (AbsGS), which costs a little."""
        return config.densify.absgrad or config.densify.absolute

    def admit(self, params: GaussianParams, cap: int, warn: Callable[[str], None]) -> GaussianParams:
        """Those of the Gaussians that a new run would start with that it does start with; not asked when a run goes on."""
        if cap < len(params):
            warn(f"The run starts with {len(params):,} Gaussians, more than the cap of {cap:,}: none will be added.")
        return params

    def taken_up(self, state: TrainState) -> None:
        """It is chosen, or the cap is changed, while a run goes on."""
        return

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

    def due(self, iteration: int, schedule: Schedule) -> bool:
        """Whether after_step() has something to do at an iteration, beyond what it does in every step."""
        return schedule.densifies(iteration)

    @abstractmethod
    def plan(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule,
             rng: np.random.Generator) -> Candidates:
        """What an event at `iteration` would do; changes nothing but `rng`, where it draws."""

    @abstractmethod
    def carry_out(self, state: TrainState, plan: Candidates, iteration: int) -> DensifyRecord:
        """Do what plan() of these very rows gave. Not called for a plan with a problem."""

    def candidates(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule) -> Candidates:
        """What an event at `iteration` would do as things stand; changes nothing, and draws from a copy of the rng."""
        with torch.no_grad():
            return self.plan(state, iteration, config, schedule, copy.deepcopy(state.rng))

    def densify_now(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule) -> DensifyRecord | None:
        """An event at once, whatever the schedule says; None, with the reason in `refused`, where nothing can be done."""
        self.refused = ""
        with torch.no_grad():
            plan = self.plan(state, iteration, config, schedule, state.rng)
            if plan.problem:
                self.refused = plan.problem
                return None
            record = self.carry_out(state, plan, iteration)
        return replace(record, event=replace(record.event, asked=True))

    def histogram(self, state: TrainState, config: TrainConfig) -> Histogram:
        """The statistic that decides, as it is now, with its threshold."""
        from app.training.densify.statistics import GradientStatistics

        return GradientStatistics(state.rows).histogram(config.densify)

    def memory(self) -> dict[str, Any]:
        """What the strategy itself remembers between steps."""
        return {name: getattr(self, name) for name in self.KEPT}

    def remember(self, memory: dict[str, Any]) -> None:
        """Take up what memory() gave; what is not in it keeps its first value."""
        for name in self.KEPT:
            setattr(self, name, memory.get(name, getattr(self, name)))
