"""python -m tests.bench --scenes A B C --json FILE: what the CPU kernels take, stage by stage, beside the ceiling.

With --backend cuda: what the CUDA kernels take, beside gsplat's (tests/bench/gpu.py).

Times are medians of runs made one after the other in one process. Ratios compare with the ceiling of the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from render.backends import cpu
from render.backends.signatures import CPU_KERNELS
from render.config import TILE_SIZE, RasterConfig
from render.pipeline import render
from render.stages.activate import activate
from render.stages.adam import adam_step
from render.stages.rasterize import pack
from render.stages.ssim import photometric_loss
from render.types import PARAM_GROUPS
from tests.bench import gpu
from tests.bench.ceiling import Ceiling
from tests.bench.scenes import SIZES, Input, make

RUNS = {"T": 60, "A": 60, "B": 30, "C": 14}
STAGES = {  # stage: beginnings of its kernels' names
    "activate": ("activate",), "project": ("project",), "sh": ("sh",), "binning": ("binning",),
    "rasterize_fwd": ("rasterize_pack", "rasterize_fwd"), "rasterize_bwd": ("rasterize_bwd", "rasterize_gather"),
    "ssim": ("ssim",), "adam": ("adam",)}


class Stopwatch:
    """Sums the wall time of every kernel launch by name."""

    def __init__(self, kernels: cpu.CpuKernels) -> None:
        self.seconds: dict[str, float] = {}
        for name in CPU_KERNELS:
            setattr(kernels, name, self._timed(name, getattr(kernels, name)))

    def _timed(self, name: str, launch: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*values: Any) -> Any:
            start = time.perf_counter()
            result = launch(*values)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result
        return timed

    def stages(self) -> dict[str, float]:
        """Milliseconds by stage since the last call."""
        out = {stage: 1e3 * sum(s for name, s in self.seconds.items() if name.startswith(prefixes))
               for stage, prefixes in STAGES.items()}
        self.seconds.clear()
        return out


def _memory(field: str) -> int:
    """VmRSS or VmHWM in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Bench:
    def __init__(self, given: Input) -> None:
        self.given, self.camera, self.config = given, given.camera, RasterConfig()
        self.background = torch.zeros(3)
        self.gaussians, self.params = given.gaussians(), given.params()
        self.v_colors, self.target = given.v_colors, given.target()
        self.moments = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in self.params.trained().items()}
        self.count = 0

    def leaves(self) -> dict[str, torch.Tensor]:
        g = self.gaussians
        return dict(means=g.means, quats=g.quats, scales=g.scales, opacities=g.opacities, sh=g.sh)

    def forward(self) -> Any:
        return render(self.gaussians, self.camera, self.config, background=self.background, sh_degree=3, backend="cpu")

    def forward_backward(self) -> tuple[float, float]:
        """(seconds of the forward, seconds of both)"""
        for leaf in self.leaves().values():
            leaf.grad = None
        start = time.perf_counter()
        output = self.forward()
        middle = time.perf_counter()
        output.colors.backward(self.v_colors)
        return middle - start, time.perf_counter() - start

    def step(self) -> float:
        """Seconds of a whole training step: activations, picture, L1 + SSIM, backward, Adam on six groups."""
        start = time.perf_counter()
        output = render(activate(self.params, "cpu"), self.camera, self.config, background=self.background, sh_degree=3,
                        backend="cpu")
        loss, _ = photometric_loss(output.colors, self.target, backend="cpu")
        loss.backward()
        self.count += 1
        for name in PARAM_GROUPS:
            parameter = getattr(self.params, name)
            # a learning rate this small leaves the scene as it is, so that every run does the same work
            adam_step(parameter.data, parameter.grad, *self.moments[name], step=self.count, lr=1e-12, eps=1e-15, backend="cpu")
            parameter.grad = None
        return time.perf_counter() - start

    def checks(self) -> dict[str, float]:
        """Loss and L1 norm of each gradient: the figures are of this and not of something easier."""
        self.forward_backward()
        loss = float((self.forward().colors.detach().double() * self.v_colors.double()).sum())
        return {"loss": loss} | {f"v_{k}_l1": float(v.grad.double().abs().sum()) for k, v in self.leaves().items()
                                 if v.grad is not None}

    def work(self, kernels: cpu.CpuKernels) -> dict[str, int]:
        output = self.forward()
        records = pack(kernels, output.projected, output.splat_opacities, output.splat_colors, False)
        work = torch.zeros(2, dtype=torch.int64)
        kernels.rasterize_work(kernels.camera(self.camera, self.config), kernels.raster(self.config), output.bins.tile_offsets,
                               output.bins.flatten_ids, output.bins.rows, records, output.last_ids, work)
        return dict(forward_evaluations=int(work[0]) * TILE_SIZE, backward_evaluations=int(work[1]) * TILE_SIZE,
                    intersections=len(output.bins.flatten_ids), visible=int((output.projected.extents[:, 0] > 0).sum()))


def milliseconds(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def measure(name: str, kernels: cpu.CpuKernels, watch: Stopwatch, ceiling: Ceiling) -> dict[str, Any]:
    bench = Bench(make(name))
    runs = RUNS[name]
    checks, work = bench.checks(), bench.work(kernels)
    bench.step()
    _forget_peak()
    before = _memory("VmRSS")
    bench.forward_backward()
    peak = max(0, _memory("VmHWM") - before)
    watch.stages()
    ceiling.measure()
    pairs, stages_fb, steps, stages_step = [], [], [], []
    for _ in range(runs):
        pairs.append(bench.forward_backward())
        stages_fb.append(watch.stages())
        steps.append(bench.step())
        stages_step.append(watch.stages())
    ceiling.measure()
    threads = cpu.threads()
    stage_ms = {k: median(s[k] for s in (stages_step if k in ("activate", "ssim", "adam") else stages_fb)) for k in STAGES}
    n, pixels = len(bench.params), bench.camera.width * bench.camera.height
    units = dict(activate=n, project=n, sh=n, binning=work["intersections"], rasterize_fwd=work["forward_evaluations"],
                 rasterize_bwd=work["backward_evaluations"], ssim=3 * pixels, adam=59 * n)
    stages = {k: dict(ms=round(ms, 4), evaluations=units[k], evaluations_per_second=round(units[k] / ms * 1e3) if ms else 0)
              for k, ms in stage_ms.items()}
    ratios = {way: round(stages[stage]["evaluations_per_second"] / (threads * ceiling.best[way]), 3)
              for way, stage in (("forward", "rasterize_fwd"), ("backward", "rasterize_bwd"))}
    forwards, both = zip(*pairs)
    return dict(forward_ms=milliseconds(median(forwards)), forward_backward_ms=milliseconds(median(both)),
                step_ms=milliseconds(median(steps)),
                fastest=dict(forward_ms=milliseconds(min(forwards)), forward_backward_ms=milliseconds(min(both)),
                             step_ms=milliseconds(min(steps))),
                runs=runs, threads=threads, stages=stages, work=work, peak_bytes=peak, checks=checks, ratio_to_ceiling=ratios)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--scenes", nargs="+", choices=list(SIZES), default=["A", "B", "C"])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--runs", type=int, default=0, help="runs of each measurement on CUDA; 0 = by the scene's size")
    parser.add_argument("--threads", type=int, default=cpu.threads())
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only save the inputs as .npz")
    arguments = parser.parse_args(words)
    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        for name in arguments.scenes:
            np.savez(arguments.write / f"{name}.npz", **make(name).arrays)
        return 0
    if arguments.backend == "cuda":
        return gpu.main(arguments)
    cpu.set_threads(arguments.threads)
    torch.set_num_threads(arguments.threads)
    kernels, ceiling = cpu.kernels(torch.float32), Ceiling()
    watch = Stopwatch(kernels)
    results = {name: measure(name, kernels, watch, ceiling) for name in arguments.scenes}
    compiler = cpu.compile.find_compiler()
    report = dict(scenes=results, ceiling_evaluations_per_second_one_core=ceiling.best,
                  machine=platform.processor() or platform.machine(), compiler=compiler.version if compiler else None,
                  torch=torch.__version__)
    for name, r in results.items():
        ratio = r["ratio_to_ceiling"]
        times = "  ".join(f"{k} {r[k + '_ms']:.2f}" for k in ("forward", "forward_backward", "step"))
        print(f"{name}: {times} ms  of the ceiling: forward {ratio['forward']:.2f}, backward {ratio['backward']:.2f}")
        print("   " + "  ".join(f"{k} {v['ms']:.2f}" for k, v in r["stages"].items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
