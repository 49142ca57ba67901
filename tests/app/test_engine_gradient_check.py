"""The gradient check from the window's side of the engine."""

from __future__ import annotations

from app import messages as m
from app.training.trainer import Trainer
from tests.app.engine_doubles import running_engine


def uids_of(window) -> tuple[int, ...]:
    return tuple(window.engine.model.params.uids.tolist())


def texts(window) -> str:
    return " ".join(event.text for event in window.of(m.Notice))


def test_chosen_gaussians_are_checked_while_the_run_stands_still():
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        uids = uids_of(window)[:6]
        window.send(m.CheckGradients((*uids, 10**9), view_index=1))
        window.until(lambda: window.of(m.GradientsChecked))
        report = window.of(m.GradientsChecked)[0].report
        assert report.view == window.opened.views[1].name and report.loss == "l1_ssim" and report.dtype == "float64"
        assert set(report.gaussians) | set(report.unseen) == {*uids, 10**9} and 10**9 in report.unseen
        assert {"means", "quats", "log_scales", "logit_opacities", "sh0"} == {p.parameter for p in report.parameters}
        assert any("shN is not checked" in note for note in report.notes) and report.sweeps
        for row in report.parameters:
            assert row.ok or row.problem.startswith(("only", "every")), row
        shares = [e.fraction for e in window.of(m.JobProgress) if e.name == "check" and not e.done]
        assert shares == sorted(shares) and len(shares) > 5
        assert window.snapshot.iteration == 3


def test_a_camera_without_photograph_has_a_random_cotangent_and_float32_may_be_checked():
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.CheckGradients(uids_of(window)[:3], camera=window.opened.views[0].camera, dtype="float32",
                                     parameters=("means", "sh0"), backend="cpu", sweep=False))
        window.until(lambda: window.of(m.GradientsChecked))
        report = window.of(m.GradientsChecked)[0].report
        assert report.loss == "cotangent" and report.dtype == "float32" and report.backend == "cpu" and report.sweeps == ()
        assert [p.parameter for p in report.parameters] == ["means", "sh0"]


def test_a_check_can_be_cancelled_and_what_makes_no_sense_is_refused_in_a_sentence():
    with running_engine(make_trainer=Trainer) as window:
        window.send(m.CheckGradients((1,)))
        window.until(lambda: "nothing to check" in texts(window))
        window.open()
        window.send(m.CheckGradients(()))
        window.until(lambda: "Select the Gaussians" in texts(window))
        for command, sentence in ((m.CheckGradients((10**9,)), "exists any more"),
                                  (m.CheckGradients((0,), parameters=("colour",)), "takes parameters of"),
                                  (m.CheckGradients((0,), backend="vulkan"), "vulkan")):
            window.send(command)
            window.until(lambda sentence=sentence: sentence in texts(window) and window.snapshot.job is None)
        window.send(m.CheckGradients(uids_of(window) * 50))   # long enough to be caught, and too many at once
        window.until(lambda: any(e.fraction > 0.01 for e in window.of(m.JobProgress) if e.name == "check"))
        assert "1,000 Gaussians are selected; 200 of them, drawn at random, are checked." in texts(window)
        window.send(m.CancelJob())
        window.until(lambda: window.snapshot.job is None)
        assert not window.of(m.GradientsChecked) and not window.of(m.EngineFailed) and window.snapshot.state == "paused"
