"""Whatever way a run takes through its branches, folders and files, each branch keeps its own files and its own record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app import messages as m
from app.data.checkpoints import find, place
from app.engine.work import Ready
from app.records.lines import branches, read_lines
from app.records.place import Place
from app.records.read import read_run
from app.training import saving
from app.training.autosave import AutosaveConfig
from app.training.checkpoint import newest
from app.training.trainer import Trainer
from tests.app.engine_doubles import Window, gated, running_engine
from tests.app.test_engine_checkpoints import CONFIG, NEVER, bits, keeping, run_folder, scene_folder, step  # noqa: F401


def rows(folder: Path) -> dict[str, list[tuple[int, float]]]:
    return {name: [(row["iteration"], row["loss"]) for row in past]
            for name, past in branches(read_lines(folder / "metrics.jsonl")).items()}


def go(window: Window, command: m.Command, branch: str) -> None:
    window.send(command)
    window.until(lambda: window.snapshot.timeline.current == branch and window.snapshot.job is None)


def at(folder: Path) -> list[tuple[str, int]]:
    return sorted((saved.branch, saved.iteration) for saved in find(folder)[0])


@pytest.fixture
def named(tmp_path):
    """An engine whose runs lie in a folder that the user named."""
    def make(config=CONFIG, autosave=NEVER):
        return running_engine(config, make_trainer=Trainer, record=Place(tmp_path / "mine", root=tmp_path / "runs"),
                              autosave=autosave, load_backend=lambda name, report: Ready("cpu"))

    return make


def test_a_switch_there_and_back_leaves_each_branch_its_rows_and_its_options(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 20)
        window.send(m.SetOption("means_lr", 2e-4))
        window.sync()
        go(window, m.BranchFrom(m.Moment("main", 5), "try"), "try")
        window.send(m.SetOption("means_lr", 0.05))
        step(window, 20)
        folder = run_folder(window)
        go(window, m.SwitchBranch("main"), "main")
        step(window, 2)
        go(window, m.BranchFrom(m.Moment("try", 15), "third"), "third")   # from one that does not train
        step(window, 3)
        go(window, m.SwitchBranch("main"), "main")
    found = rows(folder)
    assert {name: [iteration for iteration, _ in past] for name, past in found.items()} == {
        "try": list(range(1, 26)), "third": list(range(1, 19)), "main": list(range(1, 23))}
    assert found["try"][:5] == found["main"][:5] and found["try"][14] != found["main"][14]
    assert found["third"][:15] == found["try"][:15] and found["main"][-1][0] == 22
    run = read_run(folder)
    assert run.config["means_lr"] == pytest.approx(2e-4) and run.metrics[-1]["iteration"] == 22
    assert not [event for event in run.events if event.get("new") == 0.05]


def test_a_branch_from_before_a_reset_goes_on_in_the_folder_of_then(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 12)
        first = run_folder(window)
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration == 0)
        step(window, 7)
        second = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 10), "again"), "again")
        assert run_folder(window) == first != second
        step(window, 4)
    assert {name: [iteration for iteration, _ in past] for name, past in rows(first).items()} == {
        "main": list(range(1, 13)), "again": list(range(1, 15))}
    assert rows(first)["again"][:10] == rows(first)["main"][:10]
    assert {name: len(past) for name, past in rows(second).items()} == {"run-2": 7}
    assert ("again", 14) in at(first) and at(second) == [("run-2", 7)]


def test_a_reset_in_a_named_folder_takes_nothing_from_the_run_before(named, scene_folder, monkeypatch, tmp_path):  # noqa: F811
    """Also while its last checkpoint is still being written, so that the folder looks like no run's yet."""
    gate, slow = gated(saving.checkpoint.write)
    monkeypatch.setattr(saving.checkpoint, "write", slow)
    with named() as window:
        window.open(scene_folder)
        step(window, 20)
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration == 0)
        assert not find(tmp_path / "mine")[0]
        step(window, 6)
        gate.set()
        name = window.engine.branch
        assert name != "main"
        window.open(scene_folder)   # opened anew in the same folder: another run again
        step(window, 3)
        third = window.engine.branch
    found = rows(tmp_path / "mine")
    assert {branch: len(past) for branch, past in found.items()} == {"main": 20, name: 6, third: 3} and len(found) == 3
    assert set(at(tmp_path / "mine")) >= {("main", 20), (name, 6), (third, 3)}


def test_a_file_that_was_put_elsewhere_does_not_write_over_the_run_in_a_named_folder(named, scene_folder, tmp_path):  # noqa: F811
    with named(autosave=AutosaveConfig(seconds=0, iterations=10)) as window:
        window.open(scene_folder)
        for _ in range(3):
            step(window, 10)
            window.until(lambda: ("main", window.snapshot.iteration) in at(tmp_path / "mine"))
    mine = tmp_path / "mine"
    backup = tmp_path / "backup" / "main"
    backup.mkdir(parents=True)
    shutil.copy(place(mine, 10), backup)
    before = {saved.path: saved.path.read_bytes() for saved in find(mine)[0]}
    with named() as window:
        window.open(str(backup / place(mine, 10).name))
        assert window.snapshot.iteration == 10 and run_folder(window) == mine and window.engine.branch == "run-2"
        assert [branch.name for branch in window.snapshot.timeline.branches] == ["run-2", "main"]
        step(window, 20)
    assert {path: path.read_bytes() for path in before} == before and ("run-2", 30) in at(mine)
    assert {name: [i for i, _ in past] for name, past in rows(mine).items()} == {
        "main": list(range(1, 31)), "run-2": list(range(11, 31))}


def test_nothing_is_written_into_a_folder_whose_lock_is_not_held(named, scene_folder, tmp_path):  # noqa: F811
    with named() as window:
        window.open(scene_folder)
        step(window, 5)
        window.send(m.SaveCheckpoint())
        window.until(lambda: at(tmp_path / "mine"))
        window.engine.recorder._holding.leave(None)()
        step(window, 1)
        window.send(m.SaveCheckpoint())
        window.sync()
    assert at(tmp_path / "mine") == [("main", 5)]


def test_a_relative_path_means_the_run_that_the_file_lies_in(keeping, scene_folder, monkeypatch):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 10)
        folder = run_folder(window)
    monkeypatch.chdir(place(folder, 10).parent)
    assert newest(Path(place(folder, 10).name)).path == place(folder, 10)
    with keeping() as window:
        window.open(place(folder, 10).name)
        assert run_folder(window) == folder and window.engine.branch == "main"
        step(window, 5)
    assert at(folder) == [("main", 10), ("main", 15)]
    with pytest.raises(ValueError, match="name of its branch"):
        place(folder, 1, "")


def test_an_older_branch_that_is_taken_up_does_not_touch_the_rows_of_another(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 20)
        folder = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 10), "try"), "try")
        step(window, 15)
    assert len(rows(folder)["try"]) == 25
    with keeping() as window:
        window.open(str(place(folder, 20)))
        step(window, 2)
        assert window.engine.branch == "main"
    found = rows(folder)
    assert {name: [i for i, _ in past] for name, past in found.items()} == {
        "try": list(range(1, 26)), "main": list(range(1, 23))}
    with keeping() as window:
        window.open(str(place(folder, 20)))   # main has gone on to 22
        assert window.engine.branch == "main-2"
        step(window, 1)
    found = rows(folder)
    assert {name: len(past) for name, past in found.items()} == {"try": 25, "main": 22, "main-2": 21}


def test_what_comes_after_the_last_step_is_in_the_last_checkpoint(keeping, scene_folder):  # noqa: F811
    """The evaluation at the end, a branch's new name, a branch that was deleted."""
    with keeping() as window:
        window.open(scene_folder)
        step(window, 6)
        go(window, m.BranchFrom(m.Moment("main", 3), "gone"), "gone")
        go(window, m.SwitchBranch("main"), "main")
        window.send(m.SaveCheckpoint())
        window.until(lambda: any(saved.reason == "user" for saved in window.of(m.RunSaved)))
        window.send(m.Evaluate())
        window.until(lambda: window.of(m.Evaluated) and window.snapshot.job is None)
        window.send(m.RenameBranch("main", "the first"), m.DeleteBranch("gone", True))
        window.until(lambda: len(window.snapshot.timeline.branches) == 1 and window.snapshot.job is None)
        folder = run_folder(window)
    found = newest(folder)
    assert [entry["iteration"] for entry in found.extra["history"]] == [6]
    with keeping() as window:
        window.open(str(folder))
        assert [branch.label for branch in window.snapshot.timeline.branches] == ["the first"]
        assert window.of(m.Evaluated)[0].iteration == 6


@pytest.mark.parametrize("label", ["my favourite", "the first"])
def test_a_branch_that_is_deleted_without_its_files_comes_back_under_its_label(keeping, scene_folder, label):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 6)
        go(window, m.BranchFrom(m.Moment("main", 3), "gone"), "gone")
        step(window, 2)
        go(window, m.SwitchBranch("main"), "main")
        window.send(m.RenameBranch("gone", label), m.DeleteBranch("gone", False))
        window.until(lambda: len(window.snapshot.timeline.branches) == 1 and window.snapshot.job is None)
        window.send(m.RenameBranch("main", "the first"))
        window.sync()
        folder = run_folder(window)
    for _ in range(2):
        with keeping() as window:
            window.open(str(folder))
            labels = {branch.name: branch.label for branch in window.snapshot.timeline.branches}
            assert labels == {"main": "the first", "gone": "gone" if label == "the first" else label}   # none is there twice
            step(window, 1)


def test_a_run_that_was_left_is_not_saved_in_the_name_of_the_next(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 6)
        first = run_folder(window)
        window.open(scene_folder)
        step(window, 2)
        window.until(lambda: at(first) == [("main", 6)])
        second = run_folder(window)
        assert second != first and not [saved for saved in window.of(m.RunSaved) if str(first) in saved.path]
    assert [event["iteration"] for event in read_run(second).events if event["event"] == "saved"] in ([], [2])


def test_what_is_done_before_the_first_step_is_in_the_record_too(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        window.send(m.Evaluate())
        window.until(lambda: window.of(m.Evaluated) and window.snapshot.job is None)
        step(window, 6)
        folder = run_folder(window)
    for deed, steps in (("freeze", 3), ("unfreeze", 0)):   # a run that is taken up and only looked after is recorded as well
        with keeping() as window:
            window.open(str(folder))
            window.send(m.SelectMore("all"), m.Operate(deed))
            window.sync()
            if steps:
                step(window, steps)
    run = read_run(folder)
    assert [event["iteration"] for event in run.events if event["event"] == "edited"] == [6, 9]
    assert [row["iteration"] for row in run.evaluations] == [0]
    assert [event["event"] for event in run.events if event["event"] not in ("saved", "densified")] == [
        "started", "evaluated", "closed", "resumed", "edited", "closed", "resumed", "edited", "closed"]
