"""What the window exits with: 0 only where everything that was to be written is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import app.launch
from app import messages as m
from app.config import TrainConfig
from app.data.checkpoints import find
from app.data.scene import SceneError
from app.engine.loop import Engine
from app.engine.work import Ready
from app.records.lines import Lines
from app.records.place import Place
from app.training import checkpoint
from app.training.autosave import AutosaveConfig
from app.training.trainer import Trainer
from render.backends import cpu
from tests.app.engine_doubles import Window, make_engine

NEVER = AutosaveConfig(seconds=0)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., int]:
    """launch() with a window that trains three steps, does what the test says, and is closed; the exit code."""
    cpu.prepare()   # says that it compiles, where nobody has compiled yet
    capsys.readouterr()
    (tmp_path / "scene").mkdir()

    def run(then: Callable[[Window], object] = lambda window: None, **named: object) -> int:
        settings = {"record": Place(root=tmp_path / "runs"), "autosave": NEVER, **named}
        engine = make_engine(TrainConfig(iterations=60), make_trainer=Trainer, load_backend=lambda name, report: Ready("cpu"),
                             **settings)

        def run_window(*mailboxes: object, on_close: Callable[[], bool], **rest: object) -> int:
            window = Window(engine)
            window.open(str(tmp_path / "scene"))
            window.send(m.Step(3))
            window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
            then(window)
            on_close()
            return 0

        monkeypatch.setattr(app.launch, "Engine", lambda config, settings: engine)
        monkeypatch.setattr("app.gui.window.run_window", run_window)
        return app.launch.launch(None)

    return run


def full(path: Path, *args: object, **named: object) -> None:
    raise SceneError(f"{path} cannot be written (No space left on device)")


def test_a_run_that_is_saved_as_it_was_left_ends_with_0(opened: Callable[..., int], tmp_path: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    assert opened() == 0 and capsys.readouterr().err == ""
    assert [saved.iteration for saved in find(next((tmp_path / "runs").iterdir()))[0]] == [3]
    assert opened(record=None) == 0


def test_a_run_that_cannot_be_saved_as_it_was_left_ends_with_2(opened: Callable[..., int], monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(checkpoint, "write", full)
    assert opened() == 2
    said = capsys.readouterr().err
    assert said.count("could not be saved as it was left") == 1 and "No space left" in said


def test_a_save_that_fails_while_the_window_closes_is_made_up_for_by_the_one_after_it(
        opened: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real, gate, tries = checkpoint.write, threading.Event(), []

    def first_fails(path: Path, *args: object, **named: object) -> object:
        gate.wait(30)
        tries.append(path)
        return full(path) if len(tries) == 1 else real(path, *args, **named)   # type: ignore[arg-type]

    def step_while_it_saves(window: Window) -> None:
        window.send(m.SaveCheckpoint(), m.Step(1))
        window.until(lambda: window.snapshot.iteration == 4 and window.snapshot.state == "paused")
        window.engine.stop()
        gate.set()

    monkeypatch.setattr(checkpoint, "write", first_fails)
    assert opened(step_while_it_saves) == 0 and len(tries) == 2
    assert "iteration_3" in capsys.readouterr().err   # it is said all the same


def test_lines_of_the_record_that_cannot_be_written_at_the_close_end_with_2(
        opened: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    def fill(window: Window) -> None:
        def no_space(lines: Lines) -> None:
            raise OSError(28, "No space left on device")

        assert window.engine.recorder._record is not None and window.engine.recorder._record.flush()
        monkeypatch.setattr(Lines, "write", no_space)

    assert opened(fill) == 2
    said = capsys.readouterr().err
    folder = next((tmp_path / "runs").iterdir())
    assert f"The run's record in {folder} cannot be written (no space left on device): what was still to be " \
           "written is missing." in said
    assert f"The run's record in {folder} is not complete: what could not be written is said above." in said


def test_gaussians_that_were_to_be_saved_when_the_window_closed_and_are_not_end_with_2(
        opened: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def save(window: Window) -> None:
        window.engine.stop()
        window.send(m.SavePly(str(tmp_path)))

    assert opened(save) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_an_engine_that_does_not_end_is_said(opened: Callable[..., int], monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    real, hung = Engine.close, []
    monkeypatch.setattr(Engine, "close", lambda engine: bool(hung.append(engine)))
    assert opened() == 2
    assert "nothing after it" in capsys.readouterr().err
    assert real(hung[0])
