"""Play, pause, step, reset, options, backends and failures, as the window meets them."""

from __future__ import annotations

import numpy as np
import pytest

from app import messages as m
from app.config import TrainConfig
from app.data.scene import SceneError
from app.engine.background import Report
from app.engine.work import Ready
from app.training.verdict import TrainingStopped
from render.backends import cpu
from render.config import BACKENDS
from render.pipeline import resolve_backend, usable_backends
from tests.app.engine_doubles import open_tiny, request_for, running_engine, trainer_class

# ---------------------------------------------------------------- play, pause, step, reset


def test_play_trains_and_pause_stops_at_once():
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 5)
        window.send(m.Pause())
        window.until(window.state("paused"))
        at = window.snapshot.iteration
        window.sync()
        window.send(m.Select())   # something to publish for
        window.sync()
        assert window.snapshot.state == "paused" and window.snapshot.iteration == at


@pytest.mark.parametrize("count", [1, 7])
def test_step_does_exactly_so_many_and_pauses(count):
    with running_engine() as window:
        window.open()
        for round_ in (1, 2):
            window.send(m.Step(count))
            window.until(lambda round_=round_: window.snapshot.iteration == round_ * count
                         and window.snapshot.state == "paused")
        assert window.snapshot.curves["loss"].x.tolist() == list(range(1, 2 * count + 1))
        assert not window.of(m.EngineFailed)


def test_step_while_running_takes_so_many_more_and_pauses():
    with running_engine(make_trainer=trainer_class(step_seconds=0.001)) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 3)
        window.send(m.Step(4))
        window.until(window.state("paused"))


def test_step_at_the_end_of_a_run_takes_only_what_is_left():
    with running_engine(TrainConfig(iterations=3)) as window:
        window.open()
        window.send(m.Step(100))
        window.until(window.state("finished"))
        assert window.snapshot.iteration == 3
        window.send(m.Play())
        window.until(lambda: any("raise iterations or reset" in n.text for n in window.of(m.Notice)))
        window.send(m.SetOption("iterations", 5), m.Step(100))
        window.until(lambda: window.snapshot.iteration == 5 and window.snapshot.state == "finished")


def test_reset_goes_back_to_the_start_and_keeps_playing_or_not():
    with running_engine(make_trainer=trainer_class(step_seconds=0.001)) as window:
        window.open()
        window.send(m.Step(5))
        window.until(lambda: window.snapshot.iteration == 5)
        assert window.engine.model is not None
        before = window.engine.model.params.means.clone()
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration == 0)
        assert window.snapshot.state == "paused" and len(window.snapshot.curves["loss"].x) == 0
        assert not bool((window.engine.model.params.means == before).all())
        window.send(m.Play())
        window.until(lambda: window.snapshot.iteration > 200)
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration < 200)
        window.until(lambda: window.snapshot.state == "running" and window.snapshot.iteration > 200)


def test_a_finished_run_is_evaluated_and_says_so():
    with running_engine(TrainConfig(iterations=4)) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.state == "finished" and window.of(m.Evaluated))
        (result,) = window.of(m.Evaluated)
        assert result.iteration == 4 and np.isfinite(result.psnr) and len(result.views) == 2
        window.until(lambda: len(window.snapshot.curves["test_psnr"].x) == 1)


def test_densifications_reach_the_window_one_by_one():
    with running_engine(make_trainer=trainer_class(densify_at=frozenset(range(3, 40, 2)))) as window:
        window.open()
        window.send(m.Step(40))
        window.until(lambda: window.snapshot.iteration == 40)
        assert [e.iteration for e in window.of(m.Densified)] == list(range(3, 40, 2))


# ---------------------------------------------------------------- options, backends


def test_every_option_acts_in_the_next_step_or_says_when():
    with running_engine() as window:
        window.open()
        window.send(m.SetOption("raster.alpha_max", 0.999), m.SetOption("densify.absgrad", True),
                    m.SetOption("seed", 5), m.SetOption("raster.alpha_max", 7.0), m.SetOption("nonsense", 1))
        window.until(lambda: len(window.of(m.ConfigChanged)) >= 6)
        trainer = window.engine.model.trainer  # type: ignore[union-attr]
        assert trainer.config.raster.alpha_max == 0.999 and trainer.config.densify.absgrad
        assert trainer.config.seed == 0   # fixed when a run starts ...
        values = window.of(m.ConfigChanged)[-1].values
        assert values["seed"] == 5 and values["raster.alpha_max"] == 0.999
        texts = [n.text for n in window.of(m.Notice)]
        assert any("seed acts when the run is reset" in t for t in texts)
        assert any("alpha_max is 7.0" in t for t in texts) and any("nonsense" in t for t in texts)
        window.send(m.Reset())
        window.until(lambda: window.engine.model.trainer is not trainer)  # type: ignore[union-attr]
        assert window.engine.model.trainer.config.seed == 5   # ... and taken then  # type: ignore[union-attr]


def test_an_option_set_before_anything_is_open_is_kept():
    with running_engine() as window:
        window.send(m.SetOption("lambda_dssim", 0.5))
        window.open()
        assert window.engine.model.trainer.config.lambda_dssim == 0.5  # type: ignore[union-attr]


def test_the_backend_changes_live_and_a_bad_one_is_refused_in_one_sentence():
    def load(name: str, report: Report) -> Ready:
        if name == "cuda":
            raise ValueError("backend cuda cannot run here; choose reference or auto")
        return Ready(name)

    with running_engine(load_backend=load) as window:
        window.open(play=True)
        window.send(m.SetBackend("cuda"), m.SetBackend("reference"))
        window.until(lambda: any("now reference" in n.text for n in window.of(m.Notice)))
        errors = [n for n in window.of(m.Notice) if n.level == "error"]
        assert [e.text for e in errors] == ["backend cuda cannot run here; choose reference or auto."]
        window.until(lambda: window.snapshot.state == "running" and window.snapshot.backend == "reference")


def test_a_fallback_is_said_in_the_window_and_on_stderr(capsys):
    with running_engine(load_backend=lambda name, report: Ready("reference", "no C++ compiler was found")) as window:
        window.until(lambda: window.of(m.Notice))
        (notice,) = window.of(m.Notice)
        assert notice.level == "warning" and "slowly" in notice.text and "no C++ compiler" in notice.text
    assert "no C++ compiler" in capsys.readouterr().err


def test_the_backends_that_can_run_here_are_told_to_the_window(monkeypatch):
    """The menu offers these: cuda only when it can run."""
    with running_engine() as window:
        window.open()
        assert window.snapshot.backends == usable_backends()
        for name in BACKENDS:
            if name in window.snapshot.backends:
                assert resolve_backend(name)
            else:
                with pytest.raises(ValueError, match=f"backend {name}"):
                    resolve_backend(name)
    monkeypatch.setattr(cpu, "available", lambda: False)
    assert usable_backends()[0] == "auto" and "reference" in usable_backends() and "cpu" not in usable_backends()


def test_a_backend_that_cannot_run_here_gives_way_to_the_fastest_that_can(capsys):
    def load(name: str, report: Report) -> Ready:
        if name == "cuda":
            raise ValueError("backend cuda is not part of this version")
        return Ready("cpu" if name == "auto" else name)

    with running_engine(backend="cuda", load_backend=load) as window:
        window.until(lambda: window.of(m.Notice))
        (notice,) = window.of(m.Notice)
        assert notice.level == "warning" and "backend cpu runs because backend cuda" in notice.text
        assert window.engine.backend == "cpu"
    assert "backend cuda" in capsys.readouterr().err


# ---------------------------------------------------------------- failures


def test_an_exception_in_a_step_is_shown_and_pauses():
    def explode(iteration: int) -> None:
        if iteration == 3:
            raise ZeroDivisionError("a step broke")

    with running_engine(make_trainer=trainer_class(raises=staticmethod(explode))) as window:
        window.open(play=True)
        window.until(lambda: window.of(m.EngineFailed) and window.snapshot.state == "failed")
        (failure,) = window.of(m.EngineFailed)
        assert "step 3" in failure.summary and "a step broke" in failure.summary
        assert "explode" in failure.traceback
        assert window.snapshot.iteration == 2
        type(window.engine.model.trainer).raises = staticmethod(lambda iteration: None)  # type: ignore[union-attr]
        window.send(m.Play())
        window.until(lambda: window.snapshot.iteration > 5 and window.snapshot.state == "running")


def test_n16_training_that_stops_itself_pauses_with_a_sentence():
    """N16: a non-finite loss or gradient pauses the run and names parameter, step and view."""
    def stop(iteration: int) -> None:
        raise TrainingStopped("Training stopped at iteration 1: the gradient of means is not finite in view a.png.")

    with running_engine(make_trainer=trainer_class(raises=staticmethod(stop))) as window:
        window.open(play=True)
        window.until(lambda: any("gradient of means" in n.text for n in window.of(m.Notice)))
        window.until(window.state("paused"))
        assert not window.of(m.EngineFailed) and window.snapshot.iteration == 0


def test_an_exception_while_drawing_is_shown_once(monkeypatch):
    from app.engine import view_modes

    def explode(sight):
        raise RuntimeError("cannot draw")

    monkeypatch.setitem(view_modes.MODES, "color", explode)
    with running_engine() as window:
        window.open()
        window.look(request_for(window))
        window.until(lambda: window.of(m.EngineFailed))
        window.frame_of(window.look(request_for(window, mode="transmittance")))
        assert len(window.of(m.EngineFailed)) == 1


@pytest.mark.parametrize("error", [SceneError("folder x has no images; choose another one"), OSError("disk trouble")])
def test_a_scene_that_cannot_be_opened_is_one_sentence_and_the_old_one_stays(error, tmp_path):
    def load(path: str, **named):
        if path == str(tmp_path):
            raise error
        return open_tiny(path, **named)

    with running_engine(open_scene=load) as window:
        window.open()
        window.send(m.OpenScene(str(tmp_path)))
        window.until(lambda: any(n.level == "error" for n in window.of(m.Notice)))
        assert window.snapshot.state in ("paused", "loading") and not window.of(m.EngineFailed)
        window.until(window.state("paused"))
        assert window.snapshot.gaussians > 0
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2)


def test_a_path_that_does_not_exist_is_one_sentence(tmp_path):
    with running_engine() as window:
        window.send(m.OpenScene(str(tmp_path / "nowhere")))
        window.until(lambda: any("does not exist" in n.text for n in window.of(m.Notice)))
        window.until(window.state("empty"))


def test_commands_without_a_scene_say_what_to_do():
    with running_engine() as window:
        window.send(m.Play(), m.Step(), m.Reset(), m.Evaluate(), m.SavePly("x.ply"))
        window.until(lambda: len(window.of(m.Notice)) >= 5)
        assert all("open a scene" in n.text for n in window.of(m.Notice)), window.of(m.Notice)
        assert window.snapshot.state == "empty"


