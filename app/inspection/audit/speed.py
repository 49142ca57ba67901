"""How long a rasterizer takes, forward and backward, at sizes that grow while it keeps up."""

from __future__ import annotations

import time

import numpy as np
import torch

from app.inspection.audit import probes
from app.inspection.audit.target import Target
from app.inspection.audit.types import AuditError, Probe, Speed

SIZES = ((500, 96, 72), (5_000, 320, 240), (50_000, 640, 480), (500_000, 1280, 960))
"""(Gaussians, width, height)."""
PATIENCE = 8.0
"""Seconds that a size may be expected to take, were the cost that of all Gaussians at all pixels."""
REPEATS = 3


def scattered(count: int, width: int, height: int, seed: int = 0) -> Probe:
    """Gaussians all over a picture, of 1 to 4 px, translucent."""
    rng = np.random.default_rng(seed)
    camera = probes.plain_camera(width, height, fx=float(width), fy=float(width))
    quats = rng.standard_normal((count, 4))
    return probes.place("speed", camera, rng.uniform(0, 1, (count, 2)) * [width, height], rng.uniform(2, 6, count),
                        rng.uniform(1, 4, (count, 3)), rng.uniform(0.1, 0.9, count), rng.uniform(0.2, 0.8, (count, 3)),
                        quats=quats / np.linalg.norm(quats, axis=1, keepdims=True),
                        rest=0.1 * rng.standard_normal((count, 15, 3)))


def measure(target: Target) -> list[Speed]:
    """Medians of three, after one run to warm up; a size that would take too long, and all above it, are left out."""
    done: list[Speed] = []
    for count, width, height in SIZES:
        if done:
            last = done[-1]
            growth = count * width * height / (last.gaussians * last.width * last.height)
            if (last.forward_ms + last.backward_ms) / 1000 * min(growth, 40.0) > PATIENCE:
                break
        probe = scattered(count, width, height)
        try:
            times = [_once(target, probe) for _ in range(REPEATS + 1)][1:]
        except (AuditError, RuntimeError):   # out of memory, or a limit of its own: smaller sizes stand
            break
        forward, backward = np.median(np.array(times), axis=0).tolist()
        done.append(Speed(count, width, height, 1000 * forward, 1000 * backward))
    return done


def _once(target: Target, probe: Probe) -> tuple[float, float]:
    """Seconds of (forward, backward)."""
    leaves = target.leaves(probe)
    _wait(target)
    start = time.perf_counter()
    loss = target.call(leaves, probe).sum()
    _wait(target)
    middle = time.perf_counter()
    torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    _wait(target)
    return middle - start, time.perf_counter() - middle


def _wait(target: Target) -> None:
    if target.device.type == "cuda":
        torch.cuda.synchronize()
