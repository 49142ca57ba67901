"""Parts of a step, goals, options changed while it runs, and who gets the time, through the engine's mailboxes."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.engine import control
from app.pace import PaceConfig
from app.training.densify.base import DensifyRecord
from app.training.trainer import Trainer
from tests.app.engine_doubles import QuickTrainer, Window, request_for, running_engine, trainer_class
from tests.training.tiny import make_scene


class Densifying(Trainer):
    """Says at once what a densification would."""

    def densify_now(self) -> DensifyRecord:
        assert self.phase == ""
        return DensifyRecord(m.Densified(self.iteration, cloned=2, count=len(self.params)))


CONFIG = TrainConfig(iterations=1000, schedule_iterations=30_000, densify=DensifyConfig(start=3, every=4, stop=900,
                                                                                        grad_threshold=1e-6))


def take(window: Window, part: str) -> m.Steering:
    window.send(m.TakePart(part))
    window.sync()
    window.until(lambda: not window.engine.control.parts)
    window.send(m.Pause())
    window.sync()
    return window.snapshot.steering


def said(window: Window) -> str:
    return window.of(m.Notice)[-1].text


@pytest.fixture(scope="module")
def shared():
    with running_engine(CONFIG, make_trainer=Densifying, backend="cpu") as window:
        window.open()
        yield window


def test_the_parts_of_a_step_one_by_one_and_what_the_window_is_told(shared):
    window = shared
    trainer = window.engine.model.trainer
    start = trainer.params.means.detach().clone()
    assert take(window, "forward").phase == "" and trainer.iteration == 0
    ahead = window.of(m.ViewForwarded)[-1]
    assert ahead.iteration == 1 and ahead.loss > 0 and math.isfinite(ahead.psnr)

    steering = take(window, "backward")
    assert steering.phase == "backward" and window.snapshot.iteration == 0 and window.snapshot.state == "paused"
    assert window.snapshot.view_name == ahead.view and window.snapshot.loss == ahead.loss
    assert np.array_equal(trainer.params.means.detach(), start) and trainer.gradients()["means"].any()
    take(window, "backward")
    assert "known already" in said(window)
    take(window, "densify")
    assert "let the optimiser go first" in said(window)

    steering = take(window, "optimiser")
    assert steering.phase == "update" and window.snapshot.iteration == 1
    assert not np.array_equal(trainer.params.means.detach(), start)
    take(window, "optimiser")
    assert "already moved" in said(window)
    steering = take(window, "densify")   # nothing is due at iteration 1: the parts together are the whole step
    assert steering.phase == "" and not window.of(m.Densified) and "brings no densification" in said(window)
    steering = take(window, "densify")   # between steps: an event at once
    assert steering.phase == "" and window.of(m.Densified)[-1] == m.Densified(1, cloned=2, count=len(trainer.params))
    take(window, "optimiser")
    assert "take the backward pass first" in said(window)


@pytest.mark.parametrize("change, counts", [
    (m.Step(), True), (m.SetOption("lambda_dssim", 0.3), True), (m.DensifyNow(), True), (m.Reset(), True),
    (m.BranchFrom(m.Moment("main", 6), "try"), True), (m.Select(uid=3), False), (m.SetOption("lambda_dssim", 0.2), False),
    (m.TakePart("backward"), False)])
def test_what_the_forward_pass_measured_is_of_now_until_something_changes(change, counts):
    with running_engine(CONFIG, make_trainer=Densifying, backend="cpu") as window:
        window.open()
        assert not window.snapshot.steering.forwarded
        window.send(m.Step(6))
        window.until(lambda: window.snapshot.iteration == 6 and window.snapshot.state == "paused")
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 7 and window.snapshot.state == "paused")
        assert take(window, "forward").forwarded and window.of(m.ViewForwarded)[-1].iteration == 8
        window.send(change)
        window.until(lambda: window.snapshot.commands_done == window.sent and window.snapshot.job is None
                     and not window.engine.control.parts and not window.engine.running)
        window.until(lambda: window.snapshot.steering.forwarded is not counts)


def test_whole_steps_end_the_one_under_way(shared):
    window = shared
    trainer = window.engine.model.trainer
    at = trainer.iteration
    assert take(window, "backward").phase == "backward"
    window.send(m.Step(2))
    window.until(lambda: window.snapshot.iteration == at + 2 and window.snapshot.state == "paused")
    assert trainer.phase == ""
    take(window, "backward")
    take(window, "optimiser")
    steering = take(window, "backward")   # ends the step, then begins the next
    assert steering.phase == "backward" and trainer.iteration == at + 3
    window.send(m.Step())
    window.until(lambda: window.snapshot.iteration == at + 4 and window.snapshot.state == "paused")
    assert window.snapshot.steering.phase == ""
    curve = window.snapshot.curves["loss"]
    assert len(curve.x) == len(np.unique(curve.x)) and curve.x[-1] == at + 4   # no step was entered twice


def test_a_step_taken_in_parts_ends_with_the_densification_that_is_due(shared):
    window = shared
    trainer = window.engine.model.trainer
    while (trainer.iteration + 1) % 4 or trainer.iteration < 4:
        before = trainer.iteration
        window.send(m.Step())
        window.until(lambda before=before: window.snapshot.iteration > before and window.snapshot.state == "paused")
    events = len(window.of(m.Densified))
    take(window, "backward")
    take(window, "optimiser")
    assert len(window.of(m.Densified)) == events
    take(window, "densify")
    event, = window.of(m.Densified)[events:]
    assert event.iteration == trainer.iteration and event.cloned + event.split > 0 and event.count == len(trainer.params)


def test_the_last_step_of_a_run_can_be_taken_in_parts():
    with running_engine(TrainConfig(iterations=1), make_trainer=Trainer, backend="cpu") as window:
        window.open()
        take(window, "backward")
        take(window, "optimiser")
        assert window.snapshot.iteration == 1 and window.snapshot.state == "paused"   # not finished: it is under way
        window.send(m.Step())
        window.until(window.state("finished"))
        assert window.engine.model.trainer.phase == ""
        take(window, "backward")
        assert "All 1 iterations are done" in said(window)


def test_parts_wait_for_what_wants_the_model_to_stand_still_and_are_not_lost_when_given_up():
    with running_engine(CONFIG, make_trainer=Trainer, backend="cpu") as window:
        window.open()
        window.send(m.Evaluate(), m.TakePart("backward"), m.TakePart("optimiser"))
        window.sync()
        window.until(lambda: window.snapshot.steering.phase == "update")
        assert window.of(m.Evaluated)[-1].iteration == 0


# ---------------------------------------------------------------- goals

QUICK = TrainConfig(iterations=400, schedule_iterations=30_000, densify=DensifyConfig(start=1, every=7, stop=8))


@pytest.fixture
def quick():
    with running_engine(QUICK, make_trainer=trainer_class(densify_at=frozenset({7}))) as window:
        window.open()
        yield window


def run_until(window: Window, *args, **named) -> str:
    window.send(m.RunUntil(*args, **named))
    window.sync()
    window.until(lambda: window.snapshot.state != "running" and not window.snapshot.steering.goal)
    return said(window)


def test_goals_are_met_by_the_value_that_is_said(quick):
    assert run_until(quick, "densify") == "Paused at iteration 7: densification: 1 cloned; 20 Gaussians."
    assert quick.snapshot.iteration == 7
    assert run_until(quick, "iteration", 12) == "Paused at iteration 12: that is the iteration asked for."
    views = len(quick.engine.model.trainer.views)
    text = run_until(quick, "loss", 1 / 30)   # the loss of step i is 1/i here
    n = quick.snapshot.iteration
    mean = sum(1 / i for i in range(n - views + 1, n + 1)) / views
    assert mean < 1 / 30 < sum(1 / i for i in range(n - views, n)) / views   # the first that is below
    assert text == f"Paused at iteration {n}: the mean loss is {mean:.4g}, below {1 / 30:g}."
    psnr = quick.engine.model.trainer.measured.psnr
    assert f"the mean training PSNR is {20.0:.2f} dB" in run_until(quick, "psnr", 19.0) and psnr
    assert "there are 20 Gaussians, more than 19" in run_until(quick, "count", 19)


def test_a_goal_out_of_reach_is_said_after_its_limit_and_at_the_end(quick):
    text = run_until(quick, "psnr", 60.0, limit=25)
    assert quick.snapshot.iteration == 25
    assert "after 25 steps; the goal was to train until the mean training PSNR is above 60 dB, and it is 20.00 dB now" in text
    quick.send(m.RunUntil("loss", 1e-9))
    quick.until(quick.state("finished"))
    quick.until(lambda: any("The run is over; the goal was" in n.text for n in quick.of(m.Notice)))
    assert quick.snapshot.steering.goal == ""


def test_pause_and_play_drop_the_goal(quick):
    quick.send(m.RunUntil("psnr", 60.0))
    quick.until(lambda: quick.snapshot.steering.goal == "until the mean training PSNR is above 60 dB")
    quick.send(m.Pause())
    quick.until(lambda: quick.snapshot.state == "paused" and quick.snapshot.steering.goal == "")


@pytest.mark.parametrize("goal, value, limit, says", [
    ("weather", 1, 0, "choose one of"), ("loss", float("nan"), 0, "finite"), ("loss", "low", 0, "must be numbers"),
    ("iteration", 0, 0, "not ahead"), ("iteration", 10**6, 0, "raise iterations"), ("count", 10**12, 0, "cap"),
    ("loss", 0.1, -1, "at least 0")])
def test_a_goal_that_cannot_be_is_refused_with_a_reason(quick, goal, value, limit, says):
    quick.send(m.RunUntil(goal, value, limit))
    quick.sync()
    notice = quick.of(m.Notice)[-1]
    assert says in notice.text and notice.level == "warning" and quick.snapshot.state == "paused"


@pytest.mark.thorough
def test_the_held_out_views_are_measured_on_the_way(monkeypatch):
    from app.engine import work
    monkeypatch.setattr(work, "EVALUATION_SECONDS", 0.05)
    with running_engine(QUICK, make_trainer=trainer_class(step_seconds=0.01)) as window:
        window.open()
        text = run_until(window, "test_psnr", 1.0)
        event = window.of(m.Evaluated)[-1]
        assert text == f"Paused at iteration {event.iteration}: the held-out PSNR is {event.psnr:.2f} dB, above 1."
        assert 0 < event.iteration < 400
        window.send(m.RunUntil("test_psnr", 90.0))
        window.until(lambda: any("The run is over; the goal was" in n.text for n in window.of(m.Notice)))
        assert window.of(m.Evaluated)[-1].iteration == 400


def test_a_densification_that_will_never_come_is_no_goal(quick):
    run_until(quick, "iteration", 7)
    assert "No densification is to come" in run_until(quick, "densify")
    quick.send(m.SetOption("densify.strategy", "none"))
    assert "strategy is none" in run_until(quick, "densify")


def test_opacity_resets_are_no_densification_for_a_strategy_that_never_resets():
    config = TrainConfig(iterations=40, schedule_iterations=30_000, densify=DensifyConfig(every=100, start=0, reset_every=10))
    for strategy, reachable in (("adc", True), ("mcmc", False)):
        trainer = Trainer(make_scene(), replace(config, densify=replace(config.densify, strategy=strategy)), backend="cpu")
        engine = SimpleNamespace(model=None, control=SimpleNamespace(trainer=trainer))
        problem = control._unreachable(engine, m.RunUntil("densify"))
        assert (problem is None) == reachable and (reachable or "No densification is to come" in problem)


def test_until_stop_ends_at_the_first_loss_that_is_not_a_number():
    from app.training.verdict import TrainingStopped

    def fail(iteration: int) -> None:
        if iteration == 9:
            raise TrainingStopped("Training stopped at iteration 9: the loss of view a is nan.")

    with running_engine(make_trainer=trainer_class(raises=staticmethod(fail))) as window:
        window.open()
        assert "the loss of view a is nan" in run_until(window, "stop")
        assert window.snapshot.iteration == 8


# ---------------------------------------------------------------- options

def test_every_change_is_told_with_what_was_and_the_iteration(quick):
    run_until(quick, "iteration", 5)
    quick.send(m.SetOption("sh0_lr", 1e-3), m.SetOption("sh0_lr", 1e-3), m.SetOption("sh0_lr", "much"))
    quick.sync()
    event, = quick.of(m.OptionChanged)
    assert event == m.OptionChanged(5, "sh0_lr", 2.5e-3, 1e-3)
    quick.send(m.SetOptions({"densify.absgrad": True, "opacity_lr": 0.05, "sh_degree": 2}, "preset Mine"))
    quick.sync()
    changes = {e.name: e for e in quick.of(m.OptionChanged)[1:]}
    assert set(changes) == {"densify.absgrad", "opacity_lr", "sh_degree"} and changes["opacity_lr"].source == "preset Mine"
    trainer = quick.engine.model.trainer
    assert trainer.config.opacity_lr == 0.05 and trainer.config.sh_degree == 3 and quick.engine.config.sh_degree == 2
    texts = [n.text for n in quick.of(m.Notice)]
    assert "sh_degree acts when the run is reset." in texts and "preset Mine is in force." in texts


@pytest.mark.parametrize("values", [{"opacity_lr": 0.07, "sh0_lr": -1}, {"opacity_lr": 0.07, "nonsense": 1},
                                    {"opacity_lr": 0.07, "raster.cutoff": 0.9, "raster.alpha_max": 0.8}])
def test_of_several_options_all_or_none_are_taken(quick, values):
    quick.send(m.SetOptions(values, "preset X"))
    quick.sync()
    assert quick.of(m.Notice)[-1].level == "error" and not quick.of(m.OptionChanged)
    assert quick.engine.config == QUICK == quick.engine.model.trainer.config


def test_options_that_only_fit_together_are_taken_together(quick):
    quick.send(m.SetOptions({"raster.alpha_max": 0.3}), m.SetOptions({"raster.alpha_max": 0.9, "raster.cutoff": 0.5}))
    quick.sync()
    assert quick.engine.model.trainer.config.raster.cutoff == 0.5
    quick.send(m.SetOptions({"raster.alpha_max": 0.3, "raster.cutoff": 0.01}))
    quick.sync()
    raster = quick.engine.model.trainer.config.raster
    assert (raster.alpha_max, raster.cutoff) == (0.3, 0.01)


# ---------------------------------------------------------------- who gets the time

def test_headless_draws_nothing_asks_nothing_and_gives_training_every_thread(quick):
    quick.frame_of(quick.look(request_for(quick)))
    quick.send(m.SetPace(headless=True))
    quick.sync()
    assert quick.snapshot.steering.headless
    before = quick.snapshot.frame
    quick.look(request_for(quick, width=40, moving=True))
    quick.engine.inspect_requests.put(m.InspectRequest({"summary": object()}))
    run_until(quick, "iteration", 60)
    assert quick.snapshot.frame is before and not quick.snapshot.answers
    assert quick.snapshot.threads == quick.engine.settings.threads
    request = quick.look(request_for(quick, width=40))
    quick.send(m.SetPace())
    assert quick.frame_of(request).camera.width == 40


def test_the_share_of_pictures_is_the_one_that_was_asked_for(quick):
    quick.send(m.SetPace(PaceConfig(view_share=0.5, view_rate=2.0)))
    quick.sync()
    pace = quick.engine.pace
    pace.viewed(10.0, 1.0, 100)
    assert pace.view_due(changed=False, model_moved=True, refine=False, moving=False) == pytest.approx(11.0)
    pace.viewed(10.0, 0.1, 100)
    assert pace.view_due(changed=False, model_moved=True, refine=False, moving=False) == pytest.approx(10.5)
    with pytest.raises(ValueError, match="view_share is 0"):
        PaceConfig(view_share=0.0)


def test_a_part_of_a_step_that_nobody_knows_is_refused(quick):
    assert isinstance(quick.engine.model.trainer, QuickTrainer)
    quick.send(m.TakePart("sideways"))
    quick.sync()
    assert "sideways" in said(quick)
