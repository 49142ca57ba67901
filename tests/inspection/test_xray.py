"""Every number of the X-ray equals an independent recomputation by the reference in float64."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import TrainConfig
from app.data.open import open_scene
from app.demo import demo_folder
from app.engine.model import Model
from app.inspection.questions import Sight, Unanswerable, XRayQuestion
from app.inspection.results import XRay
from app.inspection.xray import xray
from app.training.marks import HIDDEN
from app.training.trainer import Trainer
from app.training.views import load_target
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.reference.activate import activate
from render.reference.binning import bin_tiles
from render.reference.pixel import pixel_contributions
from render.reference.project import project
from render.reference.rasterize import rasterize
from render.reference.sh import sh_to_colors
from render.reference.ssim import photometric_loss
from render.types import Camera, GaussianParams
from tests.realdata import real_data
from tests.scenes import make_random, make_stack, saturated
from tests.training.tiny import make_scene

RTOL = 2e-4   # the kernels project in float32; everything after is float64


@pytest.fixture(autouse=True)
def one_torch_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def still(case, config: RasterConfig | None = None, backend: str = "cpu", white: bool = False) -> Model:
    """A model without a trainer."""
    return Model("still", fixed_params=case.to(torch.float32).params, fixed_backend=backend,
                 fixed_config=TrainConfig(raster=config or RasterConfig(), white_background=white))


def double(params: GaussianParams) -> GaussianParams:
    return GaussianParams(**{name: t.detach().double() for name, t in params.trained().items()}, uids=params.uids)


def held_to_reference(model: Model, camera: Camera, answer: XRay, *, reach: int = 8) -> None:
    """Rows, colour and every derivative against the reference at float64, which sees `reach` px around the pixel."""
    x, y, config = answer.x, answer.y, model.options.raster
    left, top = max(0, x - reach), max(0, y - reach)
    part = camera.cropped(left, top, min(camera.width, x + reach) - left, min(camera.height, y + reach) - top)
    gaussians = activate(double(model.params))
    projected = project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, part, config)
    colors = sh_to_colors(gaussians.means, gaussians.sh, part, model.sh_degree).requires_grad_()
    opacities = (gaussians.opacities * projected.compensations).requires_grad_()
    bins, background = bin_tiles(projected, opacities.detach(), part, config), model.background.double()
    image, transmittance, _, _ = rasterize(projected, colors, opacities, bins, part, background, config)
    pixel = image[y - top, x - left]
    rows = pixel_contributions(projected, colors, opacities.detach(), bins, part, background, config, x - left, y - top)
    assert np.array_equal(answer.uids, model.params.uids[rows.ids].numpy())
    for name, expected in (("depths", rows.depths), ("powers", rows.powers), ("raw_alphas", rows.raw_alphas),
                           ("alphas", rows.alphas), ("transmittances", rows.transmittances), ("weights", rows.weights),
                           ("colors", rows.colors)):
        np.testing.assert_allclose(getattr(answer, name), expected.numpy(), rtol=RTOL, atol=2e-5, err_msg=name)
    assert np.array_equal(answer.clamped, rows.clamped.numpy())
    assert answer.transmittance == pytest.approx(transmittance[y - top, x - left].item(), rel=RTOL, abs=1e-6)
    np.testing.assert_allclose(answer.composed, pixel.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(answer.rendered, answer.composed, atol=2e-6)
    # the derivatives, contracted with the very cotangent that the answer shows
    v_colors, v_opacities = torch.autograd.grad((pixel * torch.from_numpy(answer.cotangent)).sum(), [colors, opacities])
    largest = float(v_opacities.abs().max())
    np.testing.assert_allclose(answer.v_opacities, v_opacities[rows.ids].numpy(), rtol=5e-3, atol=1e-4 * largest)
    np.testing.assert_allclose(answer.weights[:, None] * answer.cotangent, v_colors[rows.ids].numpy(), rtol=RTOL,
                               atol=1e-5 * float(v_colors.abs().max()))
    internally_consistent(answer)


def internally_consistent(answer: XRay) -> None:
    """dC/dalpha by autograd of the sum of the rows themselves, running colour and the walks by their definition."""
    alphas = torch.from_numpy(answer.alphas).requires_grad_()
    colors = torch.from_numpy(answer.colors)
    through = torch.cumprod(1 - alphas, 0)
    before = torch.cat([torch.ones(1, dtype=torch.float64), through])
    backdrop = before[-1] * torch.from_numpy(answer.background)
    color = ((before[:-1] * alphas)[:, None] * colors).sum(0) + backdrop
    for c in range(3):
        total, = torch.autograd.grad(color[c], alphas, retain_graph=True)
        last, = torch.autograd.grad(backdrop[c], alphas, retain_graph=True)
        np.testing.assert_allclose(answer.own[:, c] + answer.occlusion[:, c] + answer.backdrop[:, c], total.numpy(), atol=1e-11)
        np.testing.assert_allclose(answer.backdrop[:, c], last.numpy(), atol=1e-12)
    np.testing.assert_allclose(answer.own, answer.transmittances[:, None] * answer.colors, atol=1e-14)
    derivative = answer.own + answer.occlusion + answer.backdrop
    np.testing.assert_allclose(answer.v_alphas, derivative @ answer.cotangent, atol=1e-12)
    end = answer.running[-1] if len(answer.running) else np.zeros(3)
    np.testing.assert_allclose(end + answer.transmittance * answer.background, answer.composed, atol=1e-12)
    assert answer.forward.dtype == answer.rebuilt.dtype == np.float32
    np.testing.assert_allclose(answer.forward[:-1], answer.transmittances, rtol=1e-4)
    t = answer.forward[-1]
    assert answer.rebuilt[-1] == t
    for k in range(len(answer.alphas) - 1, -1, -1):
        t = t / (np.float32(1) - np.float32(answer.alphas[k]))
        assert answer.rebuilt[k] == t
    assert answer.errors.max(initial=0.0) < 1e-3


@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_rows_and_derivatives_in_every_gradient_mode(mode: str, backend: str) -> None:
    config = RasterConfig(alpha_gradient=mode, alpha_max=0.5, antialiased=mode == "exact",
                          smooth_cutoff=mode == "straight_through")
    case = make_random(300, 61, 45, seed=3, opacity=(0.3, 0.999), dtype=torch.float32)
    model = still(case, config, backend, white=True)
    clamped = 0
    for x, y in ((0, 0), (60, 44), (31, 22), (16, 15), (40, 8)):
        answer = xray(model, XRayQuestion(Sight.of(case.camera), x, y))
        held_to_reference(model, case.camera, answer)
        assert answer.loss == "" and np.array_equal(answer.cotangent, np.ones(3)) and answer.view == ""
        whole = model.render(case.camera).colors[y, x].numpy()
        np.testing.assert_allclose(answer.rendered, whole, atol=2e-6)
        clamped += int(answer.clamped.sum())
        slopes = {"exact": 0.0, "straight_through": 1.0}.get(mode, 0.5 / answer.raw_alphas[answer.clamped])
        np.testing.assert_allclose(answer.slopes[answer.clamped], slopes)
    assert clamped > 2


def test_who_is_refused_by_the_stopping_rule() -> None:
    case = saturated(torch.float32)
    model = still(case)
    x, y = case.camera.width // 2, case.camera.height // 2
    answer = xray(model, XRayQuestion(Sight.of(case.camera), x, y))
    assert answer.refused is not None and answer.refused.count >= 1
    config = model.options.raster
    assert answer.transmittance >= config.transmittance_min > answer.refused.transmittance
    assert answer.refused.transmittance == pytest.approx(answer.transmittance * (1 - answer.refused.alpha))
    assert answer.refused.uid not in answer.uids and answer.refused.depth >= answer.depths[-1]
    held_to_reference(model, case.camera, answer)


def test_an_empty_pixel_is_background_and_one_outside_has_no_answer() -> None:
    case = make_stack(63, dtype=torch.float32)
    model = still(case)
    uids = xray(model, XRayQuestion(Sight.of(case.camera), 12, 12)).uids
    model.set_mark(HIDDEN, np.isin(model.params.uids.numpy(), uids[:2]))   # training sees what the user hides
    answer = xray(model, XRayQuestion(Sight.of(case.camera), 12, 12))
    assert answer.hidden == 2 <= len(uids) and np.array_equal(answer.uids, uids)
    far = case.with_params(means=case.params.means + 1e4)
    model = still(far, white=True)
    answer = xray(model, XRayQuestion(Sight.of(case.camera), 3, 3))
    assert len(answer.uids) == 0 and answer.transmittance == 1.0 and np.array_equal(answer.composed, np.ones(3))
    assert np.array_equal(answer.rendered, answer.composed) and answer.refused is None and len(answer.errors) == 1
    with pytest.raises(Unanswerable, match="outside"):
        xray(model, XRayQuestion(Sight.of(case.camera), case.camera.width, 3))


@pytest.mark.parametrize("loss", ["l1_ssim", "mse"])
def test_the_cotangent_is_that_of_the_training_loss(loss: str) -> None:
    """Against the reference's loss of the whole picture, at the corners, the edge and the middle."""
    scene = make_scene(3, 20, rgba=loss == "mse")
    trainer = Trainer(scene, TrainConfig(loss=loss, white_background=True), backend="cpu")
    model = Model("tiny", trainer=trainer, scene=scene)
    view = scene.views[1]
    image = model.render(view.camera).colors.double().requires_grad_()
    total, _ = photometric_loss(image, load_target(view, model.background).double(), kind=loss)
    expected, = torch.autograd.grad(total, image)
    for x, y in ((0, 0), (47, 0), (0, 47), (47, 47), (24, 24), (7, 30)):
        answer = xray(model, XRayQuestion(Sight.of(view.camera), x, y, 1))
        assert answer.view == view.name and answer.loss == loss
        np.testing.assert_allclose(answer.cotangent, expected[y, x].numpy(), rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
    other = replace(view.camera, K=view.camera.K * [[1.1], [1.1], [1.0]])
    assert xray(model, XRayQuestion(Sight.of(other), 5, 5, 1)).loss == ""   # not the photograph's pixels


def trained_model(scene, steps: int) -> Model:
    trainer = Trainer(scene, TrainConfig(iterations=7000, sh_every=4), backend="cpu")
    for _ in range(steps):
        trainer.step()
    return Model("trained", trainer=trainer, scene=scene)


def held_to_the_loss(model: Model, answer: XRay, index: int) -> None:
    view = model.scene.views[index]
    image = model.render(view.camera).colors.double().requires_grad_()
    loss, _ = photometric_loss(image, load_target(view, model.background).double())
    expected, = torch.autograd.grad(loss, image)
    np.testing.assert_allclose(answer.cotangent, expected[answer.y, answer.x].numpy(), rtol=2e-3,
                               atol=1e-4 * float(expected.abs().max()))


def test_the_demo_while_it_trains() -> None:
    """Also M04: an X-ray takes less than 30 ms."""
    model = trained_model(open_scene(demo_folder()), 12)
    index = next(i for i, view in enumerate(model.scene.views) if view.split == "train")
    camera = model.scene.views[index].camera
    seconds = []
    for x, y in ((camera.width // 2, camera.height // 2), (camera.width - 1, camera.height - 1), (90, 170)):
        question = XRayQuestion(Sight.of(camera), x, y, index)
        begun = time.perf_counter()
        answer = xray(model, question)
        seconds.append(time.perf_counter() - begun)
        held_to_reference(model, camera, answer)
        held_to_the_loss(model, answer, index)
    assert len(answer.uids) > 10 and min(seconds) < 0.03


def test_the_fox() -> None:
    model = trained_model(open_scene(real_data("scenes", "fox_colmap"), long_side=480), 12)
    camera = model.scene.views[3].camera
    for x, y in ((camera.width // 2, camera.height // 2), (20, 20)):
        answer = xray(model, XRayQuestion(Sight.of(camera), x, y, 3))
        held_to_reference(model, camera, answer)
        held_to_the_loss(model, answer, 3)
        assert len(answer.uids) > 3
