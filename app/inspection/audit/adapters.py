"""Rasterizers behind the one function that `splatscope audit` takes. Each imports what it needs when it is called.

    render(means [N,3], quats [N,4] wxyz unit, scales [N,3], opacities [N], sh [N,K,3], viewmat [4,4] world to camera,
           K [3,3] px, width, height, background [3]) -> image [H,W,3]

Your own adapter is such a function in any module that Python finds.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from app.inspection.audit import plain
from app.inspection.audit.types import AuditError

NEAR, FAR = 0.01, 100.0
plain_torch = plain.render


def _splatscope(backend: str, means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor,
                K: Tensor, width: int, height: int, background: Tensor) -> Tensor:
    from render.config import RasterConfig
    from render.pipeline import render, resolve_backend
    from render.types import Camera, Gaussians

    try:
        resolve_backend(backend)
    except ValueError as error:
        raise AuditError(str(error)) from None
    camera = Camera(viewmat.detach().cpu().double().numpy(), K.detach().cpu().double().numpy(), width, height)
    return render(Gaussians(means, quats, scales, opacities, sh), camera, RasterConfig(), background=background,
                  sh_degree=math.isqrt(sh.shape[1]) - 1, backend=backend).colors


def splatscope_cpu(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor, K: Tensor,
                   width: int, height: int, background: Tensor) -> Tensor:
    """Splatscope's compiled CPU kernels. Raises AuditError without a C++ compiler."""
    return _splatscope("cpu", means, quats, scales, opacities, sh, viewmat, K, width, height, background)


def splatscope_reference(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor,
                         K: Tensor, width: int, height: int, background: Tensor) -> Tensor:
    """Splatscope's reference, tile by tile in plain PyTorch."""
    return _splatscope("reference", means, quats, scales, opacities, sh, viewmat, K, width, height, background)


def gsplat(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor, K: Tensor,
           width: int, height: int, background: Tensor) -> Tensor:
    """gsplat >= 1.0, classic mode: float32, on a GPU. Raises AuditError where it is not installed."""
    try:
        from gsplat import rasterization  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise AuditError("gsplat is not installed; run `pip install gsplat`") from None
    colors, _, _ = rasterization(means, quats, scales, opacities, sh, viewmat[None], K[None], width, height,
                                 sh_degree=math.isqrt(sh.shape[1]) - 1, backgrounds=background[None], packed=False)
    return colors[0]


def clip_matrix(K: Tensor, width: int, height: int) -> Tensor:
    """[4,4] camera to clip space (x right, y down, z in [0,1] w) whose pixels are those of K, off-centre or not."""
    matrix = torch.zeros(4, 4, dtype=K.dtype, device=K.device)
    matrix[0, 0], matrix[0, 2] = 2 * K[0, 0] / width, 2 * K[0, 2] / width - 1
    matrix[1, 1], matrix[1, 2] = 2 * K[1, 1] / height, 2 * K[1, 2] / height - 1
    matrix[2, 2], matrix[2, 3] = FAR / (FAR - NEAR), -FAR * NEAR / (FAR - NEAR)
    matrix[3, 2] = 1.0
    return matrix


def diff_gaussian_rasterization(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor,
                                K: Tensor, width: int, height: int, background: Tensor) -> Tensor:
    """graphdeco's rasterizer, with or without its later depth and antialiasing: float32, on a GPU; no gradient of the
    background. Raises AuditError where it is not installed."""
    try:
        import diff_gaussian_rasterization as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise AuditError("diff_gaussian_rasterization is not installed; build it from graphdeco's repository") from None
    fields = dict(image_height=height, image_width=width, tanfovx=width / (2 * float(K[0, 0])),
                  tanfovy=height / (2 * float(K[1, 1])), bg=background.detach(), scale_modifier=1.0,
                  viewmatrix=viewmat.T.contiguous(), projmatrix=(clip_matrix(K, width, height) @ viewmat).T.contiguous(),
                  sh_degree=math.isqrt(sh.shape[1]) - 1, campos=-viewmat[:3, :3].T @ viewmat[:3, 3], prefiltered=False,
                  debug=False, antialiasing=False)
    settings_type: Any = package.GaussianRasterizationSettings
    settings = settings_type(**{name: value for name, value in fields.items() if name in settings_type._fields})
    outputs = package.GaussianRasterizer(raster_settings=settings)(
        means3D=means, means2D=torch.zeros_like(means).requires_grad_(), opacities=opacities[:, None], shs=sh, scales=scales,
        rotations=quats)
    return outputs[0].permute(1, 2, 0)   # the picture is [3,H,W], with radii and sometimes depths behind it
