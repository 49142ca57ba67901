"""Adam (Kingma & Ba 2015), the arithmetic of torch.optim.Adam without weight decay."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def adam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float,
              beta1: float = 0.9, beta2: float = 0.999, eps: float, extents: Tensor | None = None) -> None:
    """One update in place of param, exp_avg and exp_avg_sq (all of grad's shape); step counts from 1.

        m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
        param -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)

    With extents [N,2] of the picture, rows of Gaussians that it does not show (extents 0) keep param, m and v: neither do
    they move on by old momentum, nor does their momentum fade (sparse Adam, Mallick et al. 2024). The bias correction goes
    by the step all the same.
    """
    if step < 1:
        raise ValueError(f"step is {step}; Adam counts steps from 1")
    if extents is not None:
        seen = extents[:, 0] > 0
        rows = [t[seen] for t in (param, exp_avg, exp_avg_sq)]
        adam_step(rows[0], grad[seen], *rows[1:], step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
        for whole, part in zip((param, exp_avg, exp_avg_sq), rows):
            whole[seen] = part
        return
    exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denominator = exp_avg_sq.sqrt().div_(math.sqrt(1 - beta2**step)).add_(eps)
    param.addcdiv_(exp_avg, denominator, value=-lr / (1 - beta1**step))
