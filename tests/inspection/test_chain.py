"""The Gaussian card's chain: forward values, cotangents, Adam and fate, recomputed by the reference in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.data.open import open_scene
from app.demo import demo_folder
from app.engine.model import Model
from app.inspection.chain import chain
from app.inspection.fate import fate
from app.inspection.questions import ChainQuestion, Sight, Unanswerable
from app.inspection.results import Chain, Link
from app.training.optimizer import BETA1, BETA2
from app.training.trainer import Trainer
from app.training.views import load_target
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.reference.activate import activate
from render.reference.binning import bin_tiles
from render.reference.project import project, quats_to_rotations
from render.reference.rasterize import rasterize
from render.reference.sh import sh_to_colors
from render.reference.ssim import photometric_loss
from render.types import PARAM_GROUPS, GaussianParams
from tests.realdata import real_data
from tests.scenes import make_random
from tests.training.tiny import make_scene

RAW = {"mean": "means", "log_scale": "log_scales", "quat, raw": "quats", "logit_opacity": "logit_opacities", "sh0": "sh0",
       "shN": "shN"}
ROUNDING = 1e-4   # float32 of a step against float64, of the largest entry


@pytest.fixture(autouse=True)
def one_torch_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def last_step(trainer: Trainer) -> tuple[GaussianParams, dict[str, torch.Tensor]]:
    """Take a step; (float64 parameters that it saw, moments before it)."""
    before = GaussianParams(**{n: t.detach().double().clone() for n, t in trainer.params.trained().items()},
                            uids=trainer.params.uids.clone())
    moments = {f"{kind}.{group}": moment.double().clone() for group in PARAM_GROUPS
               for kind, moment in zip("mv", trainer.state.optimizer.moments(group))}
    trainer.step()
    return before, moments


def links_of(answer: Chain) -> dict[str, Link]:
    return {link.name: link for link in answer.links}


def reference_cotangents(trainer: Trainer, params: GaussianParams) -> dict[str, torch.Tensor]:
    """dL/d every stage's variables by the reference's autograd through the whole picture, float64, [N,...]."""
    params.requires_grad_()
    view, raster = trainer.views[trainer.last_view_index], trainer.config.raster
    gaussians = activate(params)
    projected = project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, view.camera, raster)
    degree = trainer.schedule.sh_degree(trainer.iteration, trainer.config.sh_degree)
    colors = sh_to_colors(gaussians.means, gaussians.sh, view.camera, degree)
    opacities = gaussians.opacities * projected.compensations
    bins = bin_tiles(projected, opacities.detach(), view.camera, raster)
    image, *_ = rasterize(projected, colors, opacities, bins, view.camera, trainer.background.double(), raster)
    loss, _ = photometric_loss(image, load_target(view, trainer.background).double())
    nodes = {"color": colors, "opacity_eff": opacities, "conic": projected.conics, "mean2D": projected.means2d,
             "quat": gaussians.quats, "scale": gaussians.scales, "opacity": gaussians.opacities, **params.trained()}
    found = torch.autograd.grad(loss, list(nodes.values()), allow_unused=True)
    return {name: torch.zeros_like(node) if v is None else v for (name, node), v in zip(nodes.items(), found, strict=True)}


def close(got: np.ndarray | None, expected: torch.Tensor, name: str, tolerance: float = ROUNDING) -> None:
    assert got is not None, name
    want = expected.detach().numpy()
    room = tolerance * max(np.abs(want).max(), 1e-12)
    np.testing.assert_allclose(got, want.reshape(got.shape), rtol=0, atol=room, err_msg=name)


def covariance_links_agree(links: dict[str, Link], camera, config: RasterConfig) -> None:
    """cov3D and cov2D as whole matrices: values and cotangents from those of conic, by matrix algebra."""
    view = torch.as_tensor(camera.viewmat)
    x, y, z = torch.from_numpy(links["mean, camera"].value)
    fx, fy = camera.K[0, 0], camera.K[1, 1]
    jacobian = torch.tensor([[fx / z, 0.0, -fx * x / z**2], [0.0, fy / z, -fy * y / z**2]], dtype=torch.float64)
    onto = jacobian @ view[:3, :3]
    rotation = quats_to_rotations(torch.from_numpy(links["quat"].value)[None])[0]
    sigma = (rotation @ torch.diag(torch.from_numpy(links["scale"].value))**2 @ rotation.T).requires_grad_()
    flat = onto @ sigma @ onto.T + config.eps2d * torch.eye(2, dtype=torch.float64)
    inverse = torch.linalg.inv(flat)
    a, b, c = torch.from_numpy(links["conic"].cotangent)
    pull = a * inverse[0, 0] + b * 0.5 * (inverse[0, 1] + inverse[1, 0]) + c * inverse[1, 1]
    v_flat, v_sigma = torch.autograd.grad(pull, [flat, sigma])
    rows, columns = np.triu_indices(3)
    twice = torch.from_numpy(np.where(rows == columns, 0.5, 1.0))
    close(links["cov3D"].value, sigma[rows, columns], "cov3D", 1e-9)
    close(links["cov2D"].value, flat[[0, 0, 1], [0, 1, 1]], "cov2D", 1e-9)
    close(links["cov2D"].cotangent, torch.stack([v_flat[0, 0], v_flat[0, 1] + v_flat[1, 0], v_flat[1, 1]]), "v_cov2D", 1e-8)
    close(links["cov3D"].cotangent, (v_sigma + v_sigma.T)[rows, columns] * twice, "v_cov3D", 1e-8)


def held_to_reference(trainer: Trainer, model: Model, before: GaussianParams, moments: dict, uids: list[int]) -> None:
    expected = reference_cotangents(trainer, before)
    largest = {name: v.abs().amax() for name, v in expected.items()}
    for uid in uids:
        index = int(torch.nonzero(before.uids == uid)[0, 0])
        answer = chain(model, ChainQuestion(uid))
        links = links_of(answer)
        assert answer.iteration == trainer.iteration and answer.view == trainer.views[trainer.last_view_index].name
        for name, group in RAW.items():
            close(links[name].value, getattr(before, group)[index], name, 1e-6)
        for name, v in expected.items():
            shown = {group: link for link, group in RAW.items()}.get(name, name)
            if name == "shN" and links["shN"].cotangent is None:
                continue
            scale = float(v[index].abs().max())
            tolerance = ROUNDING * max(1.0, 0.05 * float(largest[name]) / max(scale, 1e-30))   # sums of many pixels' terms
            close(links[shown].cotangent, v[index], name, tolerance)
        whole = links["mean, projection"].cotangent + links["mean, SH direction"].cotangent
        close(whole, expected["means"][index], "mean in two parts",
              ROUNDING * max(1.0, 0.05 * float(largest["means"]) / max(float(expected["means"][index].abs().max()), 1e-30)))
        for name in RAW:
            assert not links[name].residual > 2e-5, (name, links[name].residual)
        if not trainer.config.raster.antialiased:
            covariance_links_agree(links, trainer.last_camera, trainer.config.raster)
        held_to_adam(trainer, answer, index, moments, before)


def held_to_adam(trainer: Trainer, answer: Chain, index: int, moments: dict, before: GaussianParams) -> None:
    assert answer.steps == trainer.iteration and len(answer.adam) >= 5
    for state in answer.adam:
        g = trainer.gradients()[state.group][index].double().numpy()
        m = BETA1 * moments[f"m.{state.group}"][index].numpy() + (1 - BETA1) * g
        v = BETA2 * moments[f"v.{state.group}"][index].numpy() + (1 - BETA2) * g * g
        np.testing.assert_allclose(state.exp_avg, m, rtol=1e-5, atol=1e-6 * np.abs(m).max(initial=0.0))
        np.testing.assert_allclose(state.exp_avg_sq, v, rtol=1e-4, atol=1e-6 * np.abs(v).max(initial=0.0))
        moved = (trainer.params.trained()[state.group][index].detach().double() - getattr(before, state.group)[index]).detach()
        np.testing.assert_allclose(state.update, moved.numpy(), rtol=2e-3, atol=3e-7)
        assert np.abs(state.update).max(initial=0.0) <= 8 * state.rate


def seen(trainer: Trainer, count: int) -> list[int]:
    """uids of the Gaussians with the largest, the middle and the least gradient of the last step."""
    sizes = trainer.gradients()["means"].norm(dim=1)
    order = torch.argsort(sizes, descending=True)
    order = order[sizes[order] > 0]
    return [int(trainer.params.uids[i]) for i in order[torch.linspace(0, len(order) - 1, count).long()]]


@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_every_link_in_every_gradient_mode(mode: str, backend: str) -> None:
    raster = RasterConfig(alpha_gradient=mode, alpha_max=0.8, antialiased=mode == "straight_through")
    config = TrainConfig(iterations=100, sh_degree=1, sh_every=1, raster=raster, densify=DensifyConfig(absgrad=mode == "exact"))
    scene = make_scene(3, 30)
    trainer = Trainer(scene, config, backend=backend)
    for _ in range(6):
        trainer.step()
    assert trainer.sh_degree == 1
    before, moments = last_step(trainer)
    model = Model("tiny", trainer=trainer, scene=scene)
    held_to_reference(trainer, model, before, moments, seen(trainer, 6))
    links = links_of(chain(model, ChainQuestion(seen(trainer, 1)[0])))
    assert np.abs(links["mean, SH direction"].cotangent).max() > 0
    assert ("mean2D, absolute" in links) is (mode == "exact")


def test_one_that_was_not_seen_moves_by_momentum_and_one_without_a_step_has_no_gradient() -> None:
    scene = make_scene(3, 30)
    trainer = Trainer(scene, TrainConfig(iterations=100), backend="cpu")
    model = Model("tiny", trainer=trainer, scene=scene)
    answer = chain(model, ChainQuestion(0, Sight.of(scene.views[0].camera)))
    links = links_of(answer)
    assert answer.iteration == 0 and "No step" in answer.notes[0] and not answer.adam
    assert all(link.cotangent is None for link in answer.links) and {"conic", "mean2D", "cov3D"} <= set(links)
    trainer.step()
    with torch.no_grad():
        trainer.params.means[5] = 1e3   # behind every camera or far beside
    trainer._activated = None
    trainer.step()
    answer = chain(model, ChainQuestion(5))
    assert any("not in the last view" in note for note in answer.notes)
    assert "conic" not in links_of(answer) and np.array_equal(links_of(answer)["mean"].cotangent, np.zeros(3))
    assert any(np.abs(state.update).max() > 0 for state in answer.adam), "momentum"
    with pytest.raises(Unanswerable, match="gone"):
        chain(model, ChainQuestion(10_000))


def test_a_model_without_a_trainer_shows_its_values() -> None:
    case = make_random(20, 48, 32, seed=1, dtype=torch.float32)
    model = Model("still", fixed_params=case.params, fixed_backend="cpu")
    answer = chain(model, ChainQuestion(int(case.params.uids[3]), Sight.of(case.camera)))
    assert "only looked at" in answer.notes[0] and answer.fate is None and not answer.trails
    links, double = links_of(answer), case.to(torch.float64)
    gaussians = activate(double.params)
    projected = project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, case.camera, RasterConfig())
    if float(projected.extents[3, 0]) > 0:
        close(links["conic"].value, projected.conics[3], "conic", 1e-9)
        close(links["mean2D"].value, projected.means2d[3], "mean2D", 1e-9)
        close(links["color"].value, sh_to_colors(gaussians.means, gaussians.sh, case.camera, 3)[3], "color", 1e-9)
    assert len([link for link in answer.links if link.cotangent is None]) == len(answer.links)


def test_fate_is_what_densification_does() -> None:
    """The verdict on every Gaussian, and the cap's, against the event itself."""
    for cap in (0, 75):
        scene = make_scene(4, 40)
        densify = DensifyConfig(start=10, stop=10_000, every=10_000, cap=cap, grad_threshold=4e-4, prune_opacity=0.1)
        trainer = Trainer(scene, TrainConfig(iterations=30_000, densify=densify, schedule_iterations=30_000), backend="cpu")
        for _ in range(8):
            trainer.step()
        trainer.schedule = replace(trainer.schedule, start=5, every=9)
        uids = trainer.params.uids.tolist()
        fates = {uid: fate(trainer, i) for i, uid in enumerate(uids)}
        assert {f.next_event for f in fates.values()} == {9}
        record = trainer.strategy.densify(trainer.state, 9, densify, after_reset=False)
        trainer._densified(record)
        told = {verdict: {u for u, f in fates.items() if f.verdict == verdict} for verdict in ("clone", "split", "prune")}
        pruned = set(record.pruned.tolist()) & set(uids)
        assert told["prune"] == pruned | {u for u in told["prune"] if u in set(record.split.tolist())}
        assert told["clone"] == set(record.cloned.tolist()) - pruned
        assert told["split"] == set(record.split.tolist()) - told["prune"]
        assert told["clone"] | told["split"]
        model = Model("tiny", trainer=trainer, scene=scene)
        alive = [i for i, uid in enumerate(record.born.tolist()) if uid in set(trainer.params.uids.tolist())]
        parent, child = int(record.parents[alive[0]]), int(record.born[alive[0]])
        assert chain(model, ChainQuestion(child)).parent.uid == parent
        if parent in told["clone"]:
            family = chain(model, ChainQuestion(parent)).children
            assert [(c.uid, c.alive) for c in family] == [(u, True) for u, p in zip(record.born, record.parents) if p == parent]


def test_trails_grow_while_they_are_asked_for() -> None:
    scene = make_scene(3, 20)
    trainer = Trainer(scene, TrainConfig(iterations=100), backend="cpu")
    model = Model("tiny", trainer=trainer, scene=scene)
    for _ in range(3):
        trainer.step()
        chain(model, ChainQuestion(4))
        answer = chain(model, ChainQuestion(4))   # the same step twice counts once
    by_label = {trail.label: trail for trail in answer.trails}
    assert all(trail.iterations.tolist() == [1, 2, 3] for trail in answer.trails)
    assert by_label["opacity"].values[-1] == pytest.approx(float(trainer.gaussians().opacities[4]))
    assert by_label["|∂L/∂mean|"].values[-1] == pytest.approx(float(trainer.gradients()["means"][4].norm()))


def test_the_demo() -> None:
    scene = open_scene(demo_folder(), long_side=96)
    trainer = Trainer(scene, TrainConfig(iterations=7000, sh_every=2), backend="cpu")
    for _ in range(6):
        trainer.step()
    before, moments = last_step(trainer)
    held_to_reference(trainer, Model("demo", trainer=trainer, scene=scene), before, moments, seen(trainer, 4))


def test_the_fox() -> None:
    scene = open_scene(real_data("scenes", "fox_colmap"), long_side=128)
    trainer = Trainer(scene, TrainConfig(iterations=7000, sh_every=2), backend="cpu")
    for _ in range(6):
        trainer.step()
    before, moments = last_step(trainer)
    held_to_reference(trainer, Model("fox", trainer=trainer, scene=scene), before, moments, seen(trainer, 4))
