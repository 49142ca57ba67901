"""Stage ssim: the photometric loss, L1 and SSIM in one pass each way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import interrupt, timing
from render.backends import buffers, cpu, cuda
from render.config import LOSSES
from render.reference.ssim import photometric_loss as reference_photometric_loss
from render.shapes import check


class _Photometric(torch.autograd.Function):
    """(loss, terms) from the picture; weights (w_l1, w_mse, w_ssim) of the three sums over pixels and channels."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, target: Tensor, weights: tuple[float, float, float], constant: float
                ) -> tuple[Tensor, Tensor]:
        k = cpu.kernels(image.dtype)
        height, width = image.shape[:2]
        partials = torch.empty(k.ssim_blocks(height, width), 3, dtype=torch.float64)
        maps = buffers.empty((3, *image.shape), image.dtype) if weights[2] != 0 and ctx.needs_input_grad[0] else None
        k.ssim_fwd(height, width, image, target, partials, maps)
        # Blocks are added one after the other: torch's own sum would depend on its number of threads.
        sums = [0.0, 0.0, 0.0]
        for row in partials.tolist():
            for i in range(3):
                sums[i] += row[i]
        means = [s / image.numel() for s in sums]
        ctx.save_for_backward(image, target, maps)
        ctx.weights = weights
        terms = image.new_tensor(means)
        ctx.mark_non_differentiable(terms)
        return image.new_tensor(constant + sum(w * m for w, m in zip(weights, means))), terms

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        v_loss, _ = cotangents
        image, target, maps = ctx.saved_tensors
        k = cpu.kernels(image.dtype)
        scale = float(v_loss) / image.numel()
        v_image = buffers.empty_like(image)
        w_l1, w_mse, w_ssim = (scale * w for w in ctx.weights)
        k.ssim_bwd(*image.shape[:2], image, target, maps, w_l1, w_mse, w_ssim, v_image)
        return v_image, None, None, None


class _PhotometricCuda(torch.autograd.Function):
    """The same on the device, where loss and terms stay: nothing here waits for them."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, target: Tensor, weights: tuple[float, float, float], constant: float
                ) -> tuple[Tensor, Tensor]:
        k = cuda.kernels(image.dtype)
        height, width = image.shape[:2]
        partials = k.empty(cuda.ssim_blocks(height, width), 3, dtype=torch.float64)
        maps = k.empty(3, *image.shape) if weights[2] != 0 and ctx.needs_input_grad[0] else None
        k.ssim_fwd(height, width, k.window, image, target, partials, maps)
        means = partials.sum(0) / image.numel()
        ctx.save_for_backward(image, target, maps)
        ctx.weights = weights
        terms = means.to(image.dtype)
        ctx.mark_non_differentiable(terms)
        loss = constant + sum(weight * mean for weight, mean in zip(weights, means.unbind()))
        return torch.as_tensor(loss).to(image.dtype), terms

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        v_loss, _ = cotangents
        image, target, maps = ctx.saved_tensors
        k = cuda.kernels(image.dtype)
        (v_image,) = k.empty_like(image)
        k.ssim_bwd(*image.shape[:2], k.window, image, target, maps, (v_loss / image.numel()).reshape(1), *ctx.weights, v_image)
        return v_image, None, None, None


def photometric_loss(image: Tensor, target: Tensor, *, kind: str = "l1_ssim", lambda_dssim: float = 0.2,
                     backend: str) -> tuple[Tensor, Tensor]:
    """(loss, terms [3] = l1, mse, ssim); see render/reference/ssim.py. The target receives no gradient."""
    with timing.measure("loss"):
        if backend == "reference":
            return reference_photometric_loss(image, target, kind=kind, lambda_dssim=lambda_dssim,
                                                 between=interrupt.check)
        if kind not in LOSSES:
            raise ValueError(f"loss kind is {kind!r}; choose {' or '.join(LOSSES)}")
        check(image=(image, "H W 3"), target=(target, "H W 3"))
        weights, constant = ((0.0, 1.0, 0.0), 0.0) if kind == "mse" else ((1 - lambda_dssim, 0.0, -lambda_dssim), lambda_dssim)
        function = _PhotometricCuda if backend == "cuda" else _Photometric
        return function.apply(image.contiguous(), target.contiguous(), weights, constant)
