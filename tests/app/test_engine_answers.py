"""The engine answers in every state (U06, U07), sleeps when idle and ends when told; who imports what."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from app import messages as m
from app.engine.background import Report
from app.engine.loop import Engine
from app.engine.work import Ready
from app.training.trainer import Trainer
from render.backends import cpu
from tests.app.engine_doubles import QuickTrainer, Window, make_engine, open_tiny, request_for, running_engine, trainer_class
from tests.training.tiny import make_scene

ANSWER = 0.2
"""Seconds within which pause, step and close must have answered (U07).

Tests take the best of a few tries: on a machine under load single ones are late, but what waits for a whole job is
late every time.
"""


# ---------------------------------------------------------------- U06, U07: it answers in every state


class Gate:
    """Something slow in a helper thread that the test lets through when it likes."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(60)


def close_time(engine: Engine) -> float:
    """Seconds until the thread has ended."""
    begun = time.monotonic()
    assert engine.close()
    return time.monotonic() - begun


def answers(window: Window, times: int = 5) -> float:
    """The least of some seconds between a command and the snapshot or event that answers it."""
    taken = []
    for _ in range(times):
        window.send(m.Pause())
        taken.append(window.sync())
    return min(taken)


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
        assert close_time(window.engine) < 2 * ANSWER   # one try only, so with room for a machine under load
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


@pytest.mark.parametrize("command", [m.OpenScene("."), m.Reset()])
def test_u07_building_a_trainer_does_not_hold_up_commands_and_can_be_cancelled(command):
    """U07: a trainer for many points takes seconds; it is built beside the engine, which goes on answering."""
    gate, slow = Gate(), []

    class SlowTrainer(QuickTrainer):
        def __init__(self, *args, **named) -> None:
            super().__init__(*args, **named)
            if slow:
                named["progress"](0.5, "placing Gaussians")
                gate.wait()

    with running_engine(make_trainer=SlowTrainer) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 3)
        slow.append(True)
        window.send(command)
        assert gate.reached.wait(60)
        assert answers(window) < ANSWER
        assert window.snapshot.job is not None and window.snapshot.job.text == "placing Gaussians"
        window.frame_of(window.look(request_for(window)))   # the old model is still there to look at
        window.send(m.CancelJob())
        window.until(lambda: window.snapshot.job is None)
        assert window.snapshot.iteration > 3   # and still there after all
        window.send(command)
        window.until(lambda: window.snapshot.job is not None)
        assert close_time(window.engine) < 2 * ANSWER
        gate.open.set()


def test_options_that_change_while_a_trainer_is_built_are_those_of_the_new_run():
    """A live one is set before the first step, one that acts at the start makes the trainer anew."""
    gate, built = Gate(), []

    class SlowTrainer(QuickTrainer):
        def __init__(self, scene, config, **named) -> None:
            super().__init__(scene, config, **named)
            built.append(config)
            if len(built) == 2:
                gate.wait()

    with running_engine(make_trainer=SlowTrainer) as window:
        window.open()
        window.send(m.Reset())
        assert gate.reached.wait(60)
        window.send(m.SetOption("sh_degree", 1), m.SetOption("densify.absgrad", True), m.Play())
        window.sync()
        window.send(m.SetOption("loss", "mse"))
        window.sync()
        gate.open.set()
        window.until(lambda: window.snapshot.iteration > 0)
        model = window.engine.model
        assert model is not None and model.trainer is not None
        config = model.trainer.config
        assert config == window.engine.config and (config.sh_degree, config.densify.absgrad) == (1, True)
        assert len(built) == 3 and model.params.shN.shape[1] == 3


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
        assert min(taken) < ANSWER
        taken = []
        for _ in range(5):
            at = window.snapshot.iteration
            window.send(m.Step())
            taken.append(window.until(lambda at=at: window.snapshot.iteration == at + 1))
        assert min(taken) < ANSWER


def test_u07_closing_mid_training_takes_200_ms_at_most():
    taken = []
    for _ in range(3):
        with running_engine(make_trainer=trainer_class(step_seconds=0.03)) as window:
            window.open(play=True)
            window.frame_of(window.look(request_for(window)))
            taken.append(close_time(window.engine))
    assert min(taken) < ANSWER


def test_u07_an_evaluation_does_not_hold_up_commands():
    cpu.prepare()
    with running_engine(load_backend=lambda name, report: Ready("cpu")) as window:
        window.open()
        taken = []
        for _ in range(5):
            window.send(m.Evaluate())
            taken.append(answers(window, 1))
        assert min(taken) < ANSWER
        window.until(lambda: window.of(m.Evaluated))


def slow_engine():
    """The reference renderer on a scene of which one step, and one picture, takes seconds."""
    scene = make_scene(6, 40, size=256, points=2000, test_every=3)
    return running_engine(make_trainer=Trainer, open_scene=lambda path, **named: scene)


def test_u07_pause_step_and_close_do_not_wait_for_a_step_that_takes_seconds():
    """What is given up is taken again: the iteration that pause found is the one that goes on."""
    with slow_engine() as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 0)
        assert window.engine.pace.step_seconds > 2 * ANSWER, "the step is too quick to show anything"
        taken = []
        for _ in range(5):
            window.send(m.Play())
            window.until(window.state("running"))
            at = window.snapshot.iteration
            window.send(m.Pause())
            taken.append(window.until(window.state("paused")))
            assert window.snapshot.iteration <= at + 1
        assert min(taken) < ANSWER
        window.send(m.Step())
        window.until(lambda: window.snapshot.iteration == at + 1 and window.snapshot.state == "paused")
        window.send(m.Play())
        window.until(window.state("running"))
        assert close_time(window.engine) < 2 * ANSWER   # one try only, so with room for a machine under load


@pytest.mark.parametrize("mode", ["color", "contributors", "heatmap"])
def test_u07_commands_do_not_wait_for_a_picture_that_takes_seconds(mode):
    with slow_engine() as window:
        window.open()
        window.engine.pace.cost.per_pixel = 1e-9   # believes that any picture is quick
        taken = []
        for width in (512, 544, 576):
            window.look(request_for(window, width=width, height=512, mode=mode))
            window.engine.pace.cost.per_pixel = 1e-9
            taken.append(answers(window, 1))
        assert min(taken) < ANSWER
        shown = window.frame_of(window.look(request_for(window, width=64, height=64, mode=mode)))
        assert shown.rgba[..., :3].max() > 0


def test_u07_commands_do_not_wait_for_a_measurement_that_takes_seconds():
    with slow_engine() as window:
        window.open()
        window.send(m.Evaluate())
        assert answers(window) < ANSWER
        window.until(lambda: window.of(m.Evaluated))   # in the end all views are measured


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


# ---------------------------------------------------------------- who imports what


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint(' '.join(sys.modules))"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_i15_the_window_imports_neither_torch_nor_pycuda():
    """I15 and the import rules: the window's side of the protocol stays free of tensors."""
    modules = modules_after("import app.gui.window, app.gui.shell, app.messages, app.mailbox, app.config, app.colormaps")
    assert "dearpygui" in modules and not {"torch", "pycuda"} & modules
    assert not [name for name in modules if name.startswith(("app.engine", "app.training"))]


def test_the_engine_can_be_made_before_torch_is_loaded():
    modules = modules_after("from app.engine.loop import Engine\nEngine()")
    assert "torch" not in modules and "dearpygui" not in modules


def test_no_thread_is_left_behind():
    engine: Engine = make_engine().start()
    assert engine.close()
    engine.join_helpers()
    assert not [t for t in threading.enumerate() if t.name in ("engine", "prepare", "open", "decode")]
