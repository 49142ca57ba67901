"""Finite differences against autograd, with the guards that keep a gradient test from passing on nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def central_difference(f: Callable[[], Tensor], tensor: Tensor, index: int, eps: float) -> float:
    """(f(x+eps) - f(x-eps)) / 2 eps in one entry of a leaf, which is put back."""
    flat = tensor.detach().view(-1)
    old = flat[index].item()
    values = []
    with torch.no_grad():
        for step in (eps, -eps):
            flat[index] = old + step
            values.append(f().item())
    flat[index] = old
    return (values[0] - values[1]) / (2 * eps)


def assert_gradients(f: Callable[[], Tensor], tensors: dict[str, Tensor], *, eps: float = 1e-6, tolerance: float = 1e-5,
                     samples: int = 24, zero: Iterable[str] = ()) -> dict[str, Tensor]:
    """N09: every tensor's gradient of the scalar f() must be non-zero (except those named in `zero`) and agree with central
    differences in up to `samples` entries, within tolerance * max|gradient|. Returns the gradients.

    The largest entries are always among the samples; the rest are drawn with a fixed seed.
    """
    names = list(tensors)
    gradients = dict(zip(names, torch.autograd.grad(f(), [tensors[n] for n in names]), strict=True))
    rng = torch.Generator().manual_seed(0)
    for name, gradient in gradients.items():
        assert torch.isfinite(gradient).all(), f"{name}: gradient is not finite"
        largest = gradient.abs().max().item()
        if name in zero:
            assert largest == 0, f"{name}: expected no gradient, got {largest}"
            continue
        assert largest > 0, f"{name}: gradient is zero, so that the test would prove nothing"
        flat = gradient.reshape(-1)
        chosen = torch.cat([flat.abs().topk(min(samples // 2, len(flat))).indices.cpu(),
                            torch.randperm(len(flat), generator=rng)[:samples // 2]]).unique()
        for index in chosen.tolist():
            expected = central_difference(f, tensors[name], index, eps)
            got = flat[index].item()
            assert abs(got - expected) <= tolerance * largest, (
                f"{name}[{index}]: gradient {got:.9g}, finite difference {expected:.9g}, largest {largest:.3g}")
    return gradients


def assert_close(got: Tensor, reference: Tensor, relative: float, what: str = "") -> None:
    """max|got - reference| <= relative * max|reference|; a reference of zeros demands zeros."""
    error = (got - reference).abs().max().item() if reference.numel() else 0.0
    scale = reference.abs().max().item() if reference.numel() else 0.0
    assert error <= relative * scale, f"{what}: error {error:.3g} of {scale:.3g}, allowed {relative:g}"
