"""python -m tests.bench --backend cuda: what the CUDA kernels take, and gsplat on the same inputs where it is installed.

Milliseconds are medians of CUDA events' differences, all runs one after the other in one process; it/s is wall time over
many steps with one wait at the end. On the host's emulation, which tests use, wall time stands for the events.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from render.backends import cuda, nvcc
from render.backends.compile import CompileError
from render.backends.signatures import BUCKET, CUDA_KERNELS, bucket_bound, bucket_bytes
from render.config import TILE_SIZE, RasterConfig
from render.pipeline import render, render_params
from render.stages.adam import adam_step
from render.stages.binning import bin_tiles
from render.stages.ssim import photometric_loss
from render.types import PARAM_GROUPS, RenderOutput
from tests.bench.scenes import Input, make

RUNS = {"T": 20, "A": 200, "B": 200, "C": 100}
BACKWARDS = ("pixels", "buckets")


class Clock:
    """Marks on the device's time line."""

    def __init__(self, device: torch.device) -> None:
        self.events = device.type == "cuda"

    def mark(self) -> Any:
        if not self.events:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        if self.events:
            torch.cuda.synchronize()

    def between(self, start: Any, end: Any) -> float:
        """Milliseconds; wait() first."""
        return start.elapsed_time(end) if self.events else 1e3 * (end - start)

    def median(self, work: Callable[[], Any], runs: int) -> float:
        """Median milliseconds of work(), after two runs that do not count."""
        marks = []
        for _ in range(runs + 2):
            start = self.mark()
            work()
            marks.append((start, self.mark()))
        self.wait()
        return median(self.between(*pair) for pair in marks[2:])


class Launches:
    """Marks around every launch of a kernel in the block."""

    def __init__(self, kernels: cuda.CudaKernels, clock: Clock) -> None:
        self.kernels, self.clock = kernels, clock
        self.marks: dict[str, list[tuple[Any, Any]]] = {}
        self.originals = {name: getattr(kernels, name) for name in CUDA_KERNELS}

    def __enter__(self) -> Launches:
        for name, launch in self.originals.items():
            setattr(self.kernels, name, self._timed(name, launch))
        return self

    def __exit__(self, *_: object) -> None:
        for name, launch in self.originals.items():
            setattr(self.kernels, name, launch)

    def _timed(self, name: str, launch: Callable[..., None]) -> Callable[..., None]:
        def timed(*values: Any) -> None:
            start = self.clock.mark()
            launch(*values)
            self.marks.setdefault(name, []).append((start, self.clock.mark()))
        return timed

    def milliseconds(self, runs: int) -> dict[str, float]:
        """By kernel, of all its launches in the median of `runs` equal runs."""
        self.clock.wait()
        found = {}
        for name in (kernel for kernel in CUDA_KERNELS if kernel in self.marks):
            taken = [self.clock.between(*pair) for pair in self.marks[name]]
            launches = len(taken) // runs
            found[name] = median(sum(taken[run * launches:(run + 1) * launches]) for run in range(runs))
        return found


class GpuBench:
    def __init__(self, given: Input, clock: Clock) -> None:
        device = cuda.device()
        self.clock, self.camera, self.config = clock, given.camera, RasterConfig()
        self.k = cuda.kernels(torch.float32)
        self.background = torch.zeros(3, device=device)
        g = given.gaussians()
        names = ("means", "quats", "scales", "opacities", "sh")
        self.gaussians = replace(g, **{k: getattr(g, k).detach().to(device).requires_grad_() for k in names})
        self.leaves = {k: getattr(self.gaussians, k) for k in names}
        p = given.params()
        self.params = replace(p, **{k: v.detach().to(device).requires_grad_() for k, v in p.trained().items()})
        self.v_colors, self.target = given.v_colors.to(device), given.target().to(device)
        self.moments = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in self.params.trained().items()}
        self.count = 0

    def forward(self) -> RenderOutput:
        return render(self.gaussians, self.camera, self.config, background=self.background, sh_degree=3, backend="cuda")

    def forward_backward(self) -> None:
        for leaf in self.leaves.values():
            leaf.grad = None
        self.forward().colors.backward(self.v_colors)

    def step(self) -> None:
        """A whole training step: picture from raw parameters, L1 + SSIM, backward, Adam on six groups."""
        output = render_params(self.params, self.camera, self.config, background=self.background, sh_degree=3, backend="cuda")
        loss, _ = photometric_loss(output.colors, self.target, backend="cuda")
        loss.backward()
        self.count += 1
        for name in PARAM_GROUPS:
            parameter = getattr(self.params, name)
            # a learning rate this small leaves the scene as it is, so that every run does the same work
            adam_step(parameter.data, parameter.grad, *self.moments[name], step=self.count, lr=1e-12, eps=1e-15, backend="cuda")
            parameter.grad = None

    def steps_per_second(self, runs: int) -> float:
        self.step()
        self.clock.wait()
        start = time.perf_counter()
        for _ in range(runs):
            self.step()
        self.clock.wait()
        return runs / (time.perf_counter() - start)

    @torch.no_grad()
    def binning(self, runs: int) -> float:
        o = self.forward()
        return self.clock.median(lambda: bin_tiles(o.projected, o.splat_opacities, self.camera, self.config, "cuda"), runs)

    @torch.no_grad()
    def backwards(self, runs: int) -> dict[str, Any]:
        """Both backward passes of the rasterizer on the same picture, called directly, and how far they are apart."""
        o, k = self.forward(), self.k
        view, rules, n = k.camera(self.camera, self.config), k.raster(self.config), len(self.params)
        tiles, pairs = self.camera.tiles[0] * self.camera.tiles[1], len(o.bins.flatten_ids)
        lists = (o.bins.tile_offsets, o.bins.flatten_ids)
        splats = (o.projected.means2d, o.projected.conics, o.splat_opacities, o.splat_colors, None)
        found: dict[str, list[Tensor]] = {}

        def outputs(name: str) -> list[Tensor]:
            found[name] = [k.zeros(n, 2), k.zeros(n, 3), k.zeros(n), k.zeros(n, 3)]
            return found[name]

        def by_pixels() -> None:
            k.rasterize_bwd(view, rules, self.background, *lists, *splats, o.transmittances, o.last_ids, self.v_colors, None,
                            None, *outputs("pixels"), None, None)

        def by_buckets() -> None:
            per_tile = (torch.diff(lists[0]) + BUCKET - 1) // BUCKET
            offsets = torch.cat([per_tile.new_zeros(1), torch.cumsum(per_tile, 0)])
            size = bucket_bound(pairs, tiles)
            owners, states = k.empty(size, dtype=torch.int32), k.empty(size, 2, TILE_SIZE**2)
            k.rasterize_buckets_states(view, rules, self.background, *lists, *splats, offsets, o.transmittances, o.last_ids,
                                       self.v_colors, None, None, owners, states)
            k.rasterize_buckets_bwd(view, rules, *lists, *splats, offsets, owners, states, o.last_ids, self.v_colors, None,
                                    *outputs("buckets"), None, None)

        figures: dict[str, Any] = {f"{name}_ms": self.clock.median(work, runs)
                                   for name, work in (("pixels", by_pixels), ("buckets", by_buckets))}
        apart = max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) for a, b in zip(*found.values(), strict=True))
        return figures | {"checkpoint_bytes": bucket_bytes(pairs, tiles), "relative_difference": apart, "intersections": pairs}


def gsplat_figures(bench: GpuBench, runs: int) -> dict[str, Any] | None:
    """gsplat's rasterization() with our settings on our inputs; None where it is not installed."""
    try:
        rasterization = importlib.import_module("gsplat").rasterization
    except ImportError:
        return None
    device, camera, leaves = bench.background.device, bench.camera, bench.leaves
    viewmats, Ks = (torch.tensor(m, dtype=torch.float32, device=device)[None] for m in (camera.viewmat, camera.K))

    def forward() -> Tensor:
        colors, _, _ = rasterization(
            leaves["means"], leaves["quats"], leaves["scales"], leaves["opacities"], leaves["sh"], viewmats, Ks, camera.width,
            camera.height, near_plane=camera.near, far_plane=camera.far, eps2d=bench.config.eps2d, sh_degree=3, packed=False,
            tile_size=16)
        return colors[0]

    def both() -> None:
        for leaf in leaves.values():
            leaf.grad = None
        forward().backward(bench.v_colors)

    ours = bench.forward().colors
    return {"forward_ms": bench.clock.median(forward, runs), "forward_backward_ms": bench.clock.median(both, runs),
            "largest_pixel_difference": float((forward() - ours).abs().max().detach())}


def measure(name: str, clock: Clock, runs: int) -> dict[str, Any]:
    bench = GpuBench(make(name), clock)
    figures: dict[str, Any] = {
        "forward_ms": clock.median(bench.forward, runs), "forward_backward_ms": clock.median(bench.forward_backward, runs),
        "step_ms": clock.median(bench.step, runs), "iterations_per_second": bench.steps_per_second(runs)}
    if "cuda_backward" in {f.name for f in fields(RasterConfig)}:
        for way in BACKWARDS:
            bench.config = replace(RasterConfig(), **{"cuda_backward": way})
            figures[f"iterations_per_second_{way}"] = bench.steps_per_second(runs)
        bench.config = RasterConfig()
    with Launches(bench.k, clock) as launches:
        for _ in range(runs):
            bench.forward_backward()
            bench.step()
    figures["kernels_ms"] = launches.milliseconds(runs)
    figures["binning_ms"] = bench.binning(runs)
    figures["rasterize_backward"] = bench.backwards(runs)
    figures["gsplat"] = gsplat_figures(bench, runs)
    return figures


def card() -> dict[str, Any]:
    compiler = nvcc.find_nvcc()
    real = cuda.device().type == "cuda"
    return {"gpu": torch.cuda.get_device_name(cuda.device()) if real else "none, the times of the emulation mean nothing",
            "torch": torch.__version__, "cuda": torch.version.cuda, "nvcc": compiler.version if compiler else None}


def as_text(name: str, r: dict[str, Any]) -> str:
    pair = r["rasterize_backward"]
    times = "  ".join(f"{key} {r[f'{key}_ms']:.3f}" for key in ("forward", "forward_backward", "step"))
    lines = [f"{name}: {times} ms  {r['iterations_per_second']:.1f} it/s" + "".join(
                 f"  {way} {r[key]:.1f} it/s" for way in BACKWARDS if (key := f"iterations_per_second_{way}") in r)]
    if r["gsplat"] is None:
        lines.append("   gsplat is not installed")
    else:
        lines.append("   gsplat: forward {forward_ms:.3f}  forward_backward {forward_backward_ms:.3f} ms  largest difference "
                     "of a pixel {largest_pixel_difference:.1e}".format(**r["gsplat"]))
    lines.append("   " + "  ".join(f"{kernel} {ms:.3f}" for kernel, ms in r["kernels_ms"].items()))
    lines.append(f"   binning with its sorts and the host's wait {r['binning_ms']:.3f}")
    lines.append(f"   rasterizer's backward: pixels {pair['pixels_ms']:.3f}  buckets {pair['buckets_ms']:.3f} ms with "
                 f"checkpoints of {pair['checkpoint_bytes'] / 1e6:.1f} MB for {pair['intersections']:,} intersections; they "
                 f"differ by {pair['relative_difference']:.1e}")
    return "\n".join(lines)


def main(arguments: argparse.Namespace) -> int:
    """0, or 2 with one sentence where CUDA cannot run."""
    if not cuda.available():
        print(f"CUDA cannot run here: {cuda.problem()}.", file=sys.stderr)
        return 2
    try:
        cuda.prepare(lambda text: None)
    except CompileError as error:
        print(f"CUDA cannot run here: {error}", file=sys.stderr)
        return 2
    about, clock = card(), Clock(cuda.device())
    print("  ".join(f"{key} {value}" for key, value in about.items()))
    results = {}
    for name in arguments.scenes:
        results[name] = measure(name, clock, arguments.runs or RUNS[name])
        print(as_text(name, results[name]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(about | {"scenes": results}, indent=1) + "\n")
    return 0
