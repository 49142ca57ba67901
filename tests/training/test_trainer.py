"""One step after another: order, micro-batches, targets, the guard against NaN, options, determinism."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.data.scene import Scene, SceneError, View
from app.training import step as step_module
from app.training import trainer as trainer_module
from app.training.densify.base import Candidates, DensifyRecord, Strategy
from app.training.trainer import STRATEGIES, Trainer
from app.training.verdict import TrainingStopped
from app.training.views import ViewOrder, load_target
from render import timing
from render.backends import cpu
from render.types import PARAM_GROUPS, Camera
from tests.training.tiny import make_params, make_scene

STILL = DensifyConfig(strategy="none")
CLOSE = DensifyConfig(start=0, every=20, stop=160, reset_every=90)   # within a short run, unscaled


def snapshot(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainer.params.trained().items()}


def test_loss_falls_and_the_report_says_what_happened():
    trainer = Trainer(make_scene(), TrainConfig(iterations=30, densify=STILL), backend="cpu")
    reports = [trainer.step() for _ in range(30)]
    first, last = (np.mean([r.loss for r in part]) for part in (reports[:6], reports[-6:]))
    assert last < 0.8 * first
    report = reports[-1]
    assert report.iteration == trainer.iteration == 30 and report.gaussians == len(trainer.params) == 60
    assert report.loss == pytest.approx(0.8 * report.l1 + 0.2 * (1 - report.ssim), rel=1e-5)
    assert report.psnr > reports[0].psnr
    assert report.view_name == trainer.views[trainer.last_view_index].name
    assert set(report.stage_ms) == {"project", "sh", "binning", "rasterize", "loss", "backward", "adam", "other"}
    assert report.stage_ms["backward"] > 0 and report.stage_ms["adam"] > 0


def test_stage_times_of_all_views_of_a_step_add_up_to_the_step(monkeypatch):
    trainer = Trainer(make_scene(), TrainConfig(iterations=9, micro_batch=4, densify=STILL), backend="cpu")
    trainer.step()

    @contextmanager
    def ten_ms(stage):
        yield
        timing.record(stage, 10.0)

    began = time.perf_counter()
    stage_ms = trainer.step().stage_ms
    whole = 1e3 * (time.perf_counter() - began)
    assert 0.5 * whole <= sum(stage_ms.values()) <= whole and all(ms > 0 for ms in stage_ms.values())
    monkeypatch.setattr(timing, "measure", ten_ms)
    stage_ms = trainer.step().stage_ms
    assert stage_ms["adam"] == 50.0   # five groups: shN is not in use yet
    assert all(stage_ms[name] == 40.0 for name in timing.STAGES if name not in ("adam", "other"))


def test_held_out_cameras_do_not_set_the_extent():
    scene = make_scene(6, test_every=3)
    moved = [view if view.split == "train" else replace(view, camera=scene.train[0].camera) for view in scene.views]
    extents = [Trainer(replace(scene, views=views), TrainConfig(), backend="cpu").extent
               for views in (scene.views, moved, scene.train)]
    assert extents == [extents[0]] * 3


def test_only_training_views_are_trained_on_each_once_a_round():
    trainer = Trainer(make_scene(6, test_every=3), TrainConfig(iterations=8, densify=STILL), backend="cpu")
    names = [trainer.step().view_name for _ in range(8)]
    assert sorted(names[:4]) == sorted(names[4:]) == sorted(view.name for view in trainer.scene.train)


def test_view_order_is_a_new_permutation_each_round_fixed_by_the_seed():
    rounds = [[order.next() for _ in range(20)] for order in [ViewOrder(20, 3)] for _ in range(2)]
    assert sorted(rounds[0]) == sorted(rounds[1]) == list(range(20)) and rounds[0] != rounds[1]
    assert [ViewOrder(20, 3).next() for _ in range(3)] == [rounds[0][0]] * 3
    assert [order.next() for order in [ViewOrder(20, 4)] for _ in range(20)] != rounds[0]


def test_F05_order_is_backward_statistics_adam_gradients_dropped_densify(monkeypatch):
    events: list[str] = []
    trainer = Trainer(make_scene(), TrainConfig(iterations=10), backend="cpu")

    class Watching(Strategy):
        def after_backward(self, state, seen, config):
            assert seen.tap.v_means2d.abs().max() > 0
            assert torch.equal(state.rows["means"].detach(), before["means"])
            events.append("statistics")

        def after_step(self, state, iteration, config, schedule) -> DensifyRecord | None:
            assert all(tensor.grad is None for tensor in state.rows.params.trained().values())
            assert not torch.equal(state.rows["means"].detach(), before["means"])
            events.append("densify")
            return None

        def plan(self, state, *_) -> Candidates:
            return Candidates.nothing(state.rows, "it only watches.")

        def carry_out(self, *_) -> DensifyRecord:
            raise AssertionError("nothing was planned")

    backward, step = torch.Tensor.backward, trainer.state.optimizer.step
    monkeypatch.setattr(torch.Tensor, "backward", lambda self, *a: (events.append("backward"), backward(self, *a))[1])
    monkeypatch.setattr(trainer.state.optimizer, "step", lambda *a, **k: (events.append("adam"), step(*a, **k))[1])
    trainer.strategy = Watching()
    before = snapshot(trainer)
    trainer.step()
    assert events == ["backward", "statistics", "adam", "densify"]


def test_micro_batch_gradient_is_the_mean_and_statistics_are_those_of_each_view():
    scene = make_scene(3)
    singles = []
    for index in range(3):
        trainer = Trainer(Scene("one", "transforms", [scene.views[index]], scene.points),
                          TrainConfig(iterations=9, densify=STILL), backend="cpu")
        trainer.extent = 1.0
        trainer.step()
        singles.append(trainer)
    batch = Trainer(scene, TrainConfig(iterations=9, micro_batch=3, densify=STILL), backend="cpu")
    report = batch.step()
    for name in ("means", "quats", "log_scales", "logit_opacities", "sh0"):
        mean = sum(single.gradients()[name] for single in singles) / 3
        assert mean.abs().max() > 0
        torch.testing.assert_close(batch.gradients()[name], mean, rtol=1e-4, atol=1e-5 * float(mean.abs().max()))
    # the statistic is the mean over views of each view's own gradient: nothing is divided by k
    total = sum(single.state.rows["stat.sum"] for single in singles)
    torch.testing.assert_close(batch.state.rows["stat.sum"], total, rtol=1e-4, atol=1e-9)
    assert batch.state.rows["stat.count"].max() == 3
    assert report.iteration == 1 and batch.state.optimizer.steps["means"] == 1


# ------------------------------------------------------------------ targets

def view_of(pixels: np.ndarray) -> View:
    height, width = pixels.shape[:2]
    return View("v", Camera(np.eye(4), np.array([[50.0, 0, 8], [0, 50, 8], [0, 0, 1]]), width, height), lambda: pixels)


def test_D07_D08_alpha_is_composited_over_the_background_rendered_with():
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:] = (255, 51, 0, 51)   # alpha 0.2
    target = load_target(view_of(pixels), torch.tensor([1.0, 1.0, 1.0]))
    assert target[3, 4].tolist() == pytest.approx([1.0, 0.2 * 0.2 + 0.8, 0.8])
    assert load_target(view_of(pixels), torch.zeros(3))[3, 4].tolist() == pytest.approx([0.2, 0.04, 0.0])
    with pytest.raises(ValueError, match="v: the picture is 16x16 px, its camera 9x9 px"):
        load_target(View("v", Camera(np.eye(4), np.eye(3), 9, 9), lambda: pixels), torch.zeros(3))


@pytest.mark.parametrize("white", (False, True))
def test_D08_a_gaussian_in_a_transparent_region_gets_an_opacity_gradient(white):
    scene = make_scene(3, rgba=True)
    empty = np.zeros((48, 48, 4), np.uint8)
    views = [View(view.name, view.camera, lambda: empty) for view in scene.views]
    trainer = Trainer(Scene("empty", "transforms", views, scene.points, has_alpha=True),
                      TrainConfig(iterations=3, white_background=white, densify=STILL), backend="cpu")
    trainer.step()
    seen = trainer.last_extents[:, 0] > 0
    gradient = trainer.gradients()["logit_opacities"][seen]
    assert (gradient > 0).float().mean() > 0.9   # descending makes it more transparent


def test_D22_no_usable_view_stops_before_the_optimiser_is_made(monkeypatch):
    monkeypatch.setattr(trainer_module, "Optimizer", lambda rows: pytest.fail("the optimiser was made"))
    with pytest.raises(SceneError, match="no view is left to train on"):
        Trainer(Scene("nowhere", "colmap", [], None), TrainConfig(), backend="cpu")


def test_D16_a_scene_without_points_trains_and_says_so():
    trainer = Trainer(make_scene(points=None), TrainConfig(iterations=2, init_points=150), backend="cpu")
    assert any("no points" in notice for notice in trainer.notices)
    assert trainer.step().gaussians == 150


def test_F15_extent_comes_from_the_cameras_and_can_be_changed():
    trainer = Trainer(make_scene(), TrainConfig(iterations=2), backend="cpu")
    assert trainer.extent == pytest.approx(1.1 * 4.0, rel=0.1)
    assert trainer.set_option("extent", 2.5) and trainer.extent == trainer.state.extent == 2.5
    single = Trainer(make_scene(1), TrainConfig(iterations=2), backend="cpu")
    assert single.extent == pytest.approx(4.0, rel=0.2)   # the distance to the points


# ------------------------------------------------------------------ N16

def test_N16_a_gradient_that_is_not_finite_stops_with_everything_as_before_the_step(monkeypatch):
    trainer = Trainer(make_scene(), TrainConfig(iterations=9, densify=STILL), backend="cpu")
    trainer.step()
    before, moments = snapshot(trainer), trainer.state.optimizer.moments("means")[0].clone()
    seen = trainer.state.rows["stat.count"].clone()

    def poisoned(image, target, **kw):
        loss, terms = original(image, target, **kw)
        return loss + (trainer.params.log_scales[7, 1] * 0.0 + 1.0).log() * 0.0 + _Poison.apply(
            trainer.params.log_scales), terms

    class _Poison(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            ctx.save_for_backward(values)
            return values.new_zeros(())

        @staticmethod
        def backward(ctx, *_):
            gradient = torch.zeros_like(ctx.saved_tensors[0])
            gradient[7, 1] = float("nan")
            return gradient

    original = step_module.photometric_loss
    monkeypatch.setattr(step_module, "photometric_loss", poisoned)
    with pytest.raises(TrainingStopped, match=r"iteration 2.*gradient of log_scales.*uid 7\).*view\d\.png"):
        trainer.step()
    for name, tensor in trainer.params.trained().items():
        assert torch.equal(tensor.detach(), before[name]), name
        assert tensor.grad is None
    assert trainer.iteration == 1 and torch.equal(trainer.state.optimizer.moments("means")[0], moments)
    assert torch.equal(trainer.state.rows["stat.count"], seen)
    monkeypatch.setattr(step_module, "photometric_loss", original)
    assert trainer.step().iteration == 2   # and it can go on


def test_N16_a_loss_that_is_not_finite_names_step_and_view(monkeypatch):
    trainer = Trainer(make_scene(), TrainConfig(iterations=9, densify=STILL), backend="cpu")
    before = snapshot(trainer)
    original = step_module.photometric_loss
    monkeypatch.setattr(step_module, "photometric_loss",
                        lambda image, target, **kw: (original(image, target, **kw)[0] * float("inf"), torch.zeros(3)))
    with pytest.raises(TrainingStopped, match=r"iteration 1: the loss of view view\d\.png is (inf|nan)"):
        trainer.step()
    assert all(torch.equal(tensor.detach(), before[name]) for name, tensor in trainer.params.trained().items())


def test_a_photograph_that_cannot_be_decoded_leaves_no_half_a_step():
    scene = make_scene(3)
    broken = View("broken.png", scene.views[1].camera, lambda: (_ for _ in ()).throw(SceneError("broken.png is cut off")))
    scene.views[1] = broken
    trainer = Trainer(scene, TrainConfig(iterations=9, micro_batch=3, densify=STILL), backend="cpu")
    before = snapshot(trainer)
    with pytest.raises(SceneError, match="cut off"):
        trainer.step()
    assert trainer.iteration == 0
    for name, tensor in trainer.params.trained().items():
        assert tensor.grad is None and torch.equal(tensor.detach(), before[name])


# ------------------------------------------------------------------ options

def test_options_act_in_the_next_step_and_say_whether_they_do():
    trainer = Trainer(make_scene(), TrainConfig(iterations=100, densify=STILL), backend="cpu")
    trainer.step()
    assert trainer.set_option("raster.alpha_gradient", "straight_through") is True
    assert trainer.config.raster.alpha_gradient == "straight_through"
    assert trainer.set_option("seed", 5) is False
    for group in ("means_lr", "means_lr_final", "quat_lr", "scale_lr", "opacity_lr", "sh0_lr", "shN_lr"):
        trainer.set_option(group, 1e-30)
    before = snapshot(trainer)
    trainer.step()
    assert all(torch.allclose(tensor.detach(), before[name], atol=1e-7)
               for name, tensor in trainer.params.trained().items())
    for wrong in ("no_such", "densify.no_such", "no.such", "iterations.x", ""):
        with pytest.raises(ValueError, match="no option"):
            trainer.set_option(wrong, 1)
    with pytest.raises(ValueError, match="alpha_max"):
        trainer.set_option("raster.alpha_max", 2.0)


def test_F18_raising_the_iterations_says_that_the_window_moves():
    trainer = Trainer(make_scene(), TrainConfig(iterations=1000), backend="cpu")
    stop = trainer.schedule.stop
    trainer.set_option("iterations", 4000)
    assert trainer.schedule.stop > stop and any(f"{trainer.schedule.stop:,}" in text for text in trainer.notices)


def test_F09_toggling_absgrad_starts_its_statistic_anew_and_never_mixes():
    trainer = Trainer(make_scene(), TrainConfig(iterations=100, densify=STILL), backend="cpu")
    trainer.step()
    trainer.set_option("densify.absgrad", True)
    assert trainer.statistics.never_seen.all()
    trainer.step()
    signed, absolute = trainer.statistics.average(False), trainer.statistics.average(True)
    assert absolute.max() > 0 and (absolute >= signed * (1 - 1e-4)).all()


def test_strategy_none_keeps_the_count_and_F11_the_cap_holds_in_training():
    config = TrainConfig(iterations=60, schedule_iterations=30000, densify=CLOSE)
    trainer = Trainer(make_scene(), config, backend="cpu")
    trainer.set_option("densify.cap", 70)
    counts = [trainer.step().gaussians for _ in range(60)]
    assert 60 < max(counts) <= 70
    trainer.set_option("densify.strategy", "none")
    assert trainer.step().gaussians == counts[-1]
    assert set(STRATEGIES) == set(DensifyConfig.__dataclass_fields__["strategy"].metadata["choices"])


def test_F08_taps_and_gradients_of_the_last_step_follow_a_densification():
    cloning = replace(CLOSE, percent_dense=0.1)
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, schedule_iterations=30000, densify=cloning),
                      backend="cpu")
    while not (trainer.records and trainer.records[-1].event.cloned):
        trainer.step()
    count = len(trainer.params)
    assert trainer.tap.v_means2d.shape == (count, 2) and trainer.last_extents.shape == (count, 2)
    assert all(gradient.shape[0] == count for gradient in trainer.gradients().values())
    born = torch.isin(trainer.params.uids, torch.from_numpy(trainer.records[-1].born))
    assert born.any() and not trainer.tap.v_means2d[born].any() and trainer.tap.v_means2d[~born].any()
    assert set(trainer.state.rows.nbytes) >= {"parameters", "adam", "statistics", "gradients"}


def test_given_parameters_are_trained_on_and_render_shows_them():
    params = make_params(25, seed=9, sh_degree=2)
    trainer = Trainer(make_scene(), TrainConfig(iterations=9), backend="cpu", params=params)
    assert len(trainer.params) == 25
    picture = trainer.render(trainer.views[0].camera).colors
    assert picture.max() > 0.1 and not picture.requires_grad
    trainer.step()
    assert not torch.equal(trainer.render(trainer.views[0].camera).colors, picture)


# ------------------------------------------------------------------ N24

def fingerprint(trainer: Trainer) -> str:
    digest = hashlib.sha256()
    for name in (*PARAM_GROUPS, "uids"):
        digest.update(trainer.state.rows[name].detach().numpy().tobytes())
    return digest.hexdigest()


def run_200(threads: int) -> tuple[str, int]:
    before = torch.get_num_threads(), cpu.threads()
    torch.set_num_threads(threads)
    cpu.set_threads(threads)
    try:
        densify = replace(CLOSE, every=30, grad_threshold=4e-4)
        config = TrainConfig(iterations=200, schedule_iterations=30000, sh_every=50, seed=7, densify=densify)
        trainer = Trainer(make_scene(6, 80, size=56, points=400), config, backend="cpu")
        for _ in range(200):
            trainer.step()
    finally:
        torch.set_num_threads(before[0])
        cpu.set_threads(before[1])
    assert any(record.event.cloned and record.event.split for record in trainer.records)
    assert any(record.event.reset for record in trainer.records)
    return fingerprint(trainer), len(trainer.params)


def test_N24_cpu_training_has_the_same_bits_at_1_2_and_4_threads_and_twice():
    runs = [run_200(threads) for threads in (1, 2, 4, 2)]
    assert len(set(runs)) == 1 and runs[0][1] > 400


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_sparse_adam_moves_only_what_a_picture_of_the_step_shows(backend, micro_batch):
    scene = make_scene(4, 12, size=32, points=30)
    away = np.array([[0.0, 90.0, 0.0]], np.float32)   # seen by no camera
    scene.points.positions[:1] = away
    config = TrainConfig(iterations=100, sparse_adam=True, micro_batch=micro_batch)
    trainer = Trainer(scene, config, backend=backend)
    with torch.no_grad():
        trainer.params.log_scales[0] = -3.0   # small, though far from its neighbours
    before = snapshot(trainer)
    momentum = torch.ones(3)
    trainer.state.optimizer.moments("means")[0][0] = momentum   # plain Adam would go on with it
    for _ in range(3):
        trainer.step()
    after = snapshot(trainer)
    assert trainer.last_extents is not None and float(trainer.last_extents[0].max()) == 0.0
    assert all(torch.equal(before[name][0], after[name][0]) for name in before)
    assert torch.equal(trainer.state.optimizer.moments("means")[0][0], momentum)
    assert not torch.equal(before["means"][1:], after["means"][1:])
    trainer.set_option("sparse_adam", False)
    trainer.step()
    assert not torch.equal(after["means"][0], snapshot(trainer)["means"][0])
