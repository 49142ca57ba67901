"""Stage project: Gaussians -> ellipses on the image plane."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import timing
from render.backends.choose import kernels
from render.config import RasterConfig
from render.reference.project import project as reference_project
from render.shapes import check
from render.types import Camera, Gaussians, Projected


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, camera: Camera,
                config: RasterConfig, backend: str) -> tuple[Tensor, ...]:
        n, k = len(means), kernels(backend, means.dtype)
        means2d, conics, depths, extents, compensations = (
            k.empty(*shape) for shape in ((n, 2), (n, 3), (n,), (n, 2), (n,)))
        k.project_fwd(k.camera(camera, config), k.raster(config), n, means, quats, scales, opacities,
                      means2d, conics, depths, extents, compensations)
        ctx.save_for_backward(means, quats, scales, extents)
        ctx.camera, ctx.config, ctx.backend = camera, config, backend
        ctx.mark_non_differentiable(extents)
        ctx.set_materialize_grads(False)
        return means2d, conics, depths, extents, compensations

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        v_means2d, v_conics, v_depths, _, v_compensations = cotangents
        means, quats, scales, extents = ctx.saved_tensors
        n, k = len(means), kernels(ctx.backend, means.dtype)
        v_means2d = means.new_zeros(n, 2) if v_means2d is None else v_means2d.contiguous()
        v_conics = means.new_zeros(n, 3) if v_conics is None else v_conics.contiguous()
        v_depths, v_compensations = (None if v is None else v.contiguous() for v in (v_depths, v_compensations))
        gradients = k.empty_like(means, quats, scales)
        k.project_bwd(k.camera(ctx.camera, ctx.config), k.raster(ctx.config), n, means, quats, scales, extents,
                      v_means2d, v_conics, v_depths, v_compensations, *gradients)
        return *gradients, None, None, None, None


def project(gaussians: Gaussians, camera: Camera, config: RasterConfig, backend: str) -> Projected:
    """See render/reference/project.py. Opacities decide the extents and receive no gradient from here."""
    with timing.measure("project"):
        inputs = (gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities)
        if backend == "reference":
            return reference_project(*inputs, camera, config)
        check(means=(inputs[0], "N 3"), quats=(inputs[1], "N 4"), scales=(inputs[2], "N 3"), opacities=(inputs[3], "N"))
        return Projected(*_Project.apply(*inputs, camera, config, backend))
