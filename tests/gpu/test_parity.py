"""CUDA draws what the CPU draws, with the gradients that finite differences say; two runs agree but for the order of sums."""

from __future__ import annotations

import math

import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training.trainer import Trainer
from render.backends import cuda
from render.backends.launches import LaunchError
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.pipeline import render
from render.stages.activate import activate
from tests import scenes
from tests.gpu.pictures import EVERYWHERE, compare, draw
from tests.gradients import assert_gradients
from tests.stages.test_cpu_contract import noise
from tests.training.tiny import make_scene

DTYPES = {"float64": torch.float64, "float32": torch.float32}
FEW = ("half_behind", "saturated", "nan_mean", "empty", "stack_257")
"""Edges that are drawn on the emulation too; tests/emulation has all of them."""
SCENES = [pytest.param("emulated", name, marks=pytest.mark.thorough) for name in FEW] + [
    pytest.param("card", name, marks=pytest.mark.gpu) for name in scenes.EDGE_CASES]


@pytest.mark.parametrize("fused", [False, True], ids=["stages", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("way", "name"), SCENES, indirect=["way"])
def test_edge_scenes_equal_the_cpu(way, name, dtype, fused):
    compare(scenes.EDGE_CASES[name](DTYPES[dtype]), RasterConfig(), fused)


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smooth", [False, True], ids=["", "smooth"])
@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("backward", ["pixels", "buckets"])
def test_every_alpha_mode_equals_the_cpu(way, backward, mode, smooth, dtype):
    case = scenes.make_random(90, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999)).to(DTYPES[dtype])
    config = RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth, antialiased=smooth, cuda_backward=backward)
    compare(case, config, fused=not smooth)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_scene_equals_the_cpu(card, dtype):
    """Lists of hundreds, a picture of several thousand tiles' worth of pixels."""
    compare(scenes.make_random(20_000, 640, 360, 5, sigma=(0.5, 8.0)).to(DTYPES[dtype]), RasterConfig(smooth_cutoff=True), True)


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_gradcheck_in_double(way):
    """Central differences on the kernels themselves, no other backend in between."""
    case = scenes.make_random(6, 21, 18, 41, off_center=0.3, aspect=1.3, sigma=(1.5, 5.0), opacity=(0.3, 0.98))
    device = cuda.device()
    params = case.with_params(**{k: v.to(device) for k, v in case.params.trained().items()}).params.requires_grad_()
    weights = [noise((18, 21, *tail), 5 + i).to(device) for i, tail in enumerate(((3,), (), ()))]
    background = torch.tensor([0.2, 0.7, 0.4], dtype=torch.float64, device=device)
    config = RasterConfig(smooth_cutoff=True)

    def loss() -> torch.Tensor:
        output = render(activate(params, "cuda"), case.camera, config, background=background, sh_degree=3, backend="cuda",
                        depth=True)
        assert output.colors.max() > 0.1
        return sum((a * b).sum() for a, b in zip((output.colors, output.transmittances, output.depths), weights, strict=True))

    assert_gradients(loss, params.trained(), samples=16 if way == "card" else 4)


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_N24_two_runs_agree_to_1e_4(way):
    large = dict(n=5000, width=320, height=180) if way == "card" else dict(n=90, width=37, height=23)
    case = scenes.make_random(**large, seed=7).to(torch.float32)
    first, second = (draw(case, "cuda", RasterConfig(), True) for _ in range(2))
    for name, want in first.items():
        assert float((second[name] - want).abs().max()) <= 1e-4 * float(want.abs().max()), name


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_a_training_run_gets_better(way):
    steps = 200 if way == "card" else 8
    config = TrainConfig(iterations=steps, schedule_iterations=30_000,
                         densify=DensifyConfig(start=4, stop=steps, every=5, grad_threshold=2e-5))
    trainer = Trainer(make_scene(3, 12, size=32, points=30), config, backend="cuda")
    losses = []
    for _ in range(steps):
        report = trainer.step()
        losses.append(report.loss)
    trainer.settle()
    told = [loss for loss in losses if math.isfinite(loss)]
    assert min(told[-3:]) < told[0]
    for tensor in trainer.params.trained().values():
        assert tensor.device == cuda.device() and torch.isfinite(tensor).all()


@pytest.mark.gpu
def test_I09_a_launch_beside_the_default_stream_is_refused(card):
    k = cuda.kernels(torch.float32)
    values = [torch.ones(5, *tail, device=card) for tail in ((4,), (3,), ())]
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(LaunchError, match="activate_fwd: .*default stream"):
        k.activate_fwd(5, *values, *k.empty_like(*values))
    k.activate_fwd(5, *values, *k.empty_like(*values))


@pytest.mark.gpu
def test_I12_a_tensor_of_the_host_is_refused(card):
    k = cuda.kernels(torch.float32)
    values = [torch.ones(5, *tail, device=card) for tail in ((4,), (3,), ())]
    with pytest.raises(LaunchError, match="activate_fwd: log_scales must be a contiguous CUDA:"):
        k.activate_fwd(5, values[0], values[1].cpu(), values[2], *k.empty_like(*values))
