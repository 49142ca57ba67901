"""Commands: window -> engine, in order, none lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from app.inspection.rules import Rule
from app.protocol.view import ViewRequest
from render.types import PARAM_GROUPS, Camera

SelectHow = Literal["replace", "add", "remove"]
"""What becomes of the selection so far."""


@dataclass(frozen=True)
class Command:
    pass


@dataclass(frozen=True)
class OpenScene(Command):
    """Load a scene folder, run, checkpoint or PLY and start over with it.

    A run that has a checkpoint goes on from its newest, with the options it had but for `changes` (by path), unless it is
    only to be looked at.
    """
    path: str
    play: bool = True
    resume: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Play(Command):
    pass


@dataclass(frozen=True)
class Pause(Command):
    pass


@dataclass(frozen=True)
class Step(Command):
    """Take n steps, then pause."""
    count: int = 1


@dataclass(frozen=True)
class Reset(Command):
    """Back to iteration 0 of the same scene."""


@dataclass(frozen=True)
class SetOption(Command):
    """Change one configuration field, named by its path: "raster.alpha_gradient", "densify.absgrad", "iterations"."""
    name: str
    value: Any


@dataclass(frozen=True)
class SetBackend(Command):
    name: str


@dataclass(frozen=True)
class Evaluate(Command):
    """Measure PSNR and SSIM on the held-out views now."""


@dataclass(frozen=True)
class SavePly(Command):
    path: str


@dataclass(frozen=True)
class CancelJob(Command):
    """Stop the long job that is running, if any."""


@dataclass(frozen=True)
class Select(Command):
    """Select and inspect the Gaussian with the largest weight at a pixel of the given camera.

    A uid selects directly; neither a camera nor a uid clears the selection.
    """
    camera: Camera | None = None
    x: float = 0.0
    y: float = 0.0
    uid: int | None = None
    how: SelectHow = "replace"
    cycle: bool = False     # the next contributor of the pixel after the inspected one, by falling weight


@dataclass(frozen=True)
class SelectRegion(Command):
    """Select the drawn Gaussians whose mean projects into a region of the picture, at whatever depth.

    `path` [P,2] px of the camera is the outline of the region; with a radius it is the middle line of a brush stroke.
    """
    camera: Camera
    path: np.ndarray
    radius: float | None = None
    how: SelectHow = "replace"


@dataclass(frozen=True)
class SelectRange(Command):
    """Select the Gaussians whose value of a quantity lies in [lo, hi]."""
    quantity: str
    lo: float
    hi: float
    how: SelectHow = "replace"
    camera: Camera | None = None    # for a quantity of a view


@dataclass(frozen=True)
class SelectMore(Command):
    """Change the selection as a whole; "grow" adds the nearest neighbours in space."""
    how: Literal["all", "none", "invert", "grow"]


@dataclass(frozen=True)
class Operate(Command):
    """Do something to the selected Gaussians; "unfreeze_all" and "show_all" to all of them."""
    action: Literal["freeze", "unfreeze", "unfreeze_all", "hide", "isolate", "show_all", "delete", "reset_opacity"]


@dataclass(frozen=True)
class Undo(Command):
    """Take back the last change of the selection or operation on it."""


@dataclass(frozen=True)
class Redo(Command):
    pass


@dataclass(frozen=True)
class CompareRules(Command):
    """Gradients of a scene view's loss under two alpha rules; None = the view of the last step."""
    a: Rule
    b: Rule
    view_index: int | None = None


@dataclass(frozen=True)
class RunLanes(Command):
    """Train a copy of the run under each of two alpha rules for some steps; the run itself stands still meanwhile."""
    a: Rule
    b: Rule
    steps: int = 100


@dataclass(frozen=True)
class CheckGradients(Command):
    """Central differences against the gradient that training uses, for some Gaussians; training stands still meanwhile.

    In a scene view (None = that of the last step), or at a camera with a fixed random cotangent. Without uids those that
    are selected are checked, and where none is, `count` that the view shows, drawn at random.
    """
    uids: tuple[int, ...] = ()
    view_index: int | None = None
    camera: Camera | None = None
    parameters: tuple[str, ...] = PARAM_GROUPS
    backend: str = ""                       # "" = the one in use
    dtype: Literal["float64", "float32"] = "float64"
    sweep: bool = True                      # with a U-curve of each parameter
    count: int = 0


@dataclass(frozen=True)
class AuditRasterizer(Command):
    """Hold somebody else's rasterizer, "module:function" or a shipped one, against the reference."""
    target: str
    own_scene: bool = True     # also on the Gaussians of the open scene
    speed: bool = False


@dataclass(frozen=True)
class MeasureViews(Command):
    """Loss, PSNR and SSIM of every scene view, training and held-out, now."""


@dataclass(frozen=True)
class SavePicture(Command):
    """Draw what a request asks for, whole and anew, and write it as a PNG with its legend."""
    path: str
    request: ViewRequest


@dataclass(frozen=True)
class Shutdown(Command):
    pass
