"""Every constant of the renderer, once. Torch-free, so that the window and the CLI may read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

AlphaGradient = Literal["exact", "straight_through", "straight_through_clamped"]
ALPHA_GRADIENTS: tuple[str, ...] = get_args(AlphaGradient)
CudaBackward = Literal["pixels", "buckets"]
CUDA_BACKWARDS: tuple[str, ...] = get_args(CudaBackward)
TILE_SIZE = 16
"""Tile side in pixels. Structural: kernels are built for it (-DTILE_SIZE)."""
FOOTPRINT_MARGIN = 1e-3
"""Added to the squared radius 2 ln(opacity / cutoff) of a footprint, so that rounding never loses a pixel that blends:
at the widened rim alpha is cutoff * exp(-FOOTPRINT_MARGIN / 2), 0.05 % below the cutoff. Kernels take it too."""
SH_C0 = 0.28209479177387814
"""Y_0^0 of the real spherical harmonics: colour = 0.5 + SH_C0 * sh0 (f_dc in files)."""
Backend = Literal["auto", "cuda", "cpu", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)
Loss = Literal["l1_ssim", "mse"]
LOSSES: tuple[str, ...] = get_args(Loss)


LARGEST_INT = 2**63 - 1
"""Of a setting: beyond, neither arrays nor files hold it."""


@dataclass(frozen=True)
class Domain:
    """The finite numbers that mean something for a setting: from `lo` to `hi`, an open end left out."""

    words: str                # behind "it must be"
    lo: float = -math.inf
    hi: float = math.inf
    open_lo: bool = False
    open_hi: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.lo < value if self.open_lo else self.lo <= value
        below = value < self.hi if self.open_hi else value <= self.hi
        return math.isfinite(value) and above and below


POSITIVE = Domain("a finite number greater than 0", lo=0.0, open_lo=True)
NOT_NEGATIVE = Domain("a finite number of at least 0", lo=0.0)
SHARE = Domain("between 0 and 1", lo=0.0, hi=1.0)
INSIDE_UNIT = Domain("strictly between 0 and 1", lo=0.0, hi=1.0, open_lo=True, open_hi=True)
BELOW_ONE = Domain("at least 0 and less than 1", lo=0.0, hi=1.0, open_hi=True)


def setting(default: Any, help: str, *, unit: str = "", lo: float | None = None, hi: float | None = None,
            log: bool = False, live: bool = True, choices: tuple[str, ...] = (), valid: Domain | None = None,
            backend: str = "") -> Any:
    """A dataclass field whose metadata feeds the CLI help, the tooltips and the sliders alike.

    `lo`/`hi` bound a slider, `log` makes it logarithmic, `live` says whether a change acts in the next step;
    check_settings refuses what is not in `valid`; `backend` names the only one that it is for.
    """
    return field(default=default, metadata=dict(help=help, unit=unit, lo=lo, hi=hi, log=log, live=live, choices=choices,
                                                valid=valid, backend=backend))


def check_settings(config: Any) -> None:
    """Raise ValueError, one sentence, for the first field outside its choices or the domain where it has a meaning; numbers
    are finite in any case."""
    for f in fields(config):
        value, choices, valid = getattr(config, f.name), f.metadata.get("choices"), f.metadata.get("valid")
        if choices and value not in choices:
            raise ValueError(f"{f.name} is {value!r}; choose one of {', '.join(choices)}")
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            raise ValueError(f"{f.name} is {value}; it must be at most {LARGEST_INT:,}")
        if isinstance(value, float) and valid is None and not math.isfinite(value):
            raise ValueError(f"{f.name} is {value}; it must be a finite number")
        if valid is not None and value not in valid:
            raise ValueError(f"{f.name} is {value}; it must be {valid.words}")


@dataclass(frozen=True)
class RasterConfig:
    """Rules of projection and compositing. All are kernel arguments: no toggle compiles anything."""

    alpha_max: float = setting(0.99, "Largest alpha a Gaussian may have at a pixel.", lo=0.5, hi=0.9999,
                               valid=INSIDE_UNIT)
    alpha_gradient: AlphaGradient = setting(
        "exact", "Gradient where opacity*G exceeds alpha_max: exact (0, as gsplat), straight_through (as graphdeco) "
        "or straight_through_clamped.", choices=ALPHA_GRADIENTS)
    cutoff: float = setting(1.0 / 255.0, "Alpha below which a Gaussian does not touch a pixel.",
                            lo=1e-4, hi=0.1, log=True,   # 0 would give every Gaussian an infinite footprint
                            valid=INSIDE_UNIT)   # solid view modes render with one just below alpha_max
    smooth_cutoff: bool = setting(False, "Fade alpha in between cutoff and 2*cutoff instead of switching it on.")
    transmittance_min: float = setting(1e-4, "A Gaussian that would bring transmittance below this is not blended.",
                                       lo=1e-6, hi=1e-1, log=True, valid=INSIDE_UNIT)
    eps2d: float = setting(0.3, "Low-pass added to the diagonal of the 2D covariance.", unit="px^2", lo=0.0, hi=2.0,
                           valid=NOT_NEGATIVE)
    antialiased: bool = setting(False, "Compensate opacity for the low-pass (Mip-Splatting / gsplat antialiased mode).")
    clamp_fov: float = setting(1.3, "The projection's Jacobian is clamped beyond this multiple of tan(fov/2).",
                               lo=1.0, hi=3.0, valid=Domain("a finite number of at least 1", lo=1.0))
    cuda_backward: CudaBackward = setting(
        "pixels", "How the CUDA rasterizer goes backward: a thread a pixel with sums over warps, or buckets of 32 Gaussians "
        "(Mallick et al. 2024), which need memory for their states. The gradients are the same.", choices=CUDA_BACKWARDS,
        backend="cuda")
    max_intersection_bytes: int = setting(2**32, "Byte budget for tile intersections; exceeding it is an error.",
                                          unit="B", live=False, valid=POSITIVE)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.cutoff < self.alpha_max:
            raise ValueError(f"cutoff is {self.cutoff}; it must be less than alpha_max {self.alpha_max}")
