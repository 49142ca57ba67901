"""Stage activate: raw parameters -> Gaussians."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render.backends.choose import kernels
from render.reference.activate import activate as reference_activate
from render.shapes import check
from render.types import GaussianParams, Gaussians


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, quats: Tensor, log_scales: Tensor, logit_opacities: Tensor, backend: str) -> tuple[Tensor, ...]:
        k = kernels(backend, quats.dtype)
        outputs = k.empty_like(quats, log_scales, logit_opacities)
        k.activate_fwd(len(quats), quats, log_scales, logit_opacities, *outputs)
        ctx.save_for_backward(quats, outputs[1], outputs[2])
        ctx.backend = backend
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        quats, scales, opacities = ctx.saved_tensors
        k = kernels(ctx.backend, quats.dtype)
        gradients = k.empty_like(quats, scales, opacities)
        k.activate_bwd(len(quats), quats, scales, opacities, *(v.contiguous() for v in cotangents), *gradients)
        return *gradients, None


def activate(params: GaussianParams, backend: str) -> Gaussians:
    """exp, sigmoid and normalised quaternions; see render/reference/activate.py. On kernels SH stays in its two parts."""
    if backend == "reference":
        return reference_activate(params)
    check(means=(params.means, "N 3"), quats=(params.quats, "N 4"), log_scales=(params.log_scales, "N 3"),
          logit_opacities=(params.logit_opacities, "N"), sh0=(params.sh0, "N 1 3"), shN=(params.shN, "N _ 3"))
    quats, scales, opacities = _Activate.apply(params.quats, params.log_scales, params.logit_opacities, backend)
    return Gaussians(params.means, quats, scales, opacities, params.sh0, params.shN)
