"""Every view mode against what it claims to show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from app import messages as m
from app.colormaps import NEVER_SEEN, colorize, lut
from app.config import TrainConfig
from app.engine.crop import crop
from app.engine.model import Model
from app.engine.photographs import Photographs
from app.engine.picking import at_pixel
from app.engine.selection import index_of, report
from app.engine.view_modes import BACKDROP, MODES, Picture, Sight, to_rgba
from app.training.probes import PROBES
from app.training.trainer import Trainer
from render.config import RasterConfig
from render.pipeline import render
from render.reference.pixel import pixel_contributions
from render.types import Camera, Gaussians
from tests.app.engine_doubles import request_for, running_engine
from tests.training.tiny import make_params, make_scene, ring

SIZE = 48


@pytest.fixture(scope="module")
def model() -> Model:
    scene = make_scene(4, 20, size=SIZE, points=40)
    trainer = Trainer(scene, TrainConfig(iterations=100, densify=replace(TrainConfig().densify, absgrad=True)),
                      backend="reference")
    trainer.step()
    return Model("tiny", trainer, scene)


def one_gaussian(depth: float = 3.0, opacity: float = 0.6, scale: float = 0.3) -> tuple[Model, Camera]:
    """A single Gaussian straight ahead of a camera at the origin."""
    params = make_params(1, scale=scale, opacity=opacity)
    params.means[:] = torch.tensor([0.0, 0.0, depth])
    params.log_scales[:] = float(np.log(scale))
    camera = Camera(np.eye(4), np.array([[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1.0]]), SIZE, SIZE)
    return Model("one", fixed_params=params, fixed_backend="reference"), camera


def pick(model: Model, camera: Camera, x: float, y: float) -> int | None:
    """The strongest at a pixel."""
    found = at_pixel(model, camera, x, y).tolist()
    return found[0] if found else None


def show(model: Model, mode: str, camera: Camera | None = None, **named) -> Picture:
    if camera is None:
        assert model.scene is not None
        camera = model.scene.views[0].camera
    return MODES[mode](Sight(model, m.ViewRequest(camera, mode, **named), camera, Photographs()))


def test_the_table_of_modes_and_the_drawing_functions_agree():
    """A mode is one entry and one function: neither may stand without the other, and no two share a key or a label."""
    assert list(MODES) == list(m.MODES) == list(m.VIEW_MODES)
    for field in ("key", "label", "help"):
        assert len({getattr(mode, field) for mode in m.MODES.values()}) == len(m.MODES)


@pytest.mark.parametrize("mode", m.VIEW_MODES)
def test_the_modes_are_what_the_table_says_of_them(model, mode):
    """Those with a range have a legend of numbers, and those that need a photograph say so where there is none."""
    legend = show(model, mode, view_index=0).legend
    assert (legend is not None and not legend.entries) == m.MODES[mode].ranged
    assert bool(show(model, mode, view_index=None).note) == m.MODES[mode].needs_photograph


@pytest.mark.parametrize(("mode", "named"), [("depth", {}), ("heatmap", {"quantity": "opacity"})])
def test_a_range_that_cannot_be_shown_is_said(model, mode, named):
    """A logarithm of 0 is none: the picture keeps an automatic range, and says why; a linear one takes it."""
    typed = dict(view_index=0, value_range=(0.0, 1.0), **named)
    picture = show(model, mode, log_scale=True, **typed)
    assert "logarithmic scale cannot begin at 0" in picture.note and picture.legend is not None and picture.legend.lo > 0
    assert show(model, mode, log_scale=False, **typed).note == ""
    assert "no range" in show(model, mode, view_index=0, value_range=(0.0, 1e300), **named).note


@pytest.mark.parametrize("mode", m.VIEW_MODES)
def test_every_mode_draws_something_finite_of_the_right_size(model, mode):
    picture = show(model, mode, view_index=0)
    assert picture.rgb.shape == (SIZE, SIZE, 3) and np.isfinite(picture.rgb).all()
    assert picture.rgb.std() > 0.01, "an empty picture"
    assert picture.note == ""
    if picture.legend is not None:
        assert picture.legend.hi > picture.legend.lo and picture.legend.label


@pytest.mark.parametrize("mode", m.VIEW_MODES)
def test_the_kernels_and_the_reference_show_the_same(mode):
    """Solid shapes need opacities far above 1 and a cutoff next to alpha_max; the kernels must take them as they are."""
    params = make_params(60, seed=3, scale=0.1)
    camera = ring(1, SIZE, SIZE)[0]
    seen = [show(Model("p", fixed_params=params, fixed_backend=backend), mode, camera, quantity="opacity").rgb
            for backend in ("reference", "cpu")]
    differing = (np.abs(seen[0] - seen[1]).max(2) > 2e-3).mean()
    assert seen[0].std() > 0.01 and differing < 0.01   # pixels right at a threshold may flip


def test_color_is_what_training_compares(model):
    view = model.scene.views[0]
    expected = model.trainer.render(view.camera).colors.numpy()
    assert np.array_equal(show(model, "color").rgb, expected)


def test_n13_depth_is_normalised_by_alpha():
    """N13: sum(w z) / max(alpha, eps): a half transparent Gaussian at z = 3 is 3 away, not 1.8, on every pixel."""
    model, camera = one_gaussian(depth=3.0, opacity=0.6)
    picture = show(model, "depth", camera, value_range=(2.0, 4.0))
    alpha = 1.0 - model.render(camera).transmittances.numpy()
    assert alpha.max() < 0.7   # not opaque anywhere: without the division depth would be far too small
    seen = alpha > 0.05
    assert seen.sum() > 20
    assert np.allclose(picture.rgb[seen], lut("turbo")[128], atol=0.03)   # the middle of 2..4
    assert np.allclose(picture.rgb[alpha == 0], BACKDROP)


def test_the_automatic_depth_range_is_that_of_the_surface():
    model, camera = one_gaussian(depth=5.0, opacity=0.95)
    legend = show(model, "depth", camera).legend
    assert legend is not None and legend.lo < 5.0 < legend.hi and legend.hi - legend.lo < 6.0
    assert legend.colormap == "turbo" and legend.unit == "world units"


def test_transmittance_is_shown_from_0_to_1():
    model, camera = one_gaussian(opacity=0.6)
    picture = show(model, "transmittance", camera)
    transmittance = model.render(camera).transmittances.numpy()
    assert picture.legend == m.Legend("transmittance", "", 0.0, 1.0, "viridis")
    assert np.allclose(picture.rgb, colorize(transmittance, "viridis", 0.0, 1.0))


def test_error_is_zero_where_the_render_is_the_photograph(model):
    view = model.scene.views[0]
    truth = view.load().astype(np.float32) / 255
    rendered = np.clip(show(model, "color").rgb, 0, 1)
    picture = show(model, "error", view_index=0, value_range=(0.0, 1.0))
    assert np.allclose(picture.rgb, colorize(np.abs(rendered - truth).mean(2), "turbo", 0.0, 1.0), atol=1e-5)
    assert picture.legend is not None and "photograph" in picture.legend.label


@pytest.mark.parametrize("mode", ["error", "truth"])
def test_without_a_photograph_the_picture_says_so(model, mode):
    moved = Camera(ring(8, SIZE, SIZE)[1].viewmat, model.scene.views[0].camera.K, SIZE, SIZE)
    for camera, index in [(moved, 0), (model.scene.views[0].camera, None), (model.scene.views[0].camera, 99)]:
        picture = show(model, mode, camera, view_index=index)
        assert "press [ or ]" in picture.note and picture.legend is None
        assert picture.rgb.max() <= 0.36   # dimmed: it must not pass for a photograph


def test_truth_is_the_photograph_also_for_a_wider_viewport(model):
    view = model.scene.views[0]
    truth = view.load().astype(np.float32) / 255
    assert np.allclose(show(model, "truth", view_index=0).rgb, truth, atol=1e-6)
    K = view.camera.K + np.array([[0, 0, 10.0], [0, 0, 0], [0, 0, 0]])
    wide = Camera(view.camera.viewmat, K, SIZE + 20, SIZE)
    picture = show(model, "truth", wide, view_index=0).rgb
    assert np.allclose(picture[:, 10:-10], truth, atol=1e-5) and np.allclose(picture[:, :9], BACKDROP)


def test_contributors_count_what_is_blended():
    model, camera = one_gaussian()
    picture = show(model, "contributors", camera, value_range=(0.0, 2.0))
    touched = model.render(camera).last_ids.numpy() >= 0
    assert 0 < touched.sum() < touched.size
    assert np.allclose(picture.rgb[touched], lut("viridis")[128]) and np.allclose(picture.rgb[~touched], BACKDROP)


def test_ellipsoids_are_solid_out_to_two_sigma_and_nothing_beyond():
    model, camera = one_gaussian(depth=3.0, opacity=0.3, scale=0.3)
    rgb = show(model, "ellipsoids", camera).rgb
    base = np.maximum(0.5 + 0.28209479177387814 * model.params.sh0[0, 0].numpy(), 0)
    assert np.allclose(rgb[SIZE // 2, SIZE // 2], base, atol=0.03)   # full colour in the middle, whatever the opacity
    rows, columns = np.mgrid[:SIZE, :SIZE] + 0.5
    distance = np.hypot(rows - SIZE / 2, columns - SIZE / 2)
    radius = 2.0 * np.sqrt((0.3 * SIZE / 3.0) ** 2 + 0.3)   # px: 2 sigma of the projected Gaussian with its low-pass
    assert np.allclose(rgb[distance > radius + 1], BACKDROP, atol=1e-6)
    inside = rgb[distance < radius - 1].sum(1)
    assert (inside > 0.3 * base.sum()).all() and inside.min() < 0.75 * base.sum()   # solid, and shaded towards the rim


def test_the_nearer_ellipsoid_hides_the_farther():
    model, camera = one_gaussian()
    near, far = model.params, make_params(1, seed=1, scale=0.3)
    far.means[:] = torch.tensor([0.0, 0.0, 6.0])
    both = {name: torch.cat([getattr(far, name), getattr(near, name)]) for name in (*near.trained(), "uids")}
    model.fixed_params = type(near)(**both)
    alone, _ = one_gaussian()
    middle = (SIZE // 2, SIZE // 2)
    assert np.allclose(show(model, "ellipsoids", camera).rgb[middle], show(alone, "ellipsoids", camera).rgb[middle], atol=0.02)


def test_points_are_dots_at_the_means():
    model, camera = one_gaussian(scale=1.0)
    rgb = show(model, "points", camera).rgb
    lit = np.abs(rgb - np.array(BACKDROP)).max(2) > 0.05
    rows, columns = np.nonzero(lit)
    assert 1 <= lit.sum() <= 12
    assert abs(rows.mean() + 0.5 - SIZE / 2) < 0.6 and abs(columns.mean() + 0.5 - SIZE / 2) < 0.6


@pytest.mark.parametrize("quantity", list(PROBES))
def test_every_quantity_is_drawn_with_its_legend(model, quantity):
    picture = show(model, "heatmap", quantity=quantity)
    if quantity == "shN_grad" or quantity.startswith("lab_"):   # these come later, and the note says with what
        assert PROBES[quantity].missing in picture.note
        return
    assert picture.note == "" and picture.legend is not None
    assert (picture.legend.label, picture.legend.unit) == (PROBES[quantity].label, PROBES[quantity].unit)
    assert picture.legend.colormap == ("coolwarm" if PROBES[quantity].signed else "viridis")
    assert picture.legend.log == (PROBES[quantity].log and not PROBES[quantity].signed)


def test_a_heatmap_shows_the_value_of_the_gaussian():
    model, camera = one_gaussian(opacity=0.6, scale=2.0)
    picture = show(model, "heatmap", camera, quantity="opacity", value_range=(0.2, 1.0), log_scale=False)
    middle = picture.rgb[SIZE // 2, SIZE // 2]
    assert np.allclose(middle, 0.6 * lut("viridis")[128] + 0.4 * np.array(BACKDROP), atol=0.02)


def test_the_colour_map_of_unsigned_quantities_is_a_choice(model):
    assert show(model, "heatmap", quantity="opacity", colormap="turbo").legend.colormap == "turbo"
    assert show(model, "heatmap", quantity="opacity_grad", colormap="turbo").legend.colormap == "coolwarm"


def test_f17_never_seen_is_grey(model):
    """F17: before any view was shown, the statistic is unknown and drawn grey, with the legend saying so."""
    fresh = Model("fresh", Trainer(model.scene, TrainConfig(iterations=100), backend="reference"), model.scene)
    picture = show(fresh, "heatmap", quantity="mean2d_grad_average")
    assert picture.legend is not None and picture.legend.never_seen
    alpha = 1.0 - fresh.render(model.scene.views[0].camera).transmittances.numpy()
    expected = np.array(NEVER_SEEN) * alpha[..., None] + np.array(BACKDROP) * (1 - alpha[..., None])
    assert np.allclose(picture.rgb, expected, atol=1e-4)


def test_a_quantity_without_values_says_what_to_do(model):
    fresh = Model("fresh", Trainer(model.scene, TrainConfig(iterations=100), backend="reference"), model.scene)
    assert "step first" in show(fresh, "heatmap", quantity="mean2d_grad").note
    assert "choose one of" in show(fresh, "heatmap", quantity="nonsense").note


def test_a_ply_shows_what_needs_no_training(model):
    still, camera = one_gaussian()
    for name in PROBES:
        picture = show(still, "heatmap", camera, quantity=name)
        assert (picture.note == "") == (PROBES[name].needs != "trainer")
    for mode in ("error", "truth"):
        assert show(still, mode, camera, view_index=0).note


def test_the_automatic_range_moves_slowly_while_training(model):
    request = m.ViewRequest(model.scene.views[0].camera, "depth")
    plain = MODES["depth"](Sight(model, request, request.camera)).legend
    held = MODES["depth"](Sight(model, request, request.camera, last_range=(0.0, 100.0))).legend
    assert plain is not None and held is not None
    assert held.hi == pytest.approx(100.0 + 0.3 * (plain.hi - 100.0))


def test_small_pictures_are_enlarged_to_the_exact_size():
    rgb = np.random.default_rng(0).random((6, 8, 3), dtype=np.float32) * 2 - 0.5
    rgba = to_rgba(rgb, 33, 19)
    assert rgba.shape == (19, 33, 4) and rgba.dtype == np.float32 and rgba.flags.c_contiguous
    assert rgba.min() >= 0 and rgba.max() <= 1 and (rgba[..., 3] == 1).all()
    assert np.array_equal(to_rgba(np.full((2, 2, 3), np.nan, np.float32), 2, 2)[..., :3], np.zeros((2, 2, 3)))


@pytest.mark.parametrize("mode", m.VIEW_MODES)
def test_bands_together_are_the_whole_picture(model, mode):
    """A slow picture is refined in bands of rows: the same pixels, whatever lies outside the band."""
    camera = model.scene.views[0].camera
    request = m.ViewRequest(camera, mode, view_index=0)
    whole = MODES[mode](Sight(model, request, camera))
    if whole.legend is not None:
        request = replace(request, value_range=(whole.legend.lo, whole.legend.hi), log_scale=whole.legend.log)
        whole = MODES[mode](Sight(model, request, camera))
    bands = []
    for top in range(0, SIZE, 20):
        part = crop(camera, 0, top, SIZE, min(20, SIZE - top))
        bands.append(MODES[mode](Sight(model, request, part)).rgb)
    assert np.allclose(np.concatenate(bands), whole.rgb, atol=1e-4)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_part_is_exact_where_the_projection_is_clamped(backend):
    """N23: Gaussians close to the eye and far beside the picture, whose Jacobian is clamped by the whole picture."""
    rng = torch.Generator().manual_seed(0)
    z = torch.rand(200, generator=rng) * 0.6 + 0.15
    beside = (torch.rand(200, 2, generator=rng) * 4 - 2) * z[:, None]
    gaussians = Gaussians(torch.cat([beside, z[:, None]], 1), torch.tensor([[1.0, 0, 0, 0]]).repeat(200, 1),
                          torch.exp(torch.randn(200, 3, generator=rng) * 0.7 - 3), torch.full((200,), 0.5),
                          torch.randn(200, 1, 3, generator=rng))
    camera = Camera(np.eye(4), np.array([[60.0, 0, 25], [0, 50.0, 26], [0, 0, 1]]), 64, 48)

    def draw(seen: Camera) -> np.ndarray:
        return render(gaussians, seen, RasterConfig(), background=torch.zeros(3), sh_degree=0, backend=backend).colors.numpy()

    whole = draw(camera)
    assert whole.max() > 0.1
    assert np.allclose(draw(crop(camera, 8, 16, 40, 20)), whole[16:36, 8:48], atol=1e-4)
    twice = crop(crop(camera, 8, 16, 40, 20), 3, 2, 5, 7)
    assert np.allclose(draw(twice), whole[18:25, 11:16], atol=1e-4)


# ---------------------------------------------------------------- picking


def test_a_click_picks_the_gaussian_with_the_largest_weight():
    model, camera = one_gaussian()
    assert pick(model, camera, SIZE / 2, SIZE / 2) == int(model.params.uids[0])
    assert pick(model, camera, 0, 0) is None
    assert pick(model, camera, -5, 1e9) is None   # outside: the nearest pixel, where nothing is


def test_a_pick_on_one_pixel_is_the_pick_on_the_whole_picture(model):
    camera = model.scene.views[0].camera
    output = model.render(camera)
    found = 0
    for y in range(4, SIZE, 7):
        for x in range(4, SIZE, 7):
            whole = pixel_contributions(output.projected, output.splat_colors, output.splat_opacities, output.bins, camera,
                                        model.background, model.options.raster, x, y).strongest()
            expected = None if whole is None else int(model.params.uids[whole])
            assert pick(model, camera, x + 0.5, y + 0.5) == expected
            found += expected is not None
    assert found > 5


def test_the_card_is_that_of_the_uid_and_its_ellipse_lies_under_the_click(model):
    camera = model.scene.views[0].camera
    picked = {}
    for y in range(8, SIZE, 8):
        for x in range(8, SIZE, 8):
            uid = pick(model, camera, x, y)
            if uid is not None:
                picked[uid] = (x + 0.5, y + 0.5)
    assert len(picked) > 3
    for uid, (x, y) in picked.items():
        index = index_of(model, uid)
        assert index is not None
        card = report(model, index, camera)
        assert card.uid == uid and card.ellipse is not None
        cx, cy, a, b, c = card.ellipse
        q = a * (x - cx) ** 2 + 2 * b * (x - cx) * (y - cy) + c * (y - cy) ** 2
        assert q < 2 * np.log(255) + 0.5   # inside the ellipse of alpha >= 1/255
        assert set(card.gradients) >= {"means", "v_means2d"}
    assert index_of(model, 10**9) is None


def test_the_card_of_a_ply_has_no_gradients():
    model, camera = one_gaussian()
    card = report(model, 0, camera)
    assert card.gradients == {} and card.activated["opacity"] == pytest.approx(0.6)
    assert card.ellipse is not None and np.allclose(card.ellipse[:2], SIZE / 2, atol=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_two_modes_beside_each_other_are_each_what_they_are_alone(share):
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")

        def shown(**named):
            return window.frame_of(window.look(request_for(window, view_index=0, width=48, height=32, **named)), refined=True)
        left, right = shown(mode="color"), shown(mode="depth")
        both = shown(mode="color", beside=m.Beside("depth", share=share))
        column = round(share * 48)
        assert (both.rgba[:, :column] == left.rgba[:, :column]).all()
        assert abs(both.rgba[:, column:] - right.rgba[:, column:]).max(initial=0.0) < 0.05
        assert both.legend is None and both.legend_beside is not None and both.legend_beside.label == "depth"
