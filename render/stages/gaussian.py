"""Stages activate, project and sh in one: raw parameters -> coloured ellipses, as training needs them.

On CUDA one kernel does all three, and one their backward, which spares writing and reading what lies between. Elsewhere, and
for whoever inspects what lies between, it is the composition of the stages.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import timing
from render.backends import cuda
from render.config import RasterConfig
from render.shapes import check
from render.stages.activate import activate
from render.stages.project import project
from render.stages.sh import sh_to_colors
from render.types import Camera, GaussianParams, Gaussians, Projected


class _Gaussian(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, means: Tensor, quats: Tensor, log_scales: Tensor, logit_opacities: Tensor, sh0: Tensor, shN: Tensor,
                camera: Camera, config: RasterConfig, degree: int) -> tuple[Tensor, ...]:
        n, k = len(means), cuda.kernels(means.dtype)
        outputs = [k.empty(*shape) for shape in ((n, 2), (n, 3), (n,), (n, 2), (n,), (n, 3), (n,))]
        raw = (means, quats, log_scales, logit_opacities)
        k.gaussian_fwd(k.camera(camera, config), k.raster(config), n, degree, shN.shape[1], *raw, sh0, shN, *outputs)
        extents, colors = outputs[3], outputs[5]
        ctx.save_for_backward(*raw, sh0, shN, extents, colors)
        ctx.camera, ctx.config, ctx.degree = camera, config, degree
        ctx.mark_non_differentiable(extents, outputs[4])
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        *raw, sh0, shN, extents, colors = ctx.saved_tensors
        n, k = len(extents), cuda.kernels(extents.dtype)
        v_means2d, v_conics, v_depths, _, _, v_colors, v_opacities = (None if v is None else v.contiguous() for v in cotangents)
        v_means2d, v_conics, v_colors = (k.zeros(n, width) if v is None else v for v, width in (
            (v_means2d, 2), (v_conics, 3), (v_colors, 3)))
        v_opacities = k.zeros(n) if v_opacities is None else v_opacities
        gradients: list[Tensor | None] = [*k.empty_like(*raw, sh0)]
        gradients.append(k.empty_like(shN)[0] if ctx.degree else None)   # bands not in use receive nothing
        k.gaussian_bwd(k.camera(ctx.camera, ctx.config), k.raster(ctx.config), n, ctx.degree, shN.shape[1], *raw, shN, extents,
                       colors, v_means2d, v_conics, v_depths, v_colors, v_opacities, *gradients)
        return *gradients, None, None, None


def splats(params: GaussianParams, camera: Camera, config: RasterConfig, degree: int, backend: str
           ) -> tuple[Projected, Tensor, Tensor]:
    """(projected, colors [N,3], opacities_eff [N] = opacities times compensations in the antialiased mode)."""
    if backend == "cuda":
        check(means=(params.means, "N 3"), quats=(params.quats, "N 4"), log_scales=(params.log_scales, "N 3"),
              logit_opacities=(params.logit_opacities, "N"), sh0=(params.sh0, "N 1 3"), shN=(params.shN, "N _ 3"))
        if not 0 <= degree <= 3 or params.shN.shape[1] + 1 < (degree + 1) ** 2:
            raise ValueError(f"sh: degree {degree} needs 0 <= degree <= 3 and {(degree + 1) ** 2} coefficients, "
                             f"got {params.shN.shape[1] + 1}")
        with timing.measure("project"):
            *projected, colors, opacities = _Gaussian.apply(*params.trained().values(), camera, config, degree)
            return Projected(*projected), colors, opacities
    return splats_of(activate(params, backend), camera, config, degree, backend)


def splats_of(gaussians: Gaussians, camera: Camera, config: RasterConfig, degree: int, backend: str,
              colors: Tensor | None = None) -> tuple[Projected, Tensor, Tensor]:
    """The same from activated Gaussians, stage by stage; `colors` [N,3] replace those from SH."""
    projected = project(gaussians, camera, config, backend)
    if colors is None:
        colors = sh_to_colors(gaussians.means, gaussians.sh, camera, degree, backend, shN=gaussians.shN,
                              extents=projected.extents)
    return projected, colors, gaussians.opacities * projected.compensations if config.antialiased else gaussians.opacities
