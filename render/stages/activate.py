"""Stage activate: raw parameters -> Gaussians."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render.backends import cpu
from render.reference.activate import activate as reference_activate
from render.shapes import check
from render.types import GaussianParams, Gaussians


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, quats: Tensor, log_scales: Tensor, logit_opacities: Tensor) -> tuple[Tensor, ...]:
        outputs = cpu.empty_like_all(quats, log_scales, logit_opacities)
        cpu.kernels(quats.dtype).activate_fwd(len(quats), quats, log_scales, logit_opacities, *outputs)
        ctx.save_for_backward(quats, outputs[1], outputs[2])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, ...]:
        quats, scales, opacities = ctx.saved_tensors
        gradients = cpu.empty_like_all(quats, scales, opacities)
        cpu.kernels(quats.dtype).activate_bwd(len(quats), quats, scales, opacities,
                                              *(v.contiguous() for v in cotangents), *gradients)
        return tuple(gradients)


def activate(params: GaussianParams, backend: str) -> Gaussians:
    """exp, sigmoid and normalised quaternions; see render/reference/activate.py. On kernels SH stays in its two parts."""
    if backend == "reference":
        return reference_activate(params)
    check(means=(params.means, "N 3"), quats=(params.quats, "N 4"), log_scales=(params.log_scales, "N 3"),
          logit_opacities=(params.logit_opacities, "N"), sh0=(params.sh0, "N 1 3"), shN=(params.shN, "N _ 3"))
    quats, scales, opacities = _Activate.apply(params.quats, params.log_scales, params.logit_opacities)
    return Gaussians(params.means, quats, scales, opacities, params.sh0, params.shN)
