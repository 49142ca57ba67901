"""Front-to-back compositing as one autograd Function: the gradient that everything else must agree with, in ten lines.

    color = sum_k w_k c_k,   w_k = T_k alpha_k,   T_k = prod_{j<k} (1 - alpha_j)                               (1)

c_k stands in its own term only, so dcolor/dc_k = w_k. alpha_k stands in w_k and, through (1 - alpha_k), in every term
behind it: dw_m/dalpha_k = -w_m / (1 - alpha_k) for m > k. Contracted with g = dL/dcolor:

    dL/dalpha_k = T_k g.c_k - (sum_{m>k} w_m g.c_m) / (1 - alpha_k)                                             (2)

The subtracted sum is what becoming more opaque hides. A background is one more sample with alpha 1 behind all others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Composite(torch.autograd.Function):
    """composite() with the gradient (2): cumprod forwards, a reversed cumsum backwards."""

    @staticmethod
    def forward(ctx: Any, alphas: Tensor, colors: Tensor) -> Tensor:
        behind = torch.cumprod(1 - alphas, dim=-1)
        before = torch.cat([torch.ones_like(behind[..., :1]), behind[..., :-1]], dim=-1)  # exclusive product
        ctx.save_for_backward(alphas, colors, before)
        return torch.einsum("...k,...kc->...c", before * alphas, colors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (v,) = gradients
        alphas, colors, before = ctx.saved_tensors
        weights = before * alphas
        pull = torch.einsum("...c,...kc->...k", v, colors)                       # g . c_k
        shares = weights * pull
        hidden = shares.flip(-1).cumsum(-1).flip(-1) - shares                    # sum over m > k
        return before * pull - hidden / (1 - alphas), weights.unsqueeze(-1) * v.unsqueeze(-2)


def composite(alphas: Tensor, colors: Tensor) -> Tensor:
    """[...,C] from alphas [...,K] in [0,1) and colours [...,K,C], sorted front to back."""
    return Composite.apply(alphas, colors)  # pyright: ignore[reportReturnType]
