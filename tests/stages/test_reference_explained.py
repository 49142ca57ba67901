"""The readable explanations agree with the renderer: compositing Function, recompute form, one pixel, AbsGS, the tap."""

from __future__ import annotations

import pytest
import torch

from render.config import ALPHA_GRADIENTS, RasterConfig
from render.pipeline import render
from render.reference.absgrad import absolute_means2d_gradient
from render.reference.composite import composite
from render.reference.pixel import pixel_contributions
from render.reference.rasterize import rasterize
from render.reference.recompute import indices_onscreen, rasterize_recompute
from render.types import GradientTap
from tests import scenes
from tests.gradients import assert_close
from tests.stages.test_reference_rasterize import BACKGROUND, prepared


def random_like(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed), dtype=tensor.dtype)


# ---------------------------------------------------------------- the compositing Function
def test_composite_gradcheck():
    rng = torch.Generator().manual_seed(0)
    alphas = (torch.rand(3, 5, generator=rng, dtype=torch.float64) * 0.98).requires_grad_()
    colors = torch.rand(3, 5, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(composite, (alphas, colors))
    image = composite(alphas, colors)
    T, by_hand = torch.ones(3, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    for k in range(5):
        by_hand = by_hand + (T * alphas[:, k])[:, None] * colors[:, k]
        T = T * (1 - alphas[:, k])
    torch.testing.assert_close(image, by_hand, rtol=1e-14, atol=1e-15)


def test_composite_of_a_pixels_contributors_is_the_rendered_pixel_and_its_gradient():
    case, config = scenes.make_random(60, 40, 30, 2), RasterConfig()
    projected, colors, opacities, bins = prepared(case, config)
    picture, *_ = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND, config)
    seen = pixel_contributions(projected, colors, opacities, bins, case.camera, BACKGROUND, config, 4, 4)
    assert len(seen) >= 3
    # the background is one more sample, all but opaque; 1 - alpha must not be 0 in the gradient
    stacked = torch.cat([colors[seen.ids], BACKGROUND[None] / (1 - 1e-12)])
    pixel = composite(torch.cat([seen.alphas, torch.tensor([1 - 1e-12], dtype=torch.float64)]), stacked)
    torch.testing.assert_close(pixel, picture[4, 4], rtol=1e-10, atol=0)
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ours, = torch.autograd.grad(pixel @ v, colors, retain_graph=True)
    theirs, = torch.autograd.grad(picture[4, 4] @ v, colors)
    assert theirs.abs().max() > 0
    assert_close(ours, theirs, 1e-10)


# ---------------------------------------------------------------- the recompute form
@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("name", ["random", "saturated", "needles", "depth_ties", "half_behind", "one_pixel_wide",
                                  "stack_257"])
def test_recompute_form_equals_autograd(name, mode, smooth):
    case = scenes.make_random(60, 40, 30, 2) if name == "random" else scenes.EDGE_CASES[name]()
    config = RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth)
    projected, colors, opacities, bins = prepared(case, config)
    background = BACKGROUND.clone().requires_grad_()
    inputs = [projected.means2d, projected.conics, opacities, colors, background]
    results = []
    for function in (rasterize, rasterize_recompute):
        picture, transmittances = function(projected, colors, opacities, bins, case.camera, background, config)[:2]
        assert picture.max() > 0.1
        gradients = torch.autograd.grad(
            (picture * random_like(picture, 1)).sum() + (transmittances * random_like(transmittances, 2)).sum(), inputs)
        results.append((picture, transmittances, *gradients))
    for what, reference, got in zip(("picture", "T", "means2d", "conics", "opacities", "colors", "background"), *results,
                                    strict=True):
        assert reference.abs().max() > 0
        assert_close(got, reference, 1e-10, what)


@pytest.mark.parametrize("name", ["none_visible", "transparent", "empty", "behind"])
def test_recompute_form_of_nothing_is_background_and_zero_gradients(name):
    case = scenes.EDGE_CASES[name]()
    projected, colors, opacities, bins = prepared(case, RasterConfig())
    picture, _ = rasterize_recompute(projected, colors, opacities, bins, case.camera, BACKGROUND, RasterConfig())
    assert torch.equal(picture, BACKGROUND.expand_as(picture))
    for gradient in torch.autograd.grad(picture.sum(), [projected.means2d, projected.conics, opacities, colors]):
        assert (gradient == 0).all()


def test_indices_onscreen_lead_home():
    case = scenes.half_behind()
    projected, *_ = prepared(case, RasterConfig())
    home = indices_onscreen(projected)
    assert set(home.tolist()) == set(range(1, 24, 2))
    assert (torch.diff(projected.depths[home]) >= 0).all()


# ---------------------------------------------------------------- one pixel taken apart
@pytest.mark.parametrize("config", [RasterConfig(), RasterConfig(smooth_cutoff=True), RasterConfig(alpha_max=0.6),
                                    RasterConfig(antialiased=True)], ids=["default", "smooth", "alpha_06", "aa"])
@pytest.mark.parametrize("name", ["random", "saturated", "one_pixel_wide", "not_a_tile_multiple"])
def test_contributions_composite_to_the_rendered_pixel(name, config):
    case = scenes.make_random(120, 40, 30, 4) if name == "random" else scenes.EDGE_CASES[name]()
    projected, colors, opacities, bins = prepared(case, config)
    picture, transmittances, depths, last = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND, config,
                                                      depth=True)
    most = 0
    for y in range(0, case.camera.height, 5):
        for x in range(0, case.camera.width, 5):
            seen = pixel_contributions(projected, colors, opacities, bins, case.camera, BACKGROUND, config, x, y)
            torch.testing.assert_close(seen.composite(), picture[y, x].detach(), rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(seen.transmittance, transmittances[y, x].detach(), rtol=1e-12, atol=0)
            torch.testing.assert_close(seen.weights @ seen.depths, depths[y, x].detach(), rtol=1e-12, atol=1e-14)
            assert (torch.diff(seen.depths) >= 0).all()
            assert torch.equal(seen.clamped, seen.raw_alphas > config.alpha_max)
            torch.testing.assert_close(seen.raw_alphas, opacities[seen.ids].detach() * seen.powers.exp())
            if len(seen):
                assert seen.ids[-1] == bins.flatten_ids[last[y, x].long()]
                assert seen.strongest() == seen.ids[seen.weights.argmax()]
            else:
                assert last[y, x] == -1 and seen.strongest() is None
            most = max(most, len(seen))
    assert most >= 3


def test_stopped_by_names_the_gaussian_that_the_stopping_rule_refused():
    case = scenes.saturated()
    projected, colors, opacities, bins = prepared(case, RasterConfig())
    seen = pixel_contributions(projected, colors, opacities, bins, case.camera, BACKGROUND, RasterConfig(), 10, 10)
    assert seen.stopped_by is not None and seen.stopped_by not in seen.ids.tolist()
    assert projected.depths[seen.stopped_by] >= seen.depths[-1]
    far = pixel_contributions(projected, colors, opacities, bins, case.camera, BACKGROUND, RasterConfig(), 0, 19)
    assert far.stopped_by is None


def test_pixel_outside_the_image_is_named():
    case = scenes.make_random(5, 40, 30)
    projected, colors, opacities, bins = prepared(case, RasterConfig())
    with pytest.raises(ValueError, match=r"pixel \(40, 3\) lies outside the 40x30 image"):
        pixel_contributions(projected, colors, opacities, bins, case.camera, BACKGROUND, RasterConfig(), 40, 3)


# ---------------------------------------------------------------- AbsGS and the tap
def test_absgrad_is_the_sum_over_pixels_of_absolute_gradients():
    case, config = scenes.make_random(10, 17, 6, 5, sigma=(1, 4)), RasterConfig()
    projected, colors, opacities, bins = prepared(case, config)
    picture, transmittances, depths, _ = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND, config,
                                                   True)
    v = [random_like(t, i) for i, t in enumerate((picture, transmittances, depths))]
    expected, signed = torch.zeros_like(projected.means2d), torch.zeros_like(projected.means2d)
    for y in range(6):
        for x in range(17):
            loss = ((picture[y, x] * v[0][y, x]).sum() + transmittances[y, x] * v[1][y, x] + depths[y, x] * v[2][y, x])
            (gradient,) = torch.autograd.grad(loss, projected.means2d, retain_graph=True)
            expected += gradient.abs()
            signed += gradient
    got = absolute_means2d_gradient(projected, colors, opacities, bins, case.camera, BACKGROUND, config, *v)
    assert_close(got, expected, 1e-12)
    assert (got > 1.5 * signed.abs()).any(), "nothing cancelled: the scene would not tell the two apart"


@pytest.mark.parametrize("absolute", [False, True])
def test_F09_tap_holds_the_gradients_of_the_last_backward(absolute):
    case, config = scenes.make_random(40, 40, 30, 6), RasterConfig()
    gaussians, tensors = scenes.leaves(case.gaussians())
    tap = GradientTap(absolute=absolute)
    for scale in (1.0, 2.0):  # overwritten, not accumulated
        output = render(gaussians, case.camera, config, background=BACKGROUND, sh_degree=3, backend="reference",
                        depth=True, tap=tap)
        inner = [output.projected.means2d, output.projected.conics, output.splat_colors, output.splat_opacities]
        loss = scale * ((output.colors * random_like(output.colors, 1)).sum() + output.depths.sum())
        expected = torch.autograd.grad(loss, inner, retain_graph=True)
        loss.backward()
        got = (tap.v_means2d, tap.v_conics, tap.v_colors, tap.v_opacities)
        for a, b in zip(got, expected, strict=True):
            assert b.abs().max() > 0 and torch.equal(a, b)
    if not absolute:
        assert tap.v_abs_means2d is None
        return
    truth = absolute_means2d_gradient(output.projected, output.splat_colors, output.splat_opacities, output.bins,
                                      case.camera, BACKGROUND, config, 2 * random_like(output.colors, 1), None,
                                      torch.full_like(output.depths, 2.0))
    assert_close(tap.v_abs_means2d, truth, 1e-12)
    assert (tap.v_abs_means2d >= tap.v_means2d.abs() * (1 - 1e-9)).all()
    assert tensors["means"].grad.abs().max() > 0


def test_tap_of_a_second_backward_forgets_the_outputs_of_the_first():
    case, config = scenes.make_random(40, 40, 30, 6), RasterConfig()
    gaussians, _ = scenes.leaves(case.gaussians())
    tap = GradientTap(absolute=True)
    output = render(gaussians, case.camera, config, background=BACKGROUND, sh_degree=3, backend="reference", depth=True,
                    tap=tap)
    output.depths.sum().backward(retain_graph=True)
    after_depth = tap.v_abs_means2d
    output.colors.sum().backward()
    truth = absolute_means2d_gradient(output.projected, output.splat_colors, output.splat_opacities, output.bins,
                                      case.camera, BACKGROUND, config, torch.ones_like(output.colors))
    assert_close(tap.v_abs_means2d, truth, 1e-12)
    assert (after_depth - truth).abs().max() > 0.1 * truth.abs().max()


def test_tap_without_a_recorded_gradient_stays_as_it_is():
    case = scenes.make_random(10, 40, 30, 6)
    tap = GradientTap(absolute=True)
    with torch.no_grad():
        render(case.gaussians(), case.camera, RasterConfig(), background=BACKGROUND, sh_degree=3, backend="reference",
               tap=tap)
    assert tap == GradientTap(absolute=True)
