"""Stage project: Gaussians -> ellipses on the image plane."""

from __future__ import annotations

from render import timing
from render.config import RasterConfig
from render.reference.project import project as reference_project
from render.types import Camera, Gaussians, Projected


def project(gaussians: Gaussians, camera: Camera, config: RasterConfig, backend: str) -> Projected:
    """See render/reference/project.py."""
    with timing.measure("project"):
        if backend == "reference":
            return reference_project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities,
                                     camera, config)
        raise ValueError(f"project: backend {backend!r} is not built; choose reference")
