"""Whatever fails in the engine's thread is said, and the thread lives on; and nothing there waits for a file."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from app import messages as m
from app.config import TrainConfig
from app.data.checkpoints import find
from app.engine import loop
from app.records.lines import read_lines
from app.records.place import Place
from app.training import checkpoint
from app.training.autosave import AutosaveConfig
from app.training.verdict import TrainingStopped
from tests.app.engine_doubles import QuickTrainer, Window, gated, running_engine, trainer_class
from tests.app.timeline_doubles import settled, steps, texts

NEVER = AutosaveConfig(seconds=0)


@pytest.fixture
def keeping(tmp_path):
    def make(autosave=NEVER, **named):
        return running_engine(TrainConfig(iterations=1_000_000), record=Place(root=tmp_path / "runs"), autosave=autosave,
                              **named)

    return make


@pytest.fixture
def scenes(tmp_path) -> list[str]:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    return [str(folder) for folder in folders]


def saved(window: Window) -> list[tuple[int, str]]:
    """(iteration, why) of the files of the run now."""
    folder = window.engine.run_folder
    assert folder is not None
    return sorted((found.iteration, found.reason) for found in find(folder)[0])


@contextmanager
def broken(monkeypatch, where: object, name: str, error: Exception):
    """Calls of it raise; counts them."""
    calls = []

    def breaks(*_, **__):
        calls.append(name)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, name, breaks)
        yield calls


# ---------------------------------------------------------------- saving


def test_a_copy_that_does_not_fit_is_said_once_and_made_up_for(keeping, scenes, monkeypatch):
    from app.training import state

    with keeping(AutosaveConfig(seconds=0, iterations=2)) as window:
        window.open(scenes[0])
        with broken(monkeypatch, state, "capture", MemoryError()):
            steps(window, 9)
            window.until(lambda: "does not fit into memory" in texts(window))
            window.sync()
            assert texts(window).count("does not fit") == 1 and not window.of(m.EngineFailed) and window.engine.alive
            window.send(m.SaveCheckpoint())   # who asks is told each time
            window.until(lambda: texts(window).count("does not fit") == 2)
            assert window.snapshot.state == "paused"
        steps(window, 1)
        window.until(lambda: window.of(m.RunSaved))
        assert saved(window) == [(10, "iterations")]


def test_a_copy_that_fails_while_the_window_closes_costs_no_more_than_itself(keeping, scenes, monkeypatch, capsys):
    from app.training import state

    with keeping() as window:
        window.open(scenes[0])
        steps(window, 4)
        folder = window.engine.run_folder
        window.engine.commands.put(m.SavePly(str(Path(scenes[0]) / "last.ply")))
        patch = broken(monkeypatch, state, "capture", MemoryError())
        patch.__enter__()
    patch.__exit__(None, None, None)
    assert "could not be saved as it was left" in capsys.readouterr().err
    assert (Path(scenes[0]) / "last.ply").is_file()
    assert [line.get("event") for line in read_lines(folder / "events.jsonl")][-1] == "closed"


@pytest.mark.parametrize("part", ["checkpoints.leave", "checkpoints.join", "jobs.cancel_all", "jobs.finish"])
def test_each_part_of_the_end_is_done_whatever_becomes_of_the_others(keeping, scenes, monkeypatch, capsys, part):
    with keeping() as window:
        window.open(scenes[0])
        steps(window, 4)
        owner, name = part.split(".")
        patch = broken(monkeypatch, getattr(window.engine, owner), name, RuntimeError("the end broke"))
        patch.__enter__()
        folder = window.engine.run_folder
    patch.__exit__(None, None, None)
    assert "the end broke" in capsys.readouterr().err
    assert [line.get("event") for line in read_lines(folder / "events.jsonl")][-1] in ("closed", "failed")
    assert not window.engine.recorder.folder
    if part != "checkpoints.leave":
        assert [found.iteration for found in find(folder)[0]] == [4]


class OwesOne(QuickTrainer):
    """As on a GPU: that step `owed` was not finite is known when somebody waits for the device."""

    owed = 0

    def settle(self) -> None:
        if self.owed and self.iteration >= self.owed:
            self.iteration, type(self).owed = self.owed - 1, 0
            raise TrainingStopped(f"Training stopped at iteration {self.iteration + 1}: the loss of view a is nan.")


def test_a_nan_that_an_autosave_finds_stops_the_run_and_is_saved_as_it_was_before(keeping, scenes):
    trainer = trainer_class(owed=6, settle=OwesOne.settle)
    with keeping(AutosaveConfig(seconds=0, iterations=6), make_trainer=trainer) as window:
        window.open(scenes[0])
        window.send(m.Play())
        window.until(lambda: window.of(m.RunSaved))
        window.until(window.state("paused"))
        assert "Training stopped at iteration 6" in texts(window) and not window.of(m.EngineFailed)
        assert window.snapshot.iteration == 5 and [found for found, _ in saved(window)] == [5]
        steps(window, 2)


def test_a_nan_that_opening_another_scene_finds_is_of_the_run_that_is_left(keeping, scenes):
    trainer = trainer_class(settle=OwesOne.settle, owed=0)
    with keeping(make_trainer=trainer) as window:
        window.open(scenes[0])
        steps(window, 6)
        first, trainer.owed = window.engine.run_folder, 6
        window.engine.model.trainer.measured = type(window.engine.model.trainer.measured)(5)
        window.open(scenes[1], play=True)
        window.until(lambda: window.snapshot.state == "running" and window.snapshot.iteration > 2)
        assert "Training stopped at iteration 6" in texts(window) and not window.of(m.EngineFailed)
        window.until(lambda: find(first)[0])
        assert [found.iteration for found in find(first)[0]] == [5] and window.engine.run_folder != first


# ---------------------------------------------------------------- the turn


@pytest.mark.parametrize("part", ["timeline.looks.advance", "checkpoints.advance", "viewer.poll", "publisher.publish_if_due"])
def test_a_turn_that_fails_ends_in_a_failure_that_can_be_read_and_left(keeping, scenes, monkeypatch, part):
    monkeypatch.setattr(loop, "STUMBLED_SECONDS", 0.01)
    with keeping() as window:
        window.open(scenes[0], play=True)
        window.until(lambda: window.snapshot.iteration > 2)
        *owners, name = part.split(".")
        owner = window.engine
        for step in owners:
            owner = getattr(owner, step)
        with broken(monkeypatch, owner, name, RuntimeError("nobody expected this")) as calls:
            window.until(window.state("failed"))
            (failure,) = window.of(m.EngineFailed)
            assert "nobody expected this" in failure.summary and "breaks" in failure.traceback
            before = len(calls)
            window.until(lambda: len(calls) > before + 2)   # more turns of the same
            window.sync()
            assert len(window.of(m.EngineFailed)) == 1 and window.engine.alive
            window.send(m.Play())         # and it is said again to who tries again
            window.until(lambda: len(window.of(m.EngineFailed)) == 2)
        at = window.snapshot.iteration
        window.send(m.Play())
        window.until(lambda: window.snapshot.state == "running" and window.snapshot.iteration > at)


# ---------------------------------------------------------------- who waits for a file


def test_deleting_a_branch_and_leaving_a_folder_do_not_wait_for_a_file_that_is_written(keeping, scenes, monkeypatch):
    gate, slow = gated(checkpoint.write)
    with keeping() as window:
        window.open(scenes[0])
        steps(window, 4)
        folder = window.engine.run_folder
        monkeypatch.setattr(checkpoint, "write", slow)
        window.send(m.BranchFrom(m.Moment("main", 4), "try"))
        window.until(lambda: window.snapshot.timeline.current == "try")
        window.send(m.DeleteBranch("main", files=True))   # whose last file is still to come
        assert window.sync() < 5.0 and window.snapshot.timeline.branch("main") is None
        gate.set()
        settled(window)
        window.until(lambda: "of branch main deleted" in texts(window))
        assert not list(folder.glob("checkpoints/main/iteration_*"))


def test_a_run_that_was_taken_up_and_not_trained_is_left_while_it_is_written(keeping, scenes, monkeypatch):
    from tests.records.test_lock import locked

    gate, slow = gated(checkpoint.write)
    with keeping() as window:
        window.open(scenes[0])
        steps(window, 4)
        folder = window.engine.run_folder
    with keeping() as window:
        window.open(str(folder))
        monkeypatch.setattr(checkpoint, "write", slow)
        window.send(m.SaveCheckpoint())
        window.sync()
        window.open(scenes[1])   # would take 30 s
        assert locked(folder) and not gate.is_set()
        gate.set()
        window.until(lambda: not locked(folder))
