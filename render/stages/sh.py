"""Stage sh: spherical harmonics -> colours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import timing
from render.backends.choose import kernels
from render.backends.launches import Kernels
from render.config import RasterConfig
from render.reference.sh import sh_to_colors as reference_sh_to_colors
from render.shapes import check
from render.types import Camera


def _parts(sh: Tensor, shN: Tensor | None) -> tuple[Tensor, int, Tensor, int]:
    """(first coefficients, their row stride, the others, their row stride), without copying."""
    if shN is None:
        stride = 3 * sh.shape[1]
        return sh, stride, sh[:, 1:], stride
    return sh, 3, shN, 3 * shN.shape[1]


class _Sh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, means: Tensor, sh: Tensor, shN: Tensor | None, extents: Tensor | None, camera: Camera,
                degree: int, backend: str) -> Tensor:
        k = kernels(backend, means.dtype)
        colors = k.empty(len(means), 3)
        k.sh_fwd(_camera(k, camera), len(means), degree, means, *_parts(sh, shN), extents, colors)
        ctx.save_for_backward(means, sh, shN, extents, colors)
        ctx.camera, ctx.degree, ctx.backend = camera, degree, backend
        return colors

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (v_colors,) = cotangents
        means, sh, shN, extents, colors = ctx.saved_tensors
        k = kernels(ctx.backend, means.dtype)
        v_means, v_sh = k.empty_like(means, sh)
        # Bands not in use receive nothing, which spares writing their zeros when they stand in an array of their own.
        v_shN = None if shN is None or ctx.degree == 0 else k.empty_like(shN)[0]
        total = sh.shape[1] + (0 if v_shN is None else v_shN.shape[1])
        k.sh_bwd(_camera(k, ctx.camera), len(means), ctx.degree, total, means, *_parts(sh, shN), extents, colors,
                 v_colors.contiguous(), v_means, *_parts(v_sh, v_shN))
        return v_means, v_sh, v_shN, None, None, None, None


def _camera(k: Kernels, camera: Camera) -> Any:
    return k.camera(camera, RasterConfig())  # colours ask only for the centre


def sh_to_colors(means: Tensor, sh: Tensor, camera: Camera, degree: int, backend: str, *, shN: Tensor | None = None,
                 extents: Tensor | None = None) -> Tensor:
    """[N,3]; see render/reference/sh.py.

    sh [N,K,3], or [N,1,3] with shN [N,K-1,3]. With extents [N,2], kernels leave culled Gaussians (extents 0) black.
    """
    with timing.measure("sh"):
        if backend == "reference":
            return reference_sh_to_colors(means, sh if shN is None else torch.cat([sh, shN], dim=1), camera, degree)
        check(means=(means, "N 3"), sh=(sh, "N _ 3"), **({} if shN is None else dict(shN=(shN, "N _ 3"))))
        total = sh.shape[1] + (0 if shN is None else shN.shape[1])
        if not 0 <= degree <= 3 or total < (degree + 1) ** 2:
            raise ValueError(f"sh: degree {degree} needs 0 <= degree <= 3 and {(degree + 1) ** 2} coefficients, got {total}")
        return _Sh.apply(means, sh.contiguous(), shN if shN is None else shN.contiguous(), extents, camera, degree,
                         backend)
