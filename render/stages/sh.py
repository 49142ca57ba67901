"""Stage sh: spherical harmonics -> colours."""

from __future__ import annotations

from torch import Tensor

from render import timing
from render.reference.sh import sh_to_colors as reference_sh_to_colors
from render.types import Camera


def sh_to_colors(means: Tensor, sh: Tensor, camera: Camera, degree: int, backend: str) -> Tensor:
    """[N,3]; see render/reference/sh.py."""
    with timing.measure("sh"):
        if backend == "reference":
            return reference_sh_to_colors(means, sh, camera, degree)
        raise ValueError(f"sh: backend {backend!r} is not built; choose reference")
