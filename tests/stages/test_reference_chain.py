"""The whole reference renderer: raw parameters to loss, and the scenes at its edges."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from render import config as config_module
from render import timing
from render.config import RasterConfig
from render.pipeline import contributors, render, resolve_backend
from render.stages.activate import activate
from render.stages.adam import adam_step
from render.stages.ssim import photometric_loss
from render.timing import last_stage_ms
from tests import scenes
from tests.gradients import assert_gradients

RANDOM = torch.tensor([0.2, 0.7, 0.4], dtype=torch.float64)


def picture_of(case: scenes.Case, config: RasterConfig | None = None, background: torch.Tensor = RANDOM, **more):
    return render(activate(case.params, "reference"), case.camera, config or RasterConfig(),
                  background=background.to(case.params.means.dtype), sh_degree=case.sh_degree, backend="reference", **more)


@pytest.mark.parametrize("config, background", [
    (RasterConfig(), 0.0), (RasterConfig(), 1.0), (RasterConfig(), None),
    (RasterConfig(smooth_cutoff=True), None), (RasterConfig(antialiased=True), None),
    (RasterConfig(alpha_max=0.999, transmittance_min=0.01), None)],
    ids=["black", "white", "random", "smooth", "antialiased", "alpha_999"])
def test_N02_gradients_of_every_parameter_through_the_whole_chain(config, background):
    """Principal point off by 30 %, fx != fy, SH 3, colours, transmittance and depth in the loss."""
    case = scenes.make_random(6, 21, 18, 41, off_center=0.3, aspect=1.3, sigma=(1.5, 5.0), opacity=(0.3, 0.98))
    case.params.requires_grad_()
    color = RANDOM if background is None else torch.full((3,), background, dtype=torch.float64)
    rng = torch.Generator().manual_seed(1)
    v = [torch.randn(18, 21, *tail, generator=rng, dtype=torch.float64) for tail in ((3,), (), ())]

    def loss():
        output = picture_of(case, config, color, depth=True)
        assert output.colors.max() > 0.1
        return sum((a * b).sum() for a, b in zip((output.colors, output.transmittances, output.depths), v, strict=True))

    assert_gradients(loss, case.params.trained(), samples=16)


def test_N02_gradients_of_means_beyond_the_jacobian_clamp():
    case = scenes.outside_clamp()
    case.params.requires_grad_()
    weights = torch.randn(28, 40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_gradients(lambda: (picture_of(case).colors * weights).sum(), case.params.trained(), samples=16)


def test_gradients_of_the_training_loss():
    case = scenes.make_random(6, 21, 18, 41, sigma=(1.5, 5.0), opacity=(0.3, 0.9))
    case.params.requires_grad_()
    target = torch.rand(18, 21, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_gradients(lambda: photometric_loss(picture_of(case).colors, target, backend="reference")[0],
                     case.params.trained(), samples=12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", scenes.EDGE_CASES)
def test_edge_scenes_render_and_train_without_a_non_finite_number(name, dtype):
    case = scenes.EDGE_CASES[name](dtype)
    gaussians, tensors = scenes.leaves(case.gaussians())
    output = render(gaussians, case.camera, RasterConfig(), background=RANDOM.to(dtype), sh_degree=case.sh_degree,
                    backend="reference", depth=True)
    for value in (output.colors, output.transmittances, output.depths):
        assert torch.isfinite(value).all()
    assert output.colors.shape == (case.camera.height, case.camera.width, 3)
    assert ((1 - output.transmittances).max() > 0.1) == case.visible
    (output.colors.square().sum() + output.depths.sum() + output.transmittances.sum()).backward()
    for group, tensor in tensors.items():
        assert torch.isfinite(tensor.grad).all(), group
        assert (tensor.grad.abs().max() > 0 if case.visible else (tensor.grad == 0).all()), group


@pytest.mark.parametrize("group", ["means", "quats", "scales", "opacities"])
def test_a_broken_gaussian_is_left_out_and_the_others_train_on(group):
    name = {"means": "nan_mean", "quats": "nan_quat", "scales": "inf_scale", "opacities": "nan_opacity"}[group]
    case = scenes.EDGE_CASES[name]()
    others = torch.arange(len(case.params)) != 3
    whole, without = case.gaussians(), case.gaussians()
    for field in ("means", "quats", "scales", "opacities", "sh"):
        setattr(without, field, getattr(without, field)[others])
    config = dict(background=RANDOM, sh_degree=3, backend="reference")
    torch.testing.assert_close(render(whole, case.camera, RasterConfig(), **config).colors,
                               render(without, case.camera, RasterConfig(), **config).colors, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["behind", "none_visible"])
def test_N21_nothing_in_view_is_background_and_zero_gradient(name):
    case = scenes.EDGE_CASES[name]()
    case.params.requires_grad_()
    output = picture_of(case)
    assert torch.equal(output.colors, RANDOM.expand_as(output.colors))
    assert (output.transmittances == 1).all() and (output.last_ids == -1).all()
    output.colors.sum().backward()
    for group, tensor in case.params.trained().items():
        assert (tensor.grad == 0).all(), group


def test_N01_centroid_and_crop():
    camera = scenes.make_camera(41, 33, off_center=0.2, aspect=1.2)
    case = scenes.single(pixel=(22.3, 14.8), sigma=2.0, camera=camera)
    weights = 1 - picture_of(case).transmittances
    y, x = torch.meshgrid(torch.arange(33) + 0.5, torch.arange(41) + 0.5, indexing="ij")
    assert (weights * x).sum() / weights.sum() == pytest.approx(22.3, abs=0.01)
    assert (weights * y).sum() / weights.sum() == pytest.approx(14.8, abs=0.01)

    case = scenes.make_random(60, 60, 50, 3, overscan=-0.35)
    K = case.camera.K.copy()
    K[0, 2] -= 13
    K[1, 2] -= 7
    crop = replace(case, camera=replace(case.camera, K=K, width=35, height=33))
    full = picture_of(case).colors
    assert (full[7:40, 13:48] - RANDOM).abs().max() > 0.1
    torch.testing.assert_close(picture_of(crop).colors, full[7:40, 13:48], rtol=1e-12, atol=1e-13)


def test_N06_quaternion_length_changes_no_pixel():
    case = scenes.make_random(30, 40, 28, 2)
    images = [picture_of(case.with_params(quats=case.params.quats * f)).colors for f in (0.1, 1.0, 10.0)]
    assert images[1].max() > 0.1
    torch.testing.assert_close(images[0], images[1], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(images[2], images[1], rtol=1e-12, atol=1e-14)


def test_N07_no_constant_of_the_alpha_rule_is_written_in_the_reference():
    """They live in RasterConfig alone; a number typed a second time would drift."""
    constants = re.compile(r"0\.99\b|\b255\b|1e-4|0\.0001|0\.3\b|1\.3\b")
    for path in Path(config_module.__file__).parent.joinpath("reference").glob("*.py"):
        code = re.sub(r'""".*?"""|#[^\n]*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not constants.search(code), f"{path.name}: {constants.search(code)}"


def test_N08_one_opaque_gaussian_covers_its_pixel():
    case = scenes.single(pixel=(20.5, 14.5), opacity=0.9999999, rgb=(0.9, 0.5, 0.1))
    pixel = picture_of(case, background=torch.zeros(3)).colors[14, 20]
    assert (pixel >= 0.99 * torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64) - 1e-9).all()


def test_given_colours_replace_the_harmonics():
    case = scenes.make_random(30, 40, 28, 2)
    white = torch.ones(30, 3, dtype=torch.float64)
    output = picture_of(case, background=torch.zeros(3), colors=white)
    torch.testing.assert_close(output.colors, (1 - output.transmittances)[..., None].expand(-1, -1, 3))
    assert output.splat_colors is white


def test_contributors_counts_what_blends():
    case = scenes.make_random(60, 40, 28, 2)
    output = picture_of(case)
    counts = contributors(output, case.camera, RasterConfig(), "reference")
    assert counts.shape == (28, 40) and counts.dtype == torch.int32
    assert torch.equal(counts > 0, output.last_ids >= 0)
    assert counts.max() >= 5


def test_500_gaussians_train_at_64x48_and_the_loss_falls():
    case = scenes.make_random(500, 64, 48, 1, dtype=torch.float32)
    target = picture_of(scenes.make_random(500, 64, 48, 1, dtype=torch.float32)).colors.detach()
    params = case.with_params(sh0=torch.zeros_like(case.params.sh0)).params.requires_grad_()
    moments = torch.zeros_like(params.sh0), torch.zeros_like(params.sh0)
    losses = []
    for step in range(1, 9):
        output = picture_of(replace(case, params=params))
        loss, _ = photometric_loss(output.colors, target, backend="reference")
        (gradient,) = torch.autograd.grad(loss, params.sh0)
        adam_step(params.sh0, gradient, *moments, step=step, lr=0.1, eps=1e-15, backend="reference")
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    milliseconds = last_stage_ms()
    assert set(milliseconds) == set(timing.STAGES)
    assert all(milliseconds[stage] > 0 for stage in ("project", "sh", "binning", "rasterize", "loss", "adam"))


def test_adam_time_sums_the_parameter_groups_of_one_step():
    for _ in range(2):   # each step begins anew
        with timing.step() as figures:
            for group_ms in (1.0, 2.0, 4.0):
                timing.record("adam", group_ms)
        assert figures == last_stage_ms() and figures["adam"] == 7.0
    timing.record("adam", 3.0)   # outside a step
    assert last_stage_ms()["adam"] == 3.0
    with pytest.raises(ValueError, match="stage is 'paint'"):
        timing.record("paint", 1.0)


class Queue:
    """Marks as a GPU gives them: they may be read once the host has waited for them."""

    def __init__(self) -> None:
        self.now, self.waited = 0.0, 0.0

    def mark(self):
        at, queue = self.now, self

        class Mark:
            def elapsed_time(self, later) -> float:
                assert max(at, later.at) <= queue.waited, "read before the device was there"
                return later.at - at
        mark = Mark()
        mark.at = at
        return mark


def test_on_a_gpu_the_figures_are_those_of_the_step_before_and_of_no_step_that_was_given_up():
    queue = Queue()

    def take(rasterize: float, rest: float, fails: bool = False) -> dict[str, float]:
        with timing.step(queue.mark) as figures:
            with timing.measure("project"):
                queue.now += 1.0
            if fails:
                raise RuntimeError
            queue.waited = queue.now   # the number of intersections is read
            with timing.measure("rasterize"):
                queue.now += rasterize
            queue.now += rest
        return figures

    take(5.0, 2.0)
    with pytest.raises(RuntimeError):
        take(0.0, 0.0, fails=True)
    second, third = take(7.0, 3.0), take(0.0, 0.0)
    assert {n: v for n, v in second.items() if v} == {"project": 1.0, "rasterize": 5.0, "other": 2.0}
    assert {n: v for n, v in third.items() if v} == {"project": 1.0, "rasterize": 7.0, "other": 3.0}


def test_backends_are_named():
    assert resolve_backend("reference") == "reference"
    with pytest.raises(ValueError, match="backend is 'vulkan'; choose one of auto, cuda, cpu, reference"):
        resolve_backend("vulkan")


@pytest.mark.parametrize("field, value", [("cutoff", 0.0), ("alpha_max", 1.0), ("transmittance_min", 0.0),
                                          ("alpha_gradient", "wrong")])
def test_impossible_rules_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        RasterConfig(**{field: value})


def test_camera_resized_renders_the_same_picture_at_another_size():
    case = scenes.make_random(40, 64, 48, 3, sigma=(3, 8))
    half = replace(case, camera=case.camera.resized(32, 24))
    big, small = picture_of(case).colors, picture_of(half, RasterConfig(eps2d=0.3 / 4)).colors
    averaged = big.reshape(24, 2, 32, 2, 3).mean(dim=(1, 3))
    assert (averaged - small).abs().max() < 0.02
    assert np.abs((averaged - RANDOM).numpy()).max() > 0.1
