"""Stage rasterize: sorted ellipses -> picture."""

from __future__ import annotations

from torch import Tensor

from render import timing
from render.config import RasterConfig
from render.reference.absgrad import attach_tap
from render.reference.rasterize import rasterize as reference_rasterize
from render.types import Camera, GradientTap, Projected, TileBins


def rasterize(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
              background: Tensor, config: RasterConfig, *, depth: bool, tap: GradientTap | None, backend: str
              ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(colors, transmittances, depths or None, last_ids); see render/reference/rasterize.py."""
    with timing.measure("rasterize"):
        if backend == "reference":
            picture = reference_rasterize(projected, colors, opacities_eff, bins, camera, background, config, depth)
            if tap is not None:
                attach_tap(tap, projected, colors, opacities_eff, bins, camera, background, config, picture[:3])
            return picture
        raise ValueError(f"rasterize: backend {backend!r} is not built; choose reference")
