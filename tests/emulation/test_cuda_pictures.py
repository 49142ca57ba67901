"""The whole CUDA path with no GPU: the Python side above the launches, the kernels run on the host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from render.backends import cuda
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.pipeline import contributors, render_params
from render.stages.ssim import photometric_loss
from render.types import GradientTap
from tests import scenes
from tests.emulation.host import Emulated
from tests.stages.test_cpu_contract import BACKGROUNDS, TAPPED, assert_close, noise, run


@pytest.fixture(scope="module")
def emulated():
    driver = Emulated(orders=1)   # the kernels by themselves are run in three orders, see the other files
    with cuda.driven_by(driver):
        yield driver


def run_fused(case: scenes.Case, backend: str, config: RasterConfig):
    """As run(), but from the raw parameters: on CUDA one kernel makes the ellipses."""
    params = replace(case.params, **{k: v.detach().clone().requires_grad_() for k, v in case.params.trained().items()})
    dtype, tap = params.means.dtype, GradientTap(absolute=True)
    background = torch.tensor(BACKGROUNDS["random"], dtype=dtype)
    output = render_params(params, case.camera, config, background=background, sh_degree=case.sh_degree, backend=backend,
                           depth=True, tap=tap)
    shape = (case.camera.height, case.camera.width)
    loss = ((output.colors * noise((*shape, 3), 1, dtype)).sum() + (output.transmittances * noise(shape, 2, dtype)).sum()
            + 0.1 * (output.depths * noise(shape, 3, dtype)).sum())
    loss.backward()
    return output, {name: t.grad if t.grad is not None else torch.zeros_like(t) for name, t in params.trained().items()}, tap


def compare(case: scenes.Case, config: RasterConfig, tolerance: float, runner=run) -> None:
    ours, our_gradients, our_tap = runner(case, "cuda", config)
    theirs, their_gradients, their_tap = runner(case, "cpu", config)
    assert torch.equal(ours.bins.tile_offsets, theirs.bins.tile_offsets)
    assert torch.equal(ours.bins.flatten_ids, theirs.bins.flatten_ids)
    assert torch.equal(ours.last_ids, theirs.last_ids)
    if case.visible:
        assert theirs.colors.max() > 0.1
    for name in ("colors", "transmittances", "depths"):
        assert_close(name, getattr(ours, name), getattr(theirs, name), tolerance, case.visible and name != "depths")
    for name in ("means2d", "conics", "depths", "extents", "compensations"):
        assert_close(name, getattr(ours.projected, name), getattr(theirs.projected, name), tolerance, case.visible)
    largest = max(float(g.abs().max()) for g in their_gradients.values() if g.numel()) if case.visible else 0.0
    for name, want in their_gradients.items():
        if not case.visible and name != "background":
            assert not our_gradients[name].any(), name
        elif want.numel() and float(want.abs().max()) < 1e-12 * largest:   # zero but for rounding, as quats of round ones
            assert float(our_gradients[name].abs().max()) < 1e-12 * largest, name
        else:
            assert_close("v_" + name, our_gradients[name], want, tolerance, case.visible and want.numel() > 0)
    for name in TAPPED if case.visible else ():
        assert_close(name, getattr(our_tap, name), getattr(their_tap, name), tolerance)


@pytest.mark.parametrize("runner", [run, run_fused], ids=["stages", "fused"])
@pytest.mark.parametrize("rules", [(mode, smooth) for mode in ALPHA_GRADIENTS for smooth in (False, True)],
                         ids=lambda rules: f"{rules[0]}{'_smooth' if rules[1] else ''}")
def test_pictures_and_gradients_equal_the_cpu_in_every_mode(emulated, rules, runner):
    case = scenes.make_random(90, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    compare(case, RasterConfig(alpha_gradient=rules[0], smooth_cutoff=rules[1], antialiased=rules[1]), 1e-10, runner)


@pytest.mark.parametrize("runner, backward", [(run, "pixels"), (run_fused, "pixels"), (run_fused, "buckets")],
                         ids=["stages", "fused", "buckets"])
@pytest.mark.parametrize("name", scenes.EDGE_CASES)
def test_pictures_and_gradients_equal_the_cpu_on_edge_scenes(emulated, name, runner, backward):
    emulated.launched.clear()
    compare(scenes.EDGE_CASES[name](), RasterConfig(cuda_backward=backward), 1e-10, runner)
    assert ("rasterize_bwd" in emulated.launched) == (backward == "pixels")


def test_wide_tile_keys_give_the_same_picture(emulated, monkeypatch):
    case = scenes.make_random(60, 37, 23, 2)
    emulated.launched.clear()
    monkeypatch.setattr("render.stages.binning.NARROW_TILES", 1)
    compare(case, RasterConfig(), 1e-10)
    assert {"binning_emit32", "binning_ranges32"} <= set(emulated.launched) and "binning_emit16" not in emulated.launched


@pytest.mark.parametrize("runner", [run, run_fused], ids=["stages", "fused"])
@pytest.mark.parametrize("seed", [21, 22, 23])
def test_single_precision_equals_the_cpu_but_for_pixels_at_a_threshold(emulated, seed, runner):
    """Where rounding decides whether a Gaussian is blended the pictures may differ: such pixels are counted and few."""
    case = scenes.make_random(90, 37, 23, seed, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999)).to(torch.float32)
    config = RasterConfig(smooth_cutoff=True)   # then only the stopping rule is a step
    ours, our_gradients, _ = runner(case, "cuda", config)
    theirs, their_gradients, _ = runner(case, "cpu", config)
    near = ours.last_ids != theirs.last_ids
    assert int(near.sum()) <= 2
    assert theirs.colors.max() > 0.1
    for name in ("colors", "transmittances", "depths"):
        assert_close(name, getattr(ours, name)[~near], getattr(theirs, name)[~near], 2e-5)
    if not near.any():
        for name, want in their_gradients.items():
            assert_close("v_" + name, our_gradients[name], want, 2e-4)


@pytest.mark.parametrize("mode", ["saturated", "none_visible", "not_a_tile_multiple"])
def test_contributors_are_counted_as_on_the_cpu(emulated, mode):
    case = scenes.EDGE_CASES[mode]()
    config = RasterConfig()
    counts = [contributors(run(case, backend, config)[0], case.camera, config, backend) for backend in ("cuda", "cpu")]
    assert torch.equal(*counts) and bool(counts[0].any()) == case.visible


@pytest.mark.parametrize("kind", ["l1_ssim", "mse"])
def test_the_loss_stays_on_the_device_and_equals_the_cpu(emulated, kind):
    target, results = torch.rand(21, 37, 3, dtype=torch.float64), []
    for backend in ("cuda", "cpu"):
        image = noise((21, 37, 3), 4).sigmoid().requires_grad_()
        loss, terms = photometric_loss(image, target, kind=kind, backend=backend)
        (2.5 * loss).backward()
        results.append((loss, terms, image.grad))
    for name, ours, theirs in zip(("loss", "terms", "v_image"), *results):
        assert_close(name, ours, theirs, 1e-12)
