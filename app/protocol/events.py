"""Events: engine -> window, in order, none lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.inspection.gradcheck_results import GradientReport
from app.inspection.losses import ViewLoss
from app.inspection.rules import Comparison, Lanes
from render.types import Camera


@dataclass(frozen=True)
class Event:
    pass


@dataclass(frozen=True)
class Notice(Event):
    """One clear sentence for the user."""
    text: str
    level: Literal["info", "warning", "error"] = "info"


@dataclass(frozen=True)
class Quantity:
    """A per-Gaussian number that a heatmap can show; `name` is what ViewRequest.quantity takes."""
    name: str
    label: str
    unit: str = ""
    help: str = ""
    signed: bool = False    # takes a diverging colour map around 0
    log: bool = False       # spans decades
    of_view: bool = False   # belongs to the camera that looks


@dataclass(frozen=True)
class ViewInfo:
    name: str
    camera: Camera
    split: Literal["train", "test"]


@dataclass(frozen=True)
class SceneOpened(Event):
    path: str
    kind: str
    views: tuple[ViewInfo, ...]
    up: np.ndarray          # [3] world up, from the cameras
    center: np.ndarray      # [3] what the first orbit turns around
    extent: float           # world radius of the cameras
    warnings: tuple[str, ...] = ()
    trainable: bool = True  # False for a bare PLY
    quantities: tuple[Quantity, ...] = ()  # what a heatmap can show of this scene
    run: str = ""           # the folder of a run that goes on
    camera: Camera | None = None   # where that run was looked at from
    view_index: int | None = None


@dataclass(frozen=True)
class JobProgress(Event):
    """`fraction` in [0,1]; done when finished or cancelled."""
    name: str
    fraction: float
    text: str = ""
    done: bool = False


@dataclass(frozen=True)
class Densified(Event):
    """One densification or reset, as it was applied."""
    iteration: int
    cloned: int = 0
    split: int = 0
    pruned: int = 0
    reset: int = 0
    count: int = 0          # Gaussians afterwards
    strategy: str = ""      # whose event it was
    relocated: int = 0      # dead ones moved onto others
    added: int = 0          # copies of others, beside clones and children
    asked: bool = False     # the user asked for it, the schedule did not


@dataclass(frozen=True)
class Evaluated(Event):
    iteration: int
    psnr: float
    ssim: float
    views: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class RulesCompared(Event):
    comparison: Comparison


@dataclass(frozen=True)
class LanesMoved(Event):
    """How far the two lanes are; the last one of a run of them has `lanes.done == lanes.steps` and held-out figures."""
    lanes: Lanes


@dataclass(frozen=True)
class GradientsChecked(Event):
    report: GradientReport


@dataclass(frozen=True)
class Audited(Event):
    target: str
    clean: bool         # no fault was found
    text: str           # the report, as `splatscope audit` prints it


@dataclass(frozen=True)
class ViewsMeasured(Event):
    iteration: int
    views: tuple[ViewLoss, ...]


@dataclass(frozen=True)
class EngineFailed(Event):
    """The engine caught an exception and paused."""
    summary: str
    traceback: str


@dataclass(frozen=True)
class ConfigChanged(Event):
    """The configuration now in force, flattened by path ("raster.alpha_max": 0.99, ...)."""
    values: Mapping[str, Any]
