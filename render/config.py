"""Every constant of the renderer, once. Torch-free, so that the window and the CLI may read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

AlphaGradient = Literal["exact", "straight_through", "straight_through_clamped"]
ALPHA_GRADIENTS: tuple[str, ...] = get_args(AlphaGradient)
TILE_SIZE = 16
"""Tile side in pixels. Structural: kernels are built for it (-DTILE_SIZE)."""
FOOTPRINT_MARGIN = 1e-3
"""Added to the squared radius 2 ln(opacity / cutoff) of a footprint, so that rounding never loses a pixel that blends:
at the widened rim alpha is cutoff * exp(-FOOTPRINT_MARGIN / 2), 0.05 % below the cutoff. Kernels take it too."""
SH_C0 = 0.28209479177387814
"""Y_0^0 of the real spherical harmonics: colour = 0.5 + SH_C0 * sh0 (f_dc in files)."""
BACKENDS = ("auto", "cuda", "cpu", "reference")


def setting(default: Any, help: str, *, unit: str = "", lo: float | None = None, hi: float | None = None,
            log: bool = False, live: bool = True, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field whose metadata feeds the CLI help, the tooltips and the sliders alike.

    `lo`/`hi` bound a slider, `log` makes it logarithmic, `live` says whether a change acts in the next step.
    """
    return field(default=default, metadata=dict(help=help, unit=unit, lo=lo, hi=hi, log=log, live=live, choices=choices))


@dataclass(frozen=True)
class RasterConfig:
    """Rules of projection and compositing. All are kernel arguments: no toggle compiles anything."""

    alpha_max: float = setting(0.99, "Largest alpha a Gaussian may have at a pixel.", lo=0.5, hi=0.9999)
    alpha_gradient: AlphaGradient = setting(
        "exact", "Gradient where opacity*G exceeds alpha_max: exact (0, as gsplat), straight_through (as graphdeco) "
        "or straight_through_clamped.", choices=ALPHA_GRADIENTS)
    cutoff: float = setting(1.0 / 255.0, "Alpha below which a Gaussian does not touch a pixel.",
                            lo=1e-4, hi=0.1, log=True)
    smooth_cutoff: bool = setting(False, "Fade alpha in between cutoff and 2*cutoff instead of switching it on.")
    transmittance_min: float = setting(1e-4, "A Gaussian that would bring transmittance below this is not blended.",
                                       lo=1e-6, hi=1e-1, log=True)
    eps2d: float = setting(0.3, "Low-pass added to the diagonal of the 2D covariance.", unit="px^2", lo=0.0, hi=2.0)
    antialiased: bool = setting(False, "Compensate opacity for the low-pass (Mip-Splatting / gsplat antialiased mode).")
    clamp_fov: float = setting(1.3, "The projection's Jacobian is clamped beyond this multiple of tan(fov/2).",
                               lo=1.0, hi=3.0)
    max_intersection_bytes: int = setting(2**32, "Byte budget for tile intersections; exceeding it is an error.",
                                          unit="B", live=False)

    def __post_init__(self) -> None:
        if self.alpha_gradient not in ALPHA_GRADIENTS:
            raise ValueError(f"alpha_gradient is {self.alpha_gradient!r}; choose one of {', '.join(ALPHA_GRADIENTS)}")
        if not 0.0 < self.alpha_max < 1.0:
            raise ValueError(f"alpha_max is {self.alpha_max}; it must lie strictly between 0 and 1")
        if not 0.0 < self.cutoff < self.alpha_max:  # 0 would give every Gaussian an infinite footprint
            raise ValueError(f"cutoff is {self.cutoff}; it must lie strictly between 0 and alpha_max {self.alpha_max}")
        if not 0.0 < self.transmittance_min < 1.0:
            raise ValueError(f"transmittance_min is {self.transmittance_min}; it must lie strictly between 0 and 1")
