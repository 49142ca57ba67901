"""Stage adam: the update."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from render import timing
from render.backends.choose import kernels
from render.reference.adam import adam_step as reference_adam_step


@torch.no_grad()
def adam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float,
              beta1: float = 0.9, beta2: float = 0.999, eps: float, backend: str, extents: Tensor | None = None,
              ok: Tensor | None = None) -> None:
    """In place; see render/reference/adam.py. On CUDA nothing moves where the int32 `ok` [1] is 0."""
    with timing.measure("adam"):
        if backend == "reference":
            reference_adam_step(param, grad, exp_avg, exp_avg_sq, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps,
                                extents=extents)
            return
        if step < 1:
            raise ValueError(f"step is {step}; Adam counts steps from 1")
        flat = [t.view(-1) for t in (param, grad.contiguous(), exp_avg, exp_avg_sq)]
        row, k = param[0].numel() if len(param) else 1, kernels(backend, param.dtype)
        size, rsqrt_bias2 = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
        if backend == "cuda":
            k.adam_step(param.numel(), *flat, size, beta1, 1 - beta1, beta2, 1 - beta2, rsqrt_bias2, eps, extents, row, ok)
        else:
            k.adam_step(param.numel(), *flat, size, beta1, beta2, rsqrt_bias2, eps, extents, row)
