"""Stage ssim: the photometric loss."""

from __future__ import annotations

from torch import Tensor

from render import timing
from render.reference.ssim import photometric_loss as reference_photometric_loss


def photometric_loss(image: Tensor, target: Tensor, *, kind: str = "l1_ssim", lambda_dssim: float = 0.2,
                     backend: str) -> tuple[Tensor, Tensor]:
    """(loss, terms [3] = l1, mse, ssim); see render/reference/ssim.py."""
    timing.close_sums()
    with timing.measure("loss"):
        if backend == "reference":
            return reference_photometric_loss(image, target, kind=kind, lambda_dssim=lambda_dssim)
        raise ValueError(f"ssim: backend {backend!r} is not built; choose reference")
