"""`python -m tests.emulation`: how far the emulated CUDA kernels are from the CPU's in float64, by stage and alpha mode."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from render.backends import cuda
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.stages.adam import adam_step
from render.stages.ssim import photometric_loss
from tests import scenes
from tests.emulation.host import Emulated
from tests.emulation.test_cuda_pictures import run_fused
from tests.stages.test_cpu_contract import TAPPED, noise, run

RULES = {f"{mode}{', smooth' if smooth else ''}": (mode, smooth) for mode in ALPHA_GRADIENTS for smooth in (False, True)}
WAYS: dict[str, tuple[Callable, str]] = {"stages": (run, "pixels"), "fused": (run_fused, "pixels"),
                                         "fused, buckets": (run_fused, "buckets")}


def error(ours: Tensor, theirs: Tensor) -> float:
    """max|ours - theirs| / max|theirs|, as the contract has it."""
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max()) if theirs.abs().max() > 0 else math.inf


def parts(found: tuple) -> dict[str, dict[str, Tensor]]:
    output, gradients, tap = found
    projected = output.projected
    return {
        "project": {name: getattr(projected, name) for name in ("means2d", "conics", "depths", "extents", "compensations")},
        "sh": {"colors": output.splat_colors},
        "binning": {"tile_offsets": output.bins.tile_offsets.double(), "flatten_ids": output.bins.flatten_ids.double()},
        "rasterize": {name: getattr(output, name) for name in ("colors", "transmittances", "depths")},
        "rasterize, backward": {name: getattr(tap, name) for name in TAPPED},
        "whole backward": {name: value for name, value in gradients.items() if name != "background"}}


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    return max(error(ours[name], theirs[name]) for name in theirs)


def alone() -> dict[str, float]:
    """Stages that no rule of compositing touches."""
    image, target = noise((33, 41, 3), 1).sigmoid(), noise((33, 41, 3), 2).sigmoid()
    found = []
    for backend in ("cuda", "cpu"):
        x = image.clone().requires_grad_()
        loss, terms = photometric_loss(x, target, backend=backend)
        loss.backward()
        state = [noise((53, 15, 3), seed).abs() for seed in (3, 4, 5)]
        adam_step(*state[:1], noise((53, 15, 3), 6), *state[1:], step=7, lr=0.03, eps=1e-15, backend=backend)
        found.append(({"loss": loss.detach(), "terms": terms}, {"v_image": x.grad}, {"state": torch.stack(state)}))
    return {name: worst(ours, theirs) for name, ours, theirs in zip(("ssim", "ssim, backward", "adam"), *found)}


def main() -> None:
    """Print both tables; every launch runs under three orders of its threads."""
    case = scenes.make_random(90, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    print("float64, max|CUDA emulated - CPU| / max|CPU|; "
          "37x23 px, 90 Gaussians, principal point off by 30 %, fy/fx 1.3, SH 3\n")
    with cuda.driven_by(Emulated()):
        rows: dict[str, dict[str, float]] = {}
        for rules, (mode, smooth) in RULES.items():
            for way, (runner, backward) in WAYS.items():
                config = RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth, cuda_backward=backward)  # type: ignore
                ours, theirs = (parts(runner(case, backend, config)) for backend in ("cuda", "cpu"))
                rows[f"{rules} | {way}"] = {stage: worst(ours[stage], theirs[stage]) for stage in theirs}
        stages = list(next(iter(rows.values())))
        print("| mode | kernels | " + " | ".join(stages) + " |\n|" + "---|" * (len(stages) + 2))
        for title, figures in rows.items():
            print(f"| {title} | " + " | ".join("equal" if v == 0 else f"{v:.1e}" for v in figures.values()) + " |")
        print("\n" + "; ".join(f"{name} {value:.1e}" for name, value in alone().items()))


if __name__ == "__main__":
    main()
