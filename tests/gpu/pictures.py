"""One picture and its gradients on a backend, as tensors in the host's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from render.backends import cuda
from render.config import RasterConfig
from render.pipeline import render, render_params
from render.stages.activate import activate
from render.types import GradientTap
from tests import scenes
from tests.stages.test_cpu_contract import BACKGROUNDS, TAPPED, noise

PICTURES = ("colors", "transmittances", "depths")
EVERYWHERE = [pytest.param("emulated", marks=pytest.mark.thorough), pytest.param("card", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Atomics add in any order, and nvcc contracts a*b+c, which the CPU's compilers do elsewhere."""


def draw(case: scenes.Case, backend: str, config: RasterConfig, fused: bool) -> dict[str, Tensor]:
    """Pictures, gradients ("v_...") and what a tap saw; all outputs enter the loss."""
    device = cuda.device() if backend == "cuda" else torch.device("cpu")
    dtype, shape = case.params.means.dtype, (case.camera.height, case.camera.width)
    leaves = {k: v.detach().to(device).requires_grad_() for k, v in case.params.trained().items()}
    params = replace(case.params, **leaves, uids=case.params.uids.to(device))
    tap = GradientTap(absolute=True)
    background = torch.tensor(BACKGROUNDS["random"], dtype=dtype, device=device).requires_grad_()
    options = dict(background=background, sh_degree=case.sh_degree, backend=backend, depth=True, tap=tap)
    if fused:
        output = render_params(params, case.camera, config, **options)
    else:
        output = render(activate(params, backend), case.camera, config, **options)
    weights = [noise(s, 1 + i, dtype).to(device) for i, s in enumerate(((*shape, 3), shape, shape))]
    loss = ((output.colors * weights[0]).sum() + (output.transmittances * weights[1]).sum()
            + 0.1 * (output.depths * weights[2]).sum())
    loss.backward()
    found = {name: getattr(output, name) for name in PICTURES}
    leaves["background"] = background
    found |= {f"v_{k}": torch.zeros_like(v) if v.grad is None else v.grad for k, v in leaves.items()}
    found |= {f"tap.{name}": getattr(tap, name) for name in TAPPED}
    return {name: tensor.detach().cpu().double() for name, tensor in found.items()}


def compare(case: scenes.Case, config: RasterConfig, fused: bool) -> None:
    """CUDA against the CPU. In float32 rounding decides at a threshold whether a Gaussian is blended: such pixels are counted
    and few, and gradients are compared where there is none."""
    ours, theirs = (draw(case, backend, config, fused) for backend in ("cuda", "cpu"))
    tolerance = TOLERANCE[case.params.means.dtype]
    if case.visible:
        assert theirs["colors"].max() > 0.1
    assert all(torch.isfinite(tensor).all() for tensor in ours.values())
    off = torch.zeros(case.camera.height, case.camera.width, dtype=torch.bool)
    for name in PICTURES:
        error = (ours[name] - theirs[name]).abs() > tolerance * float(theirs[name].abs().max())
        off |= error.any(-1) if error.ndim == 3 else error
    assert int(off.sum()) <= (0 if tolerance < 1e-6 else max(2, off.numel() // 100)), f"{int(off.sum())} pixels differ"
    if off.any():
        return
    largest = max(float(tensor.abs().max()) for name, tensor in theirs.items() if name.startswith("v_") and tensor.numel())
    for name, want in theirs.items():
        if not name.startswith(("v_", "tap.")) or not want.numel():
            continue
        scale = float(want.abs().max())
        if scale < 1e-6 * largest:   # zero but for rounding, as the quaternions of round ones
            scale = largest
        error = float((ours[name] - want).abs().max())
        assert error <= tolerance * scale, f"{name}: {error:.3g} against {scale:.3g}"
