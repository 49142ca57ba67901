"""What a picture is asked with and comes back as."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from render.types import Camera

ViewMode = str
"""The name of a ModeInfo."""


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
             ranged=True),
    ModeInfo("candidates", "Candidates", "What the next densification would do to each Gaussian: clone, split, prune or "
             "move it; the rest in grey.", "J"))}
VIEW_MODES: tuple[ViewMode, ...] = tuple(MODES)


@dataclass(frozen=True)
class Keep:
    """Draw only the Gaussians whose value of a quantity lies in [lo, hi]."""
    quantity: str
    lo: float
    hi: float


@dataclass(frozen=True)
class Moment:
    """An iteration of a branch of the run."""
    branch: str
    iteration: int


@dataclass(frozen=True)
class Beside:
    """Another mode, or another moment, in the right part of the picture, from the same camera."""
    mode: ViewMode
    quantity: str = "mean2d_grad"
    share: float = 0.5                 # of the width that keeps the first mode
    moment: Moment | None = None       # None = the run as it is now


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
    moment: Moment | None = None       # look back: the kept moment nearest to it; None = the run as it is now


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
    entries: tuple[tuple[str, tuple[float, float, float], int], ...] = ()   # instead of a scale: (name, colour, how many)


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
    moment: Moment | None = None          # what is drawn, None = the run as it was then
    moment_beside: Moment | None = None
