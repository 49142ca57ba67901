"""The bench of the CUDA backend measures what it says, on the emulation; without CUDA it is one sentence."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from render.backends import cuda
from render.backends.signatures import CUDA_KERNELS
from render.config import RasterConfig
from render.pipeline import render
from render.types import Camera, Gaussians
from tests.bench import gpu
from tests.bench.__main__ import main
from tests.emulation.host import Emulated


def rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width, height, **words):
    """gsplat's, as far as the bench asks: our own picture."""
    assert words["eps2d"] == 0.3 and words["packed"] is False and words["tile_size"] == 16 and words["sh_degree"] == 3
    view, K = viewmats[0].double().numpy(), Ks[0].double().numpy()
    camera = Camera(view, K, width, height, words["near_plane"], words["far_plane"])
    output = render(Gaussians(means, quats, scales, opacities, colors), camera, RasterConfig(), background=means.new_zeros(3),
                    sh_degree=3, backend="cpu")
    return output.colors[None], None, {}


@pytest.mark.thorough
def test_every_kernel_is_timed_beside_gsplat_and_both_backwards_agree(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "gsplat", SimpleNamespace(rasterization=rasterization))
    with cuda.driven_by(Emulated(orders=1)):
        assert main(["--backend", "cuda", "--scenes", "T", "--runs", "1", "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())["scenes"]["T"]
    picture = {"project_fwd", "project_bwd", "sh_fwd", "sh_bwd", "binning_count", "rasterize_fwd", "rasterize_bwd"}
    step = {"gaussian_fwd", "gaussian_bwd", "ssim_fwd", "ssim_bwd", "adam_step"}
    assert picture | step <= set(figures["kernels_ms"]) <= set(CUDA_KERNELS)
    assert all(ms > 0 for ms in figures["kernels_ms"].values()) and figures["iterations_per_second"] > 0
    backward = figures["rasterize_backward"]
    assert backward["pixels_ms"] > 0 and backward["buckets_ms"] > 0 and backward["relative_difference"] < 1e-3
    assert backward["checkpoint_bytes"] > 1000
    text = capsys.readouterr().out
    assert "T: forward " in text and "it/s" in text and "MB for" in text
    assert figures["gsplat"]["largest_pixel_difference"] < 1e-4 and "gsplat: forward" in text
    assert "gsplat is not installed" in gpu.as_text("T", figures | {"gsplat": None})


def test_without_gsplat_there_are_no_figures_of_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gsplat", None)
    assert gpu.gsplat_figures(None, 1) is None


def test_without_cuda_the_bench_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(cuda, "problems", lambda: ("this PyTorch is a CPU build: install one that is built for CUDA",))
    assert main(["--backend", "cuda"]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error == "CUDA cannot run here: this PyTorch is a CPU build: install one that is built for CUDA.\n"
