"""Stage adam: the update."""

from __future__ import annotations

from torch import Tensor

from render import timing
from render.reference.adam import adam_step as reference_adam_step


def adam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float,
              beta1: float = 0.9, beta2: float = 0.999, eps: float, backend: str) -> None:
    """In place; see render/reference/adam.py."""
    with timing.measure("adam", add=True):
        if backend == "reference":
            reference_adam_step(param, grad, exp_avg, exp_avg_sq, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
            return
        raise ValueError(f"adam: backend {backend!r} is not built; choose reference")
