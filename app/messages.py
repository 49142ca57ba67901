"""The whole protocol between the window and the engine: frozen dataclasses, numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from app.inspection.gradcheck_results import GradientReport
from app.inspection.losses import ViewLoss
from app.inspection.rules import Comparison, Lanes, Rule
from render.types import PARAM_GROUPS, Camera

ViewMode = str
"""The name of a ModeInfo."""
SelectHow = Literal["replace", "add", "remove"]
"""What becomes of the selection so far."""


@dataclass(frozen=True)
class ModeInfo:
    """One way to look at the model. A new one is an entry in MODES and a drawing function of its name in the engine."""

    name: ViewMode
    label: str
    help: str
    key: str                          # on the keyboard
    ranged: bool = False              # its colours stand for numbers, so it has a range and a scale
    needs_photograph: bool = False    # exists only at a photograph's camera


MODES: dict[ViewMode, ModeInfo] = {mode.name: mode for mode in (
    ModeInfo("color", "Colour", "What training compares with the photographs.", "1"),
    ModeInfo("depth", "Depth", "Expected depth: the sum of w z over the sum of w, in world units along the line of sight.",
             "2", ranged=True),
    ModeInfo("transmittance", "Transmittance", "T_N, the share of light from behind the scene that reaches the camera.",
             "3", ranged=True),
    ModeInfo("error", "Error", "Absolute difference from the photograph, at a scene view.", "4", ranged=True,
             needs_photograph=True),
    ModeInfo("difference", "Difference", "Render minus photograph with its sign, mean over channels, at a scene view: blue is "
             "too dark, red too bright.", "0", ranged=True, needs_photograph=True),
    ModeInfo("truth", "Ground truth", "The photograph itself, at a scene view.", "5", needs_photograph=True),
    ModeInfo("contributors", "Contributors", "How many Gaussians are blended into each pixel.", "6", ranged=True),
    ModeInfo("ellipsoids", "Ellipsoids", "Each Gaussian as a solid ellipsoid.", "7"),
    ModeInfo("points", "Points", "Each Gaussian as a dot at its mean.", "8"),
    ModeInfo("heatmap", "Heatmap", "Each Gaussian coloured by a quantity, such as its screen-space gradient.", "9",
             ranged=True))}
VIEW_MODES: tuple[ViewMode, ...] = tuple(MODES)


# ---------------------------------------------------------------- commands: window -> engine, in order, none lost
@dataclass(frozen=True)
class Command:
    pass


@dataclass(frozen=True)
class OpenScene(Command):
    """Load a scene folder, run or PLY and start over with it."""
    path: str
    play: bool = True


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


# ---------------------------------------------------------------- newest wins: window -> engine
@dataclass(frozen=True)
class Keep:
    """Draw only the Gaussians whose value of a quantity lies in [lo, hi]."""
    quantity: str
    lo: float
    hi: float


@dataclass(frozen=True)
class Beside:
    """Another mode in the right part of the picture, from the same camera."""
    mode: ViewMode
    quantity: str = "mean2d_grad"
    share: float = 0.5                 # of the width that keeps the first mode


@dataclass(frozen=True)
class ViewRequest:
    """What the viewport wants to see."""
    camera: Camera
    mode: ViewMode = "color"
    quantity: str = "mean2d_grad"      # heatmap quantity, see app/training/quantities/
    value_range: tuple[float, float] | None = None  # None = automatic
    view_index: int | None = None      # the scene view this camera coincides with (error and truth need it)
    moving: bool = False               # the user is dragging: training yields
    hidden: bool = False               # minimised: render nothing
    histogram: bool = True             # the densification panel is open
    log_scale: bool | None = None      # logarithmic colours; None = what suits the quantity
    beside: Beside | None = None
    colormap: str = ""                 # of a heatmap of an unsigned quantity; empty = viridis
    keep: Keep | None = None           # the filter of the picture; training knows all Gaussians


@dataclass(frozen=True)
class InspectRequest:
    """What the panels that can be seen want to know, by instrument; what is not asked costs nothing.

    Questions are frozen dataclasses of app/inspection/questions.py that compare by value.
    """
    questions: Mapping[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------- events: engine -> window, in order, none lost
@dataclass(frozen=True)
class Event:
    pass


@dataclass(frozen=True)
class Notice(Event):
    """One clear sentence for the user."""
    text: str
    level: Literal["info", "warning", "error"] = "info"


@dataclass(frozen=True)
class ViewInfo:
    name: str
    camera: Camera
    split: Literal["train", "test"]


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


# ---------------------------------------------------------------- newest wins: engine -> window
@dataclass(frozen=True)
class Legend:
    """How the colours of a picture map to numbers."""
    label: str
    unit: str
    lo: float
    hi: float
    colormap: str
    log: bool = False
    never_seen: bool = False   # grey marks Gaussians that no view has seen


@dataclass(frozen=True)
class Frame:
    """A finished picture; rgba is C-contiguous float32 [H,W,4] and never written again."""
    rgba: np.ndarray
    camera: Camera
    mode: ViewMode
    legend: Legend | None = None
    render_ms: float = 0.0
    sequence: int = 0
    iteration: int = 0
    detail: float = 1.0     # rendered side over requested side; below 1 the picture is enlarged until it is refined
    note: str = ""          # why the picture is not what was asked for, e.g. no photograph at this camera
    request: ViewRequest | None = None
    outlines: np.ndarray | None = None   # [K,5] px: x, y, conic a, b, c of the selected Gaussians; None = too many, so tinted
    legend_beside: Legend | None = None   # of the right part, where there are two


@dataclass(frozen=True)
class Histogram:
    edges: np.ndarray       # [B+1]
    counts: np.ndarray      # [B]
    threshold: float
    label: str              # which statistic: signed sum or sum of absolutes
    never_seen: float       # share of Gaussians no view has seen since the last densification


@dataclass(frozen=True)
class Curve:
    """At most 2,000 points."""
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class GaussianReport:
    """Everything about one selected Gaussian; arrays are copies, gradients are those of the last step."""
    uid: int
    index: int
    parent: int | None
    parameters: Mapping[str, np.ndarray]   # raw, by group name
    activated: Mapping[str, np.ndarray]    # scales, opacity, unit quat, colour ...
    gradients: Mapping[str, np.ndarray]    # dL/d raw parameter, and v_means2d, v_conics, v_colors, v_opacities
    statistics: Mapping[str, float]        # densification statistic, threshold, times seen, age ...
    ellipse: np.ndarray | None = None      # [5] px: centre x, y, conic a, b, c in the requested camera


@dataclass(frozen=True)
class Answer:
    """What an instrument found: `value` is a frozen dataclass of app/inspection/results.py, None where it has none."""
    question: Any
    value: Any = None
    problem: str = ""       # why there is none, one sentence
    iteration: int = 0      # of the model that was asked
    cost_ms: float = 0.0


@dataclass(frozen=True)
class SelectionState:
    """How many Gaussians carry the user's marks, and what undo and redo would do; an empty text = nothing."""
    selected: int = 0
    frozen: int = 0
    hidden: int = 0
    undo: str = ""
    redo: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The state of the run after a turn."""
    state: Literal["empty", "loading", "running", "paused", "finished", "failed"] = "empty"
    iteration: int = 0
    iterations: int = 0
    loss: float = float("nan")
    psnr: float = float("nan")
    gaussians: int = 0
    cap: int = 0
    sh_degree: int = 0
    steps_per_second: float = 0.0
    backend: str = ""
    backends: tuple[str, ...] = ()         # those that SetBackend takes here, "auto" included
    device: str = ""
    frame: Frame | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)      # loss, train_psnr, test_psnr, count
    histogram: Histogram | None = None
    stage_ms: Mapping[str, float] = field(default_factory=dict)    # project, sh, binning, rasterize, loss, ... adam, other
    memory: Mapping[str, int] = field(default_factory=dict)        # bytes: parameters, adam, images, intersections, rss
    selected: GaussianReport | None = None
    commands_done: int = 0                 # how many commands the engine has carried out since it started
    threads: int = 0                       # kernel threads that training may use now
    seconds: float = 0.0                   # spent training since iteration 0, pauses left out
    view_name: str = ""                    # photograph of the last step
    job: JobProgress | None = None         # the long job that runs now
    densify_window: tuple[int, int] = (0, 0)   # first and last iteration that may densify, schedule applied
    answers: Mapping[str, Answer] = field(default_factory=dict)    # to the newest InspectRequest, by instrument
    selection: SelectionState = SelectionState()
