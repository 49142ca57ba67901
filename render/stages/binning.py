"""Stage binning: which Gaussians may touch which tile, front to back."""

from __future__ import annotations

from torch import Tensor

from render import timing
from render.config import RasterConfig
from render.reference.binning import bin_tiles as reference_bin_tiles
from render.types import Camera, Projected, TileBins


def bin_tiles(projected: Projected, opacities_eff: Tensor, camera: Camera, config: RasterConfig,
              backend: str) -> TileBins:
    """See render/reference/binning.py."""
    with timing.measure("binning"):
        if backend == "reference":
            return reference_bin_tiles(projected, opacities_eff, camera, config)
        raise ValueError(f"binning: backend {backend!r} is not built; choose reference")
