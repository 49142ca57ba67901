"""Steering a run: parts of a step, running until something happens, many options at once, who gets the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from app.pace import PaceConfig
from app.protocol.commands import Command
from app.protocol.events import Event

Part = Literal["forward", "backward", "optimiser", "densify"]
Goal = Literal["densify", "loss", "psnr", "test_psnr", "count", "iteration", "stop"]
GOALS: tuple[Goal, ...] = get_args(Goal)


@dataclass(frozen=True)
class TakePart(Command):
    """One part of a step, then pause.

    forward: measure the view that comes next; nothing changes. backward: find the gradients of the next step; parameters
    stand still. optimiser: move the parameters by the gradients that are known. densify: end the step under way; where it
    brings no densification, make one at once.
    """
    part: Part


@dataclass(frozen=True)
class RunUntil(Command):
    """Train until something happens, then pause.

    densify: the next densification. loss: the mean over the training views is below `value`. psnr: theirs is above it.
    test_psnr: that of the held-out views is above it. count: there are more Gaussians than it. iteration: it is reached.
    stop: training stops by itself, as at the first NaN. At most `limit` steps; 0 = as long as the run lasts.
    """
    goal: Goal
    value: float = 0.0
    limit: int = 0


@dataclass(frozen=True)
class SetOptions(Command):
    """Change several configuration fields, all or none; `source` names what they are, such as a preset."""
    values: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class SetPace(Command):
    """Who gets the time. Headless: no pictures and no panels' questions; training gets every thread."""
    pace: PaceConfig = PaceConfig()
    headless: bool = False


@dataclass(frozen=True)
class OptionChanged(Event):
    """One configuration field has another value; it acts in the step after `iteration`."""
    iteration: int
    name: str
    old: Any
    new: Any
    source: str = ""        # the preset that it belongs to
    at: float = field(default=0.0, compare=False)   # seconds since the epoch; 0 = not said


@dataclass(frozen=True)
class ViewForwarded(Event):
    """What the forward pass alone measured of the view that comes next."""
    iteration: int          # of the step that would be taken on it
    view: str
    loss: float
    psnr: float
    l1: float
    ssim: float


@dataclass(frozen=True)
class Steering:
    """Part of a Snapshot: where the step under way stands, and what the run goes on for."""
    phase: Literal["", "backward", "update"] = ""
    goal: str = ""          # in words; empty = none
    headless: bool = False
    mean_loss: float = float("nan")    # over the latest steps, one a training view
    mean_psnr: float = float("nan")
    none_due: str = ""      # why no densification is to come, one sentence; empty = one is
    forwarded: bool = False    # whether the last ViewForwarded is of now: nothing has changed since
