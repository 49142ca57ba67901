"""What a gradient check found, and how it is judged. Numpy only, so that the window may read it.

The one definition of a relative error, between an analytic gradient a and a numeric one n of the same entry:

    error = |a - n| / max(|a|, |n|, floor),   floor = max(FLOOR_SHARE[dtype] * G, r / TOLERANCE[dtype])

G is the largest |a| or |n| of that parameter among the checked, so that entries whose gradient is nearly zero are not judged
by what is left over of large terms. r = ROUNDINGS eps S / ((x + h) - (x - h)) is what rounding alone may do to the
difference of two sums of magnitude S in float64; it counts as the tolerance, no more.

A parameter is all right when no error exceeds TOLERANCE[dtype], at least CLEAN_SHARE of its entries were checked without a
kink between x - h and x + h, and its gradients are neither all zero nor lost in rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

KINKS: dict[str, str] = {
    "cutoff": "alpha crosses the cutoff, below which a Gaussian does not touch a pixel",
    "alpha_clamp": "opacity times the Gaussian's value crosses alpha_max",
    "early_stop": "another Gaussian is the last that transmittance_min lets blend",
    "footprint_edge": "the Gaussian enters or leaves a tile's list, or is culled, where it would blend",
    "depth_order": "the Gaussian changes places in depth with another one that blends there",
    "sh_clamp": "a colour channel crosses 0, below which it is clamped",
    "l1_sign": "picture minus photograph changes its sign in a channel",
    "projection_clamp": "x/z or y/z crosses the limit of the projection's Jacobian",
}
"""Where the picture has a kink or a jump, so that a finite difference across it says nothing of the gradient."""
TOLERANCE = {"float64": 1e-4, "float32": 2e-2}
FLOOR_SHARE = {"float64": 1e-3, "float32": 1e-2}
CLEAN_SHARE = 0.7
ROUNDINGS = 4.0
"""Roundings of eps times the magnitude of a sum that a central difference is allowed."""
ABOVE_ROUNDING = 100.0
"""The largest gradient of a parameter has to stand out of r by this factor, else the check would prove nothing."""


def relative_error(analytic: np.ndarray, numeric: np.ndarray, floor: np.ndarray | float) -> np.ndarray:
    """The error defined above, elementwise; 0 where both are 0, infinite where either is not finite."""
    scale = np.maximum(np.maximum(np.abs(analytic), np.abs(numeric)), floor)
    finite = np.isfinite(analytic) & np.isfinite(numeric)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(scale > 0, np.abs(analytic - numeric) / np.where(scale > 0, scale, 1.0), 0.0)
    return np.where(finite, error, np.inf)


@dataclass(frozen=True)
class Entry:
    """One number of one Gaussian: x, its gradient twice over, and what lies between x - h and x + h.

    `numeric` is the central difference of the picture as it is rendered. Where kinks lie between, smaller steps are tried
    as well, and `frozen` is the difference with masks and depth order held as they are at x (NaN: not computed).
    `reference` is the reference's analytic gradient in the same alpha mode, where the Gaussian has clamped pixels whose
    gradient is passed straight through (NaN elsewhere).
    """

    uid: int
    index: int          # row of the Gaussian
    parameter: str      # group name, see render.types.PARAM_GROUPS
    component: int      # place in the Gaussian's flattened row of that group
    value: float        # x, raw
    step: float         # (x + h) - (x - h) as stored, of `numeric`
    analytic: float     # dL/dx of the backend under test
    numeric: float
    kinks: Mapping[str, int] = field(default_factory=dict)   # name -> pixels that flip within the default h
    clean: bool = True       # no kink lies within the step that `numeric` took, the default one or a smaller
    frozen: float = math.nan
    reference: float = math.nan
    rounding: float = 0.0    # r, see above

    @property
    def expected(self) -> float:
        """The number that the analytic gradient is judged by; NaN for a kinked entry that could not be re-checked."""
        if not math.isnan(self.reference):
            return self.reference
        return self.numeric if self.clean else self.frozen

    @property
    def expected_frozen(self) -> float:
        """What it is judged by as well where there is a kink; NaN where there is none."""
        if not self.kinks or math.isnan(self.reference):
            return self.frozen
        return self.reference


@dataclass(frozen=True)
class ParameterReport:
    """The verdict on one parameter group."""

    parameter: str
    entries: int                  # looked at
    checked: int                  # without a kink between x - h and x + h, for the default h or a smaller one
    kinks: Mapping[str, int]      # name -> entries
    rechecked: int                # kinked entries compared with masks and order frozen
    straight_through: int         # entries that differ from finite differences because of clamped pixels, as the mode wants
    largest: float                # |gradient|, of which the floor is a share
    max_error: float              # of the checked entries; NaN without any
    median_error: float
    max_rechecked_error: float    # of the kinked entries, frozen; NaN without any
    worst: Entry | None           # the entry of the largest error of both kinds
    problem: str = ""             # why it fails, one clause; empty = all right

    @property
    def ok(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Sweep:
    """The U-curve of one entry: the error of the central difference by step, [S] each, h descending.

    `errors` is |numeric(h) - analytic|/|analytic| of the picture as rendered, `frozen` the same with masks and order held,
    which a large step does not leave. Slopes are those of log error over log h of `frozen`, NaN where too few points
    stand out of the flat bottom: +2 is truncation, -1 is rounding.
    """

    uid: int
    parameter: str
    component: int
    analytic: float
    steps: np.ndarray
    errors: np.ndarray
    frozen: np.ndarray
    flipped: np.ndarray          # int, pixels that flip between x - h and x + h, all kinks together
    truncation_slope: float
    rounding_slope: float
    default_step: float          # h that the check uses

    @property
    def best_step(self) -> float:
        """h of the smallest frozen error."""
        return float(self.steps[int(np.nanargmin(self.frozen))])


@dataclass(frozen=True)
class GradientReport:
    """A whole check. `unseen` are asked-for uids that the view does not show or that are gone."""

    view: str
    width: int                   # px
    height: int
    loss: str                    # "l1_ssim", "mse", or "cotangent": sum of picture times fixed random numbers
    backend: str
    dtype: str
    alpha_gradient: str
    sh_degree: int
    gaussians: tuple[int, ...]   # uids checked
    unseen: tuple[int, ...]
    parameters: tuple[ParameterReport, ...]
    entries: tuple[Entry, ...]
    sweeps: tuple[Sweep, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for the user
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every parameter that was looked at is all right, and any was."""
        return bool(self.parameters) and all(parameter.ok for parameter in self.parameters)

    def without(self, uids: Sequence[int]) -> GradientReport:
        """The same, with more uids among the unseen: those of Gaussians that are gone."""
        return replace(self, unseen=(*self.unseen, *uids))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; numbers that are not finite become null."""
        values = asdict(self) | {"ok": self.ok, "tolerance": TOLERANCE[self.dtype], "floor_share": FLOOR_SHARE[self.dtype]}
        for row, parameter in zip(values["parameters"], self.parameters, strict=True):
            row["ok"] = parameter.ok
        return _plain(values)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def judge(parameter: str, entries: Sequence[Entry], dtype: str) -> ParameterReport:
    """The verdict on the entries of one parameter; see the top of this file for its rules."""
    def column(name: str) -> np.ndarray:
        return np.array([getattr(e, name) for e in entries])

    analytic, expected, numeric, rounding = (column(n) for n in ("analytic", "expected", "numeric", "rounding"))
    frozen, clean = column("expected_frozen"), column("clean").astype(bool)
    known = np.nan_to_num(np.abs([analytic, expected]), nan=0.0, posinf=0.0, neginf=0.0)
    largest = float(known.max(initial=0.0))
    floor = np.maximum(FLOOR_SHARE[dtype] * largest, rounding / TOLERANCE[dtype])
    errors = np.where(clean, relative_error(analytic, expected, floor), np.nan)
    again = np.where(np.isnan(frozen), np.nan, relative_error(analytic, frozen, floor))
    differ = ~np.isnan(column("reference").astype(float)) & clean
    differ &= relative_error(analytic, numeric, floor) > TOLERANCE[dtype]
    either = np.fmax(errors, again)
    report = ParameterReport(
        parameter=parameter, entries=len(entries), checked=int(clean.sum()), kinks=_count(entries),
        rechecked=int((~np.isnan(again)).sum()), straight_through=int(differ.sum()), largest=largest,
        max_error=_largest(errors), median_error=float(np.nanmedian(errors)) if clean.any() else math.nan,
        max_rechecked_error=_largest(again),
        worst=entries[int(np.nanargmax(either))] if not np.isnan(either).all() else None)
    lost = bool(len(entries)) and largest <= ABOVE_ROUNDING * float(rounding.min())
    return replace(report, problem=_problem(report, analytic, dtype, lost))


def _largest(errors: np.ndarray) -> float:
    """NaN entries left out; NaN when there is no other."""
    return math.nan if np.isnan(errors).all() else float(np.nanmax(errors))


def _count(entries: Sequence[Entry]) -> dict[str, int]:
    counts = {name: sum(name in e.kinks for e in entries) for name in KINKS}
    return {name: count for name, count in counts.items() if count}


def _problem(report: ParameterReport, analytic: np.ndarray, dtype: str, lost: bool) -> str:
    allowed = TOLERANCE[dtype]
    if not np.any(analytic):
        return "every gradient is zero"
    if report.max_error > allowed:
        return f"relative error {report.max_error:.2g}, allowed {allowed:g}"
    if report.max_rechecked_error > allowed:
        return f"relative error {report.max_rechecked_error:.2g} with masks and order frozen, allowed {allowed:g}"
    if lost:
        return f"every gradient is lost in rounding, the largest is {report.largest:.2g}"
    if report.checked < CLEAN_SHARE * report.entries:
        return (f"only {report.checked} of {report.entries} entries have no kink between x - h and x + h, "
                f"{CLEAN_SHARE:.0%} are needed")
    return ""
