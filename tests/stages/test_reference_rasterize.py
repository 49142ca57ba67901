"""Compositing of the reference renderer, against a renderer without tiles and against finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from render.config import ALPHA_GRADIENTS, RasterConfig
from render.reference import rasterize as rasterize_module
from render.reference.binning import bin_tiles
from render.reference.project import project
from render.reference.rasterize import assemble, clamp_alpha, count_contributors, cut, rasterize
from render.reference.sh import sh_to_colors
from render.types import Projected
from tests import scenes
from tests.gradients import assert_gradients
from tests.stages.brute_force import render_pixels

BACKGROUND = torch.tensor([0.2, 0.7, 0.4], dtype=torch.float64)
CONFIGS = {
    "default": RasterConfig(),
    "smooth": RasterConfig(smooth_cutoff=True),
    "alpha_999": RasterConfig(alpha_max=0.999),
    "early_stop": RasterConfig(transmittance_min=0.05),
    "high_cutoff": RasterConfig(cutoff=0.008),
    "antialiased": RasterConfig(antialiased=True),
}


def prepared(case: scenes.Case, config: RasterConfig):
    """(projected, colors, opacities_eff, bins) as leaves that require gradients."""
    g = case.gaussians()
    projected = project(g.means, g.quats, g.scales, g.opacities, case.camera, config)
    colors = sh_to_colors(g.means, g.sh, case.camera, case.sh_degree).detach().requires_grad_()
    opacities = (g.opacities * projected.compensations).detach()
    bins = bin_tiles(projected, opacities, case.camera, config)
    leaves = [t.detach().clone().requires_grad_() for t in (projected.means2d, projected.conics, projected.depths)]
    projected = Projected(*leaves, projected.extents, projected.compensations)
    return projected, colors, opacities.requires_grad_(), bins


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["random", "saturated", "depth_ties", "needles", "outside_clamp", "one_pixel_wide",
                                  "stack_65", "empty"])
def test_equals_the_brute_force_renderer(name, config):
    case = scenes.make_random(40, 37, 23, 21) if name == "random" else scenes.EDGE_CASES[name]()
    projected, colors, opacities, bins = prepared(case, config)
    picture, transmittances, depths, last_ids = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND,
                                                          config, depth=True)
    expected = render_pixels(projected, colors, opacities, case.camera, BACKGROUND, config)
    if case.visible:
        assert (1 - transmittances).max() > 0.1
    for got, want in zip((picture, transmittances, depths), expected, strict=False):
        np.testing.assert_allclose(got.detach().numpy(), want, atol=1e-12)
    counts = count_contributors(projected, opacities, bins, case.camera, config)
    np.testing.assert_array_equal(counts.numpy(), expected[3])
    padded = torch.cat([bins.flatten_ids, torch.tensor([-1], dtype=torch.int32)])  # index -1 reads "none"
    np.testing.assert_array_equal(padded[last_ids.long()].numpy(), expected[4])
    assert last_ids.dtype == counts.dtype == torch.int32


def test_stopping_rule_acts_in_the_saturated_scene():
    projected, colors, opacities, bins = prepared(scenes.saturated(), RasterConfig())
    _, transmittances, _, _ = rasterize(projected, colors, opacities, bins, scenes.saturated().camera, BACKGROUND,
                                        RasterConfig())
    unstopped = rasterize(projected, colors, opacities, bins, scenes.saturated().camera, BACKGROUND,
                          RasterConfig(transmittance_min=1e-12))[1]
    assert transmittances.min() >= 1e-4 > unstopped.min()


@pytest.mark.parametrize("config", [CONFIGS["default"], CONFIGS["smooth"], CONFIGS["early_stop"]],
                         ids=["exact", "smooth", "early_stop"])
@pytest.mark.parametrize("name", ["random", "saturated"])
def test_N04_N05_N12_gradients_of_every_input(name, config):
    """The conic gradient is that of (a,b,c) as they stand, b counted once for both off-diagonal entries (N04);
    opacities under a background that is not black (N05); expected depth is differentiable (N12)."""
    case = scenes.make_random(7, 20, 18, 31, sigma=(1.5, 5.0), opacity=(0.3, 0.97)) if name == "random" \
        else scenes.saturated()
    projected, colors, opacities, bins = prepared(case, config)
    background = BACKGROUND.clone().requires_grad_()
    rng = torch.Generator().manual_seed(3)
    v_color, v_transmittance, v_depth = (torch.randn(case.camera.height, case.camera.width, *tail, generator=rng,
                                                     dtype=torch.float64) for tail in ((3,), (), ()))

    def loss():
        picture, transmittances, depths, _ = rasterize(projected, colors, opacities, bins, case.camera, background,
                                                       config, depth=True)
        assert picture.max() > 0.1
        return (picture * v_color).sum() + (transmittances * v_transmittance).sum() + (depths * v_depth).sum()

    assert_gradients(loss, {"means2d": projected.means2d, "conics": projected.conics, "depths": projected.depths,
                            "colors": colors, "opacities": opacities, "background": background}, eps=1e-7)


@pytest.mark.parametrize("background", [0.0, 1.0, "random"])
def test_N05_opacity_gradient_under_each_background(background):
    case = scenes.make_random(7, 20, 18, 31, sigma=(1.5, 5.0), opacity=(0.3, 0.97))
    config = RasterConfig()
    projected, colors, opacities, bins = prepared(case, config)
    value = BACKGROUND if background == "random" else torch.full((3,), background, dtype=torch.float64)
    gradients = assert_gradients(
        lambda: (rasterize(projected, colors, opacities, bins, case.camera, value, config)[0] ** 2).sum(),
        {"opacities": opacities}, eps=1e-7)
    black = torch.autograd.grad((rasterize(projected, colors, opacities, bins, case.camera, 0 * value, config)[0]
                                 ** 2).sum(), opacities)[0]
    assert (background == 0) == torch.equal(black, gradients["opacities"])


# ---------------------------------------------------------------- the three gradient modes
def one_pixel(mode: str, opacity: float, alpha_max: float):
    """(d alpha/d opacity, d alpha/d power, G, raw) of one Gaussian at a pixel 0.3 px away from its mean."""
    case = scenes.single(pixel=(20.8, 14.5), sigma=3.0, opacity=0.5)
    config = RasterConfig(alpha_max=alpha_max, alpha_gradient=mode)
    projected, _, _, bins = prepared(case, config)
    o = torch.tensor([opacity], dtype=torch.float64, requires_grad=True)
    white = torch.ones(1, 3, dtype=torch.float64)
    picture, *_ = rasterize(projected, white, o, bins, case.camera, torch.zeros(3, dtype=torch.float64), config)
    alpha = picture[14, 20, 0]
    v_o, v_conics = torch.autograd.grad(alpha, [o, projected.conics])
    dx = 0.5 - 0.8
    v_power = (v_conics[0, 0] / (-0.5 * dx * dx)).item()  # power = -(a dx^2 + ...)/2, so d/da = -dx^2/2 d/dpower
    G = np.exp(-0.5 * projected.conics[0, 0].item() * dx * dx)
    return v_o[0].item(), v_power, G, opacity * G, alpha.item()


@pytest.mark.parametrize("alpha_max", [0.99, 0.999, 0.6])
def test_N07_gradients_where_alpha_is_clamped_are_those_of_the_table(alpha_max):
    opacity = 1.05 if alpha_max > 0.9 else 0.8  # beyond 1 it clamps for certain; the rule does not care how it came
    for mode, expected in {
        "exact": lambda G, raw: (0.0, 0.0),
        "straight_through": lambda G, raw: (G, raw),
        "straight_through_clamped": lambda G, raw: (alpha_max / opacity, alpha_max),
    }.items():
        v_o, v_power, G, raw, alpha = one_pixel(mode, opacity, alpha_max)
        assert raw > alpha_max and alpha == pytest.approx(alpha_max, abs=1e-15), mode
        assert (v_o, v_power) == pytest.approx(expected(G, raw), rel=1e-9), mode


def test_unclamped_pixels_have_the_same_gradient_in_every_mode():
    results = {mode: one_pixel(mode, 0.7, 0.99) for mode in ALPHA_GRADIENTS}
    v_o, v_power, G, raw, _ = results["exact"]
    assert (v_o, v_power) == pytest.approx((G, raw), rel=1e-9)
    assert len({(r[0], r[1]) for r in results.values()}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mode_never_changes_the_value(dtype):
    raw = torch.rand(10000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    values = [clamp_alpha(raw, RasterConfig(alpha_gradient=mode)) for mode in ALPHA_GRADIENTS]
    assert (raw > 0.99).any()
    assert torch.equal(values[0], values[1]) and torch.equal(values[0], values[2])


def test_modes_differ_only_through_clamped_pixels_and_never_in_colour_gradients():
    case = scenes.saturated()
    rng = torch.Generator().manual_seed(5)
    cotangent = torch.randn(case.camera.height, case.camera.width, 3, generator=rng, dtype=torch.float64)
    projected, colors, opacities, bins = prepared(case, RasterConfig())
    _, clamped = _clamped_pixels(case)
    assert 0 < clamped.sum() < clamped.numel()

    def gradients(mode: str, mask: torch.Tensor):
        config = RasterConfig(alpha_gradient=mode)
        picture = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND, config)[0]
        loss = (picture * cotangent * mask[..., None]).sum()
        return torch.autograd.grad(loss, [projected.means2d, projected.conics, opacities, colors])

    for mode in ALPHA_GRADIENTS[1:]:
        for exact, other in zip(gradients("exact", ~clamped), gradients(mode, ~clamped), strict=True):
            torch.testing.assert_close(other, exact, rtol=1e-12, atol=1e-14)
        exact, other = gradients("exact", clamped), gradients(mode, clamped)
        for a, b in zip(exact[:3], other[:3], strict=True):
            assert (a - b).abs().max() > 1e-3 * a.abs().max()
        torch.testing.assert_close(other[3], exact[3], rtol=1e-12, atol=1e-14)


def _clamped_pixels(case: scenes.Case):
    """Which pixels have a Gaussian with raw alpha > alpha_max: computed from the formula, not from the renderer."""
    projected, _, opacities, _ = prepared(case, RasterConfig())
    y, x = torch.meshgrid(torch.arange(case.camera.height) + 0.5, torch.arange(case.camera.width) + 0.5, indexing="ij")
    dx, dy = x - projected.means2d[:, 0, None, None], y - projected.means2d[:, 1, None, None]
    a, b, c = (projected.conics[:, i, None, None] for i in range(3))
    raw = opacities[:, None, None] * torch.exp(-0.5 * (a * dx**2 + 2 * b * dx * dy + c * dy**2))
    return raw.detach(), (raw > 0.99).any(0)


# ---------------------------------------------------------------- cutoff
def test_smooth_cutoff_is_c1_at_both_ends_and_plain_beyond():
    config = RasterConfig(smooth_cutoff=True)
    c = config.cutoff
    alpha = torch.tensor([0.5 * c, c, c * (1 + 1e-6), 1.5 * c, 2 * c * (1 - 1e-6), 2 * c, 0.5], dtype=torch.float64,
                         requires_grad=True)
    faded = rasterize_module.fade(alpha, config)
    (slope,) = torch.autograd.grad(faded.sum(), alpha)
    assert faded[:2].tolist() == [0, 0]
    assert faded[3].item() == pytest.approx(0.75 * c)          # s(1/2) = 1/2
    assert faded[5:].tolist() == pytest.approx([2 * c, 0.5])
    assert slope[2].item() == pytest.approx(0, abs=1e-4) and slope[4].item() == pytest.approx(1, abs=1e-4)


def test_hard_cutoff_keeps_alpha_at_the_cutoff_and_drops_below():
    config = RasterConfig()
    below = np.nextafter(config.cutoff, 0)
    assert rasterize_module.fade(torch.tensor([below, config.cutoff], dtype=torch.float64), config).tolist() \
        == [0, config.cutoff]


# ---------------------------------------------------------------- plumbing
def test_cut_is_the_inverse_of_assemble():
    camera = scenes.make_camera(37, 23)
    image = torch.arange(37 * 23 * 3.0).reshape(23, 37, 3)
    assert torch.equal(assemble(cut(image, camera), camera), image)
    assert torch.equal(assemble(cut(image[..., 0], camera), camera), image[..., 0])


def test_recomputing_tiles_for_memory_changes_no_bit(monkeypatch):
    case = scenes.make_random(60, 40, 30, 2)
    config = RasterConfig()
    projected, colors, opacities, bins = prepared(case, config)
    tensors = [projected.means2d, projected.conics, projected.depths, colors, opacities]

    def gradients():
        picture, _, depths, _ = rasterize(projected, colors, opacities, bins, case.camera, BACKGROUND, config, True)
        return torch.autograd.grad((picture**2).sum() + depths.sum(), tensors)

    recorded = gradients()
    calls = []
    original = rasterize_module.checkpoint
    monkeypatch.setattr(rasterize_module, "_RECORDED_PAIRS", 0)
    monkeypatch.setattr(rasterize_module, "checkpoint", lambda *a, **k: calls.append(1) or original(*a, **k))
    for a, b in zip(recorded, gradients(), strict=True):
        assert torch.equal(a, b)
    assert len(calls) == 6


def test_bins_of_another_camera_size_are_refused():
    case = scenes.make_random(20, 40, 30, 2)
    projected, colors, opacities, bins = prepared(case, RasterConfig())
    wider = replace(case.camera, width=80)
    with pytest.raises(ValueError, match="tile_offsets"):
        rasterize(projected, colors, opacities, bins, wider, BACKGROUND, RasterConfig())
