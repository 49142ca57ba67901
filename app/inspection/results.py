"""What instruments answer: frozen dataclasses of numpy arrays and plain values. Torch-free, for the window reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Refused:
    """The first Gaussian that the stopping rule kept out of a pixel."""

    uid: int
    depth: float
    alpha: float            # that it offered
    transmittance: float    # that it would have left, less than transmittance_min
    count: int              # how many are out, itself and those behind it that would blend


@dataclass(frozen=True)
class XRay:
    """One pixel taken apart: row k of every array is the k-th of n contributors, front to back. float64 of what the
    rasterizer read, but for the two walks, which are float32 as in the kernels."""

    x: int
    y: int
    width: int
    height: int
    view: str                     # the photograph whose pixel it is; empty = no photograph
    uids: np.ndarray              # [n] int64
    depths: np.ndarray            # [n] camera z
    powers: np.ndarray            # [n] exponent of the Gaussian at the pixel's centre, <= 0
    raw_alphas: np.ndarray        # [n] opacity exp(power)
    alphas: np.ndarray            # [n] what is blended
    clamped: np.ndarray           # [n] bool: raw alpha exceeds alpha_max
    transmittances: np.ndarray    # [n] T in front of each
    weights: np.ndarray           # [n] w = T alpha
    colors: np.ndarray            # [n,3]
    running: np.ndarray           # [n,3] colour so far, this one included, without background
    transmittance: float          # T_N, the weight of the background
    background: np.ndarray        # [3]
    refused: Refused | None
    composed: np.ndarray          # [3] from these rows
    rendered: np.ndarray          # [3] by the renderer that trains
    cotangent: np.ndarray         # [3] dL/dC
    loss: str                     # which loss; empty = no photograph, a cotangent of ones
    own: np.ndarray               # [n,3] part of dC/dalpha: T c
    occlusion: np.ndarray         # [n,3] part of dC/dalpha: -sum of w_m c_m behind it / (1 - alpha)
    backdrop: np.ndarray          # [n,3] part of dC/dalpha: -T_N background / (1 - alpha)
    v_alphas: np.ndarray          # [n] dL/dalpha
    slopes: np.ndarray            # [n] dalpha/draw alpha by the gradient mode in force
    v_opacities: np.ndarray       # [n] what this pixel adds to dL/dopacity
    forward: np.ndarray           # [n+1] float32 T as the forward walk multiplies it, T_N last
    rebuilt: np.ndarray           # [n+1] float32 T as the backward walk rebuilds it from T_N by division
    alpha_max: float
    alpha_gradient: str
    hidden: int = 0               # contributors that the picture leaves out for the user, and training does not

    @property
    def errors(self) -> np.ndarray:
        """[n+1] |rebuilt - forward| / forward."""
        return np.abs(self.rebuilt - self.forward) / self.forward


@dataclass(frozen=True)
class Link:
    """One variable on the way from the loss to a parameter, with dL/d(it)."""

    name: str
    value: np.ndarray
    cotangent: np.ndarray | None   # None = there is no gradient here
    source: str = ""               # "rasterizer" and "optimizer" are the run's own numbers, "" is recomputed in float64
    parts: tuple[str, ...] = ()    # names of the components
    help: str = ""
    residual: float = float("nan")   # largest difference of the recomputed gradient from the optimiser's, over its largest


@dataclass(frozen=True)
class AdamState:
    """The optimiser of one parameter group of one Gaussian; arrays are shaped as the parameter."""

    group: str
    gradient: np.ndarray
    exp_avg: np.ndarray            # Adam's first moment, or SGD's momentum
    exp_avg_sq: np.ndarray         # Adam's second; SGD has none: 0
    rate: float                    # learning rate of the last step
    update: np.ndarray             # what that step added to the parameter; 0 while it is pending, NaN = not known any more
    rule: str = "adam"


@dataclass(frozen=True)
class Fate:
    """What densification would do with a Gaussian if it came now."""

    verdict: str                   # "clone", "split", "prune", "nothing"
    why: str
    statistic: float
    threshold: float
    label: str                     # which statistic
    views: int                     # that saw it since the last densification
    next_event: int | None         # iteration; None = there will be none
    next_reset: int | None


@dataclass(frozen=True)
class Relative:
    uid: int
    alive: bool


@dataclass(frozen=True)
class Trail:
    """How a number of one Gaussian went, while it was looked at."""

    label: str
    iterations: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Chain:
    """Everything between the loss and the parameters of one Gaussian, at the last step."""

    uid: int
    iteration: int                 # of that step, 0 = none yet
    view: str                      # its photograph
    notes: tuple[str, ...]         # sentences on what is not as usual
    links: tuple[Link, ...]        # from the loss to the parameters
    adam: tuple[AdamState, ...] = ()
    steps: int = 0                 # Adam's step count
    fate: Fate | None = None
    parent: Relative | None = None
    children: tuple[Relative, ...] = ()
    trails: tuple[Trail, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """The histogram of a quantity over all Gaussians that have a value."""

    quantity: str
    label: str
    unit: str
    signed: bool
    log: bool                      # the bins are logarithmic
    edges: np.ndarray              # [B+1]; what lies beyond counts in the outer bins
    counts: np.ndarray             # [B] int64
    selected: np.ndarray           # [B] int64 of the selected ones among them
    low: float                     # the smallest value there is
    high: float                    # the largest
    mean: float
    median: float
    zeros: int                     # values <= 0, counted in the first bin where the bins are logarithmic
    unseen: int                    # Gaussians without a value
    total: int


@dataclass(frozen=True)
class Column:
    """A quantity of the Gaussians in the rows; NaN where one has no value."""

    quantity: str
    label: str
    unit: str
    values: np.ndarray             # [K]


@dataclass(frozen=True)
class Ranking:
    """The Gaussians that lead by a quantity, in order."""

    uids: np.ndarray               # [K] int64
    selected: np.ndarray           # [K] bool
    columns: tuple[Column, ...]    # the quantity that orders first
    total: int                     # Gaussians with a value


@dataclass(frozen=True)
class Moments:
    """A quantity over the selected Gaussians that have a value."""

    quantity: str
    label: str
    unit: str
    count: int
    sum: float
    mean: float
    low: float
    high: float
    low_uid: int
    high_uid: int


@dataclass(frozen=True)
class Summary:
    """The card of a multi-selection."""

    count: int
    frozen: int                    # of the selected ones
    hidden: int
    born: int                      # of the selected ones, since the start of the run
    roots: int                     # how many Gaussians of the start they descend from
    rows: tuple[Moments, ...]
