"""The engine as the window meets it: commands in, events and snapshots out, a thread in between."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from app import messages as m
from app.config import TrainConfig
from app.data.scene import SceneError
from app.engine.background import Report
from app.engine.loop import Engine
from app.engine.work import Ready
from app.training.trainer import TrainingStopped
from render.types import Camera
from tests.app.engine_doubles import QuickTrainer, Window, make_engine, open_tiny, trainer_class
from tests.training.tiny import ring

ANSWER = 0.2
"""Seconds within which pause, step and close must have answered (U07)."""


@contextmanager
def running_engine(config: TrainConfig | None = None, **changes) -> Iterator[Window]:
    engine = make_engine(config, **changes).start()
    try:
        yield Window(engine)
    finally:
        assert engine.close(), "the engine did not end"
        engine.join_helpers()


def request_for(window: Window, *, width: int = 32, height: int = 24, **named) -> m.ViewRequest:
    return m.ViewRequest(window.opened.views[0].camera.resized(width, height), **named)


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


# ---------------------------------------------------------------- U06, U07: it answers in every state


class Gate:
    """Something slow in a helper thread that the test lets through when it likes."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(60)


def answers(window: Window, times: int = 5) -> float:
    """Median seconds between a command and the snapshot or event that answers it."""
    taken = []
    for _ in range(times):
        window.send(m.Pause())
        taken.append(window.sync())
    return statistics.median(taken)


def test_u06_loading_libraries_and_kernels_does_not_hold_up_commands():
    """U06, U07: while PyTorch loads and kernels compile, commands are answered and the engine can be closed."""
    gate = Gate()

    def load(name: str, report: Report) -> Ready:
        report(0.5, "compiling")
        gate.wait()
        return Ready(name)

    with running_engine(load_backend=load) as window:
        assert gate.reached.wait(60)
        assert answers(window) < ANSWER
        assert window.snapshot.state == "loading" and window.snapshot.job is not None
        assert window.snapshot.job.text == "compiling"
        begun = time.monotonic()
        assert window.engine.close()
        assert time.monotonic() - begun < ANSWER
        gate.open.set()


def test_u06_opening_a_scene_does_not_hold_up_commands_and_can_be_cancelled(tmp_path):
    """U06, U07: files are read in a helper thread; pause, camera and cancel work meanwhile."""
    gate = Gate()

    def load(path: str, **named):
        if path == str(tmp_path):
            named["progress"](0.25, "reading cameras")
            gate.wait()
        return open_tiny(path, **named)

    with running_engine(open_scene=load, make_trainer=trainer_class(step_seconds=0.001)) as window:
        window.open(play=True)
        window.send(m.OpenScene(str(tmp_path)))
        assert gate.reached.wait(60)
        window.until(window.state("loading"))
        assert answers(window) < ANSWER
        window.frame_of(window.look(request_for(window)))   # the old scene is still there to look at
        window.send(m.CancelJob())
        window.until(window.state("paused"))
        assert any(e.name == "open" and e.done and e.text == "cancelled" for e in window.of(m.JobProgress))
        gate.open.set()


@pytest.mark.parametrize("play", [False, True])
def test_u07_pause_step_and_close_answer_within_200_ms(play):
    """U07 with steps of 30 ms and a picture to draw for every one of them."""
    with running_engine(make_trainer=trainer_class(step_seconds=0.03)) as window:
        window.open(play=play)
        window.frame_of(window.look(request_for(window)))
        taken = []
        for _ in range(5):
            window.send(m.Play())
            window.until(window.state("running"))
            window.send(m.Pause())
            taken.append(window.until(window.state("paused")))
        assert statistics.median(taken) < ANSWER
        taken = []
        for _ in range(5):
            at = window.snapshot.iteration
            window.send(m.Step())
            taken.append(window.until(lambda at=at: window.snapshot.iteration == at + 1))
        assert statistics.median(taken) < ANSWER
        if play:
            window.send(m.Play())
            window.until(window.state("running"))
        begun = time.monotonic()
        assert window.engine.close()
        assert time.monotonic() - begun < ANSWER


def test_u07_an_evaluation_does_not_hold_up_commands():
    with running_engine() as window:
        window.open()
        taken = []
        for _ in range(5):
            window.send(m.Evaluate())
            taken.append(answers(window, 1))
        assert statistics.median(taken) < ANSWER
        window.until(lambda: window.of(m.Evaluated))


def test_g14_shutdown_joins_mid_training():
    """G14: Shutdown ends the thread while it trains; nothing is left running."""
    with running_engine(make_trainer=trainer_class(step_seconds=0.005)) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 2)
        window.send(m.Shutdown())
        window.until(lambda: not window.engine.alive)


def test_an_idle_engine_sleeps():
    """Paused and drawn, the thread waits on its signal: no turn happens until something is asked for."""
    with running_engine() as window:
        window.open()
        window.frame_of(window.look(request_for(window)), refined=True)
        turns = []
        original = window.engine.turn
        window.engine.turn = lambda: (turns.append(1), original())[1]  # type: ignore[method-assign]
        window.engine.signal.set()
        window.until(lambda: turns)
        quiet = threading.Event()
        for _ in range(100):   # until 0.3 s went by without a turn
            count = len(turns)
            quiet.wait(0.3)
            if len(turns) == count:
                break
        else:
            pytest.fail("the engine never came to rest")
        window.send(m.Pause())
        window.until(lambda: len(turns) > count)


# ---------------------------------------------------------------- the view


def test_g06_the_frame_has_the_exact_size_and_layout():
    """G06: C-contiguous float32 [H,W,4] of the requested size, alpha 1, and nobody writes into it again."""
    with running_engine() as window:
        window.open()
        for width, height in [(33, 17), (64, 48), (16, 16), (7, 5)]:
            frame = window.frame_of(window.look(request_for(window, width=width, height=height)), refined=True)
            assert frame.rgba.shape == (height, width, 4) and frame.rgba.dtype == np.float32
            assert frame.rgba.flags.c_contiguous and not frame.rgba.flags.writeable
            assert (frame.rgba[..., 3] == 1).all() and frame.rgba.min() >= 0 and frame.rgba.max() <= 1


def test_a_slow_picture_comes_coarse_first_and_is_refined_in_bands():
    """U07: however slow the renderer, no picture is drawn in one piece that holds up commands."""
    with running_engine() as window:
        window.open()
        window.engine.pace.cost.per_pixel = 0.5 / (64 * 96)   # a whole picture would take half a second
        request = window.look(request_for(window, width=64, height=96))
        coarse = window.frame_of(request)
        assert coarse.detail < 1.0 and coarse.rgba.shape == (96, 64, 4)
        fine = window.frame_of(request, refined=True)
        assert fine.sequence == coarse.sequence + 1
        expected = window.engine.model.render(request.camera).colors.clamp(0, 1).numpy()  # type: ignore[union-attr]
        assert np.allclose(fine.rgba[..., :3], expected, atol=1e-4)


def test_the_newest_request_wins():
    with running_engine() as window:
        window.open()
        requests = [request_for(window, width=20 + i) for i in range(30)]
        for request in requests:
            window.look(request)
        frame = window.frame_of(requests[-1])
        assert frame.rgba.shape[1] == 49


def test_the_view_follows_training_and_a_hidden_window_costs_nothing():
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        first = window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.frame is not None and window.snapshot.frame.iteration > first.iteration)
        hidden = request_for(window, hidden=True)
        window.look(hidden)
        window.until(lambda: window.engine.viewer.request is hidden)
        at, drawn = window.snapshot.iteration, window.engine.viewer.frame
        window.until(lambda: window.snapshot.iteration > at + 50)
        assert window.engine.viewer.frame is drawn and window.snapshot.histogram is None


def test_u05_while_the_user_drags_pictures_come_at_10_fps_and_one_core_is_left():
    """U05 with steps far too slow for a drag: training yields, pictures keep coming, threads go down and up again."""
    with running_engine(make_trainer=trainer_class(step_seconds=0.15)) as window:
        window.open(play=True)
        window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.iteration >= 2 and window.snapshot.threads == 2)
        taken = []
        for i in range(20):
            request = window.look(request_for(window, width=40 + i % 2, moving=True))
            window.until(lambda request=request: window.snapshot.frame is not None
                         and window.snapshot.frame.request is request)
            taken.append(time.monotonic())
        assert window.snapshot.threads == 1
        assert statistics.median(np.diff(taken)) < 0.1
        window.look(request_for(window))
        at = window.snapshot.iteration
        window.until(lambda: window.snapshot.iteration > at and window.snapshot.threads == 2)


def test_a_selected_gaussian_is_reported_until_it_is_gone():
    with running_engine() as window:
        window.open()
        request = window.look(request_for(window, width=64, height=64))
        window.frame_of(request)
        found = None
        for x, y in [(32, 32), (24, 32), (40, 32), (32, 24), (32, 40), (20, 20), (44, 44)]:
            window.send(m.Select(request.camera, x, y))
            window.sync()
            if window.snapshot.selected is not None:
                found = window.snapshot.selected
                break
        assert found is not None, "no Gaussian under any of the pixels"
        assert found.ellipse is not None and found.parameters["means"].shape == (3,)
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 1 and window.snapshot.selected is not None
                     and not np.array_equal(window.snapshot.selected.parameters["means"], found.parameters["means"]))
        assert window.snapshot.selected is not None and window.snapshot.selected.uid == found.uid
        window.send(m.Select(uid=10**9))
        window.until(lambda: any("is gone" in n.text for n in window.of(m.Notice)))
        window.until(lambda: window.snapshot.selected is None)


def test_f11_count_and_cap_are_shown_with_the_window_of_densification():
    """F11, F18: the snapshot carries count, cap and the densification window in force."""
    with running_engine(TrainConfig(iterations=30_000)) as window:
        window.open()
        assert 0 < window.snapshot.gaussians <= window.snapshot.cap
        assert window.snapshot.densify_window == (500, 15_000)
        window.send(m.SetOption("iterations", 2000))
        window.until(lambda: window.snapshot.densify_window[1] < 2000)
        assert any("densif" in n.text for n in window.of(m.Notice))


def test_m03_memory_is_told_by_kind():
    with running_engine() as window:
        window.open()
        window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.memory.get("intersections"))
        memory = window.snapshot.memory
        assert memory["parameters"] > 0 and memory["adam"] >= 2 * memory["parameters"] * 0.9 and memory["rss"] > 10**7
        assert "images" in memory


# ---------------------------------------------------------------- whatever is thrown at it


def random_command(rng: random.Random, folder: str) -> m.Command | m.ViewRequest:
    camera = ring(4, rng.choice([8, 24, 33]), rng.choice([8, 16, 31]))[rng.randrange(4)]
    if rng.random() < 0.05:   # a camera that sees nothing, and one that is far inside
        camera = Camera(np.diag([1.0, 1, -1, 1]) if rng.random() < 0.5 else np.eye(4), camera.K, 16, 16)
    mean = rng.choice([0.0, -1.0, 0.5, float("nan"), 1e30, -1e30, "text", None, True, 3, 10**12])
    option = rng.choice(["raster.alpha_max", "raster.cutoff", "raster.alpha_gradient", "raster.smooth_cutoff",
                         "densify.absgrad", "iterations", "loss", "means_lr", "white_background", "seed", "nope",
                         "raster", "densify.cap", "micro_batch", "raster.eps2d", "sh_every", "densify.strategy"])
    return rng.choice([
        m.Play(), m.Pause(), m.Step(rng.choice([1, 2, 5, 0, -3])), m.Reset(), m.Evaluate(), m.CancelJob(),
        m.OpenScene(rng.choice([".", "nowhere", folder]), rng.random() < 0.5),
        m.SetOption(option, mean), m.SetOption("raster.alpha_gradient", rng.choice(["exact", "straight_through"])),
        m.SetBackend(rng.choice(["reference", "auto", "nonsense"])),
        m.SavePly(rng.choice([f"{folder}/a.ply", f"{folder}/missing/b.ply", folder])),
        m.Select(camera, rng.uniform(-50, 50), rng.uniform(-50, 50)), m.Select(uid=rng.randrange(40)), m.Select(),
        *[m.ViewRequest(camera, rng.choice(m.VIEW_MODES), rng.choice(["mean2d_grad", "opacity", "age", "nope"]),
                        rng.choice([None, (0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (-1e300, 1e300)]),
                        rng.choice([None, 0, 3, 99, -1]), rng.random() < 0.3, rng.random() < 0.1, rng.random() < 0.5,
                        rng.choice([None, True, False])) for _ in range(4)]])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_random_commands_never_stop_the_engine(seed, tmp_path):
    rng = random.Random(seed)
    with running_engine(make_trainer=QuickTrainer,
                        load_backend=lambda name, report: Ready("reference") if name != "nonsense" else nonsense(name)
                        ) as window:
        window.open()
        for i in range(1000):
            command = random_command(rng, str(tmp_path))
            if isinstance(command, m.ViewRequest):
                window.look(command)
            else:
                window.send(command)
            if i % 25 == 0:
                window.sync()
        assert window.engine.alive
        assert not window.of(m.EngineFailed), window.of(m.EngineFailed)[0].traceback
        for name, value in (("raster.cutoff", 1 / 255), ("raster.alpha_max", 0.99), ("iterations", 10**6)):
            window.send(m.SetOption(name, value))
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        assert all("\n" not in n.text for n in window.of(m.Notice))
        assert list(tmp_path.glob("*.tmp")) == []


def nonsense(name: str) -> Ready:
    raise ValueError(f"backend is {name!r}; choose one of auto, cpu, reference")


# ---------------------------------------------------------------- who imports what


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint(' '.join(sys.modules))"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_i15_the_window_imports_neither_torch_nor_pycuda():
    """I15 and the import rules: the window's side of the protocol stays free of tensors."""
    modules = modules_after("import app.gui, app.messages, app.mailbox, app.config, app.colormaps, app.engine.loop")
    assert not {"torch", "pycuda", "dearpygui"} & modules


def test_the_engine_can_be_made_before_torch_is_loaded():
    modules = modules_after("from app.engine.loop import Engine\nEngine()")
    assert "torch" not in modules and "dearpygui" not in modules


def test_no_thread_is_left_behind():
    engine: Engine = make_engine().start()
    assert engine.close()
    engine.join_helpers()
    assert not [t for t in threading.enumerate() if t.name in ("engine", "prepare", "open", "decode")]
