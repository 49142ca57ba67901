"""C10, C11 in the window: a run is saved by itself, goes on where it was, and nothing of it is lost."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.data.checkpoints import find, place
from app.data.scene import SceneError
from app.engine.work import Ready
from app.records.lines import branches, read_lines
from app.records.place import Place
from app.training import checkpoint
from app.training.autosave import AutosaveConfig
from app.training.checkpoint import newest
from app.training.trainer import Trainer
from tests.app.engine_doubles import Window, open_tiny, request_for, running_engine
from tests.records.test_lock import another, locked, sentence

CONFIG = TrainConfig(iterations=60, schedule_iterations=30_000, seed=3,
                     densify=DensifyConfig(start=3, every=10, stop=59, grad_threshold=1e-6))
NEVER = AutosaveConfig(seconds=0)


@pytest.fixture
def scene_folder(tmp_path):
    """What the checkpoint names as the scene has to exist."""
    folder = tmp_path / "scene"
    folder.mkdir()
    return str(folder)


@pytest.fixture
def keeping(tmp_path):
    """An engine that records below a root of the test's, with the real trainer."""
    def make(config=CONFIG, autosave=NEVER, **named):
        return running_engine(config, make_trainer=Trainer, record=Place(root=tmp_path / "runs"), autosave=autosave,
                              load_backend=lambda name, report: Ready("cpu"), **named)

    return make


def run_folder(window: Window) -> Path:
    folder = window.engine.run_folder
    assert folder is not None
    return folder


def step(window: Window, count: int) -> None:
    target = window.snapshot.iteration + count
    window.send(m.Step(count))
    window.until(lambda: window.snapshot.iteration == target and window.snapshot.state in ("paused", "finished"))


def bits(window: Window) -> dict[str, bytes]:
    rows = window.engine.model.trainer.state.rows
    return {name: rows[name].detach().numpy().tobytes() for name in rows}


def test_C11_a_closed_window_goes_on_where_it_was_to_the_bit(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        request = window.look(request_for(window, view_index=None, width=40))
        step(window, 5)
        window.frame_of(request)
        window.send(m.SelectMore("all"), m.Operate("freeze"), m.SelectMore("none"), m.Select(uid=7),
                    m.SetOption("opacity_lr", 0.03), m.Operate("unfreeze_all"))
        window.sync()
        step(window, 18)
        folder, before = run_folder(window), bits(window)
        curves, told, uid = window.snapshot.curves, window.of(m.Densified), window.engine.selected_uid
        assert told and not (folder / "checkpoints").exists()
    assert [saved.reason for saved in find(folder)[0]] == ["close"]
    with keeping(TrainConfig()) as window:
        opened = window.open(str(folder))
        assert opened.run == str(folder) and opened.trainable and opened.path == scene_folder
        assert np.allclose(opened.camera.viewmat, request.camera.viewmat) and opened.camera.width == 40
        assert window.snapshot.iteration == 23 and window.snapshot.state == "paused" and bits(window).items() <= before.items()
        assert window.engine.config == replace(CONFIG, opacity_lr=0.03)
        assert window.of(m.ConfigChanged)[-1].values["opacity_lr"] == 0.03
        window.until(lambda: "loss" in window.snapshot.curves and len(window.snapshot.curves["loss"].x) == 23)
        assert np.array_equal(window.snapshot.curves["loss"].y, curves["loss"].y)
        assert window.of(m.Densified) == told and window.engine.selected_uid == uid
        assert window.snapshot.selection.selected > 0 and run_folder(window) == folder
        step(window, 20)
        again = bits(window)
    with keeping(replace(CONFIG, opacity_lr=0.025)) as window:   # and one that nobody closed
        window.open(scene_folder)
        step(window, 5)
        window.send(m.SelectMore("all"), m.Operate("freeze"), m.SelectMore("none"), m.Select(uid=7),
                    m.SetOption("opacity_lr", 0.03), m.Operate("unfreeze_all"))
        step(window, 38)
        assert bits(window) == again
    assert newest(folder).state.iteration == 43


def test_autosave_by_iteration_is_said_and_a_run_that_did_not_move_is_not_saved_again(keeping, scene_folder):
    with keeping(autosave=AutosaveConfig(seconds=0, iterations=4)) as window:
        window.open(scene_folder)
        for _ in range(3):
            step(window, 4)
            saved = len(window.of(m.RunSaved)) + 1
            window.until(lambda saved=saved: len(window.of(m.RunSaved)) >= saved)
        folder = run_folder(window)
        assert [event.iteration for event in window.of(m.RunSaved)] == [4, 8, 12]
        before = {saved.path: saved.path.stat().st_mtime_ns for saved in find(folder)[0]}
    assert {saved.path: saved.path.stat().st_mtime_ns for saved in find(folder)[0]} == before


def test_a_run_that_is_left_for_another_is_saved_first(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        step(window, 3)
        first = run_folder(window)
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration == 0)
        step(window, 2)
        second = run_folder(window)
        window.open(scene_folder)
        window.until(lambda: newest_or_none(second) is not None)
        assert first != second
    assert newest(first).state.iteration == 3 and newest(second).state.iteration == 2


def newest_or_none(folder):
    try:
        return newest(folder)
    except SceneError:
        return None


def test_N16_a_run_that_stops_at_a_nan_is_saved_as_it_was_before(keeping, scene_folder, monkeypatch):
    from app.training.verdict import TrainingStopped

    class Breaks(Trainer):
        def step(self):
            if self.iteration == 6:
                raise TrainingStopped("Training stopped at iteration 7: the loss of view a is nan.")
            return super().step()

    with running_engine(CONFIG, make_trainer=Breaks, record=Place(root=Path(scene_folder).parent / "runs"),
                        autosave=NEVER) as window:
        window.open(scene_folder, play=True)
        window.until(lambda: window.of(m.RunSaved))
        assert window.of(m.RunSaved)[-1].iteration == 6 and window.of(m.RunSaved)[-1].reason == "stop"


def test_a_save_on_demand_and_what_is_said_without_a_record(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("take a training step first" in n.text for n in window.of(m.Notice)))
        step(window, 2)
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("iteration_2.safetensors" in n.text for n in window.of(m.Notice)))
    with running_engine(CONFIG) as window:
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("open a scene folder" in n.text for n in window.of(m.Notice)))
        window.open(scene_folder)
        step(window, 2)
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("without --no_record" in n.text for n in window.of(m.Notice)))


def test_a_full_disk_is_said_once_and_training_goes_on(keeping, scene_folder, monkeypatch):
    def full(path, *args, **named):
        raise SceneError(f"{path} cannot be written (No space left on device)")

    with keeping(autosave=AutosaveConfig(seconds=0, iterations=2)) as window, monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", full)
        window.open(scene_folder)
        step(window, 12)
        window.until(lambda: any("without checkpoints" in n.text for n in window.of(m.Notice)))
        assert sum("without checkpoints" in n.text for n in window.of(m.Notice)) == 1 and not window.of(m.EngineFailed)


@pytest.mark.parametrize("harm, says", [("gone", "put the scene back"), ("other", "cannot be resumed"),
                                        ("half", "damaged"), ("option", "there is no option")])
def test_what_cannot_be_resumed_is_one_sentence_and_the_open_scene_stays(keeping, scene_folder, harm, says):
    with keeping() as window:
        window.open(scene_folder)
        step(window, 3)
        folder = run_folder(window)

    def other(path, **named):
        scene = open_tiny(path, **named)
        scene.views = [replace(view, name=f"other {view.name}") for view in scene.views]
        return scene

    with keeping(TrainConfig(), open_scene=other if harm == "other" else open_tiny) as window:
        window.open(".")
        if harm == "gone":
            Path(scene_folder).rmdir()
        if harm == "half":
            path = find(folder)[0][0].path
            path.write_bytes(path.read_bytes()[:-9])
        window.send(m.OpenScene(str(folder), changes={"nonsense": 1} if harm == "option" else {}))
        window.until(lambda: any(n.level == "error" for n in window.of(m.Notice)))
        assert says in window.of(m.Notice)[-1].text and not window.of(m.EngineFailed)
        assert len(window.of(m.SceneOpened)) == 1 and window.engine.config == TrainConfig()


def test_a_run_that_another_process_trains_is_refused_and_the_open_scene_stays(keeping, scene_folder, tmp_path):
    with keeping() as window:
        window.open(scene_folder)
        step(window, 3)
        folder = run_folder(window)
        assert locked(folder)
        window.open(str(tmp_path))
        window.until(lambda: not locked(folder))
    with keeping() as window:
        window.open(str(tmp_path))
        step(window, 2)
        mine = run_folder(window)
        with another(folder) as process:
            window.send(m.OpenScene(str(folder)))
            window.until(lambda: any(n.level == "error" for n in window.of(m.Notice)))
            assert window.of(m.Notice)[-1].text.startswith(sentence(folder, process.pid))
        assert len(window.of(m.SceneOpened)) == 1 and run_folder(window) == mine and locked(mine)
        window.open(str(folder))
        assert run_folder(window) == folder and locked(folder)
        step(window, 1)
        window.until(lambda: not locked(mine))
    assert not locked(folder) and newest(folder).state.iteration == 4


def test_two_that_choose_the_same_new_folder_do_not_meet(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        chosen = run_folder(window)
        with another(chosen):   # it comes to be before the first step
            step(window, 2)
        assert run_folder(window) != chosen and locked(run_folder(window))
        assert not any("not recorded" in n.text for n in window.of(m.Notice))


def test_flags_change_options_of_a_run_that_goes_on_and_it_may_go_past_its_target(keeping, scene_folder):
    with keeping(replace(CONFIG, iterations=5)) as window:
        window.open(scene_folder, play=True)
        window.until(window.state("finished"))
        folder = run_folder(window)
    with keeping(TrainConfig()) as window:
        window.send(m.OpenScene(str(folder), changes={"iterations": 9, "opacity_lr": 0.1}))
        window.until(lambda: window.snapshot.iteration == 9 and window.snapshot.state == "finished")
        assert window.engine.config.opacity_lr == 0.1 and window.engine.model.trainer.config.opacity_lr == 0.1


def test_a_new_run_in_the_folder_of_an_old_one_is_what_resuming_means_from_its_start(scene_folder, tmp_path):
    place = Place(folder=tmp_path / "named")
    named = dict(make_trainer=Trainer, record=place, autosave=NEVER, load_backend=lambda name, report: Ready("cpu"))
    with running_engine(CONFIG, **named) as window:
        window.open(scene_folder)
        step(window, 7)
    with running_engine(CONFIG, **named) as window:
        window.open(scene_folder)
        step(window, 1)
        window.until(lambda: window.of(m.RunSaved))
        assert window.of(m.RunSaved)[0].reason == "start" and newest(tmp_path / "named").state.iteration == 1
    assert sorted(saved.iteration for saved in find(tmp_path / "named")[0]) == [1, 7]


def iterations(folder: Path, branch: str = "main") -> list[int]:
    return sorted(saved.iteration for saved in find(folder)[0] if saved.branch == branch)


def test_edits_options_and_events_at_one_iteration_are_changes_that_closing_saves(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        step(window, 6)
        window.send(m.SaveCheckpoint())
        window.until(lambda: window.of(m.RunSaved))
        folder = run_folder(window)
        window.send(m.SelectMore("all"), m.Operate("freeze"), m.DensifyNow(), m.SetOption("opacity_lr", 0.07))
        window.sync()
        before, count = bits(window), window.snapshot.gaussians
    with keeping(TrainConfig()) as window:
        window.open(str(folder))
        assert window.snapshot.iteration == 6 and window.snapshot.gaussians == count
        assert window.engine.config.opacity_lr == 0.07 and bits(window).items() <= before.items()
        assert "mark.frozen" in window.engine.model.trainer.state.rows


def test_a_run_that_is_finished_and_a_branch_that_begins_are_saved_at_once(keeping, scene_folder):
    with keeping(replace(CONFIG, iterations=9)) as window:
        window.open(scene_folder, play=True)
        window.until(window.state("finished"))
        folder = run_folder(window)
        window.until(lambda: 9 in iterations(folder))
        window.send(m.BranchFrom(m.Moment("main", 9), "try"))
        window.until(lambda: iterations(folder, "try") == [9])
        window.until(lambda: {saved.reason for saved in window.of(m.RunSaved)} >= {"end", "branch"})


def test_a_run_taken_up_from_an_older_file_leaves_the_future_of_then_as_it_is(keeping, scene_folder):
    with keeping(autosave=AutosaveConfig(seconds=0, iterations=5)) as window:
        window.open(scene_folder)
        for _ in range(4):
            step(window, 5)
            window.until(lambda: max(iterations(run_folder(window)), default=0) == window.snapshot.iteration)
        folder = run_folder(window)
    before = {saved.path: saved.path.read_bytes() for saved in find(folder)[0]}
    with keeping(TrainConfig(), autosave=AutosaveConfig(seconds=0, iterations=5)) as window:
        window.open(str(place(folder, 10)))
        assert window.snapshot.iteration == 10 and window.engine.branch == "main-2"
        assert any("stays as branch main" in notice.text for notice in window.of(m.Notice))
        step(window, 12)
        timeline = window.snapshot.timeline
        assert timeline.current == "main-2" and timeline.branch("main-2").fork == 10 and timeline.branch("main").tip == 20
        assert set(timeline.branch("main").on_disk) == {5, 10, 15, 20}
        assert {path: path.read_bytes() for path in before} == before
        window.send(m.SwitchBranch("main"))
        window.until(lambda: window.snapshot.timeline.current == "main" and window.snapshot.job is None)
        assert window.snapshot.iteration == 20
    assert iterations(folder, "main-2")[-1] == 22


def test_a_save_waits_for_the_one_before_and_a_failure_is_said_after_the_run_was_left(keeping, scene_folder, monkeypatch):
    gate, real = threading.Event(), checkpoint.write

    def slow(path, *args, **named):
        gate.wait(30)
        if full and "iteration_4" in path.name:
            raise SceneError(f"{path} cannot be written (No space left on device)")
        return real(path, *args, **named)

    full = False
    monkeypatch.setattr(checkpoint, "write", slow)
    with keeping() as window:
        window.open(scene_folder)
        step(window, 2)
        window.send(m.SaveCheckpoint())
        window.sync()
        step(window, 1)
        window.send(m.SaveCheckpoint())   # while the first is written
        window.sync()
        gate.set()
        folder = run_folder(window)
        window.until(lambda: iterations(folder) == [2, 3])
        full = True
        step(window, 1)
        window.open(scene_folder)
        window.until(lambda: any("could not be saved as it was left" in n.text for n in window.of(m.Notice)))
        assert not window.of(m.EngineFailed)


def test_a_save_that_failed_is_made_up_for_when_the_window_closes(keeping, scene_folder, monkeypatch):
    full = True
    real = checkpoint.write

    def write(path, *args, **named):
        if full:
            raise SceneError(f"{path} cannot be written (No space left on device)")
        return real(path, *args, **named)

    monkeypatch.setattr(checkpoint, "write", write)
    with keeping() as window:
        window.open(scene_folder)
        step(window, 4)
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("without checkpoints" in n.text for n in window.of(m.Notice)))
        full, folder = False, run_folder(window)
    assert iterations(folder) == [4]


def test_a_branch_before_the_first_step_leaves_the_rows_of_the_record(keeping, scene_folder):
    with keeping() as window:
        window.open(scene_folder)
        step(window, 12)
        folder = run_folder(window)
    with keeping(TrainConfig()) as window:
        window.open(str(folder))
        window.send(m.BranchFrom(m.Moment("main", 12), "try"))
        window.until(lambda: window.snapshot.timeline.current == "try" and window.snapshot.job is None)
        step(window, 3)
    found = branches(read_lines(folder / "metrics.jsonl"))
    assert [row["iteration"] for row in found["main"]][-1] == 12 and [row["iteration"] for row in found["try"]][-1] == 15
