"""Stage activate: raw parameters -> Gaussians."""

from __future__ import annotations

from render.reference.activate import activate as reference_activate
from render.types import GaussianParams, Gaussians


def activate(params: GaussianParams, backend: str) -> Gaussians:
    """exp, sigmoid and normalised quaternions; see render/reference/activate.py."""
    if backend == "reference":
        return reference_activate(params)
    raise ValueError(f"activate: backend {backend!r} is not built; choose reference")
