"""What a file does not know of the branches of its run, names that are used again, and folders that go."""

from __future__ import annotations

import shutil

import pytest

from app import messages as m
from app.data.checkpoints import find, place
from app.records.read import read_run
from app.training import saving
from app.training.autosave import AutosaveConfig
from app.training.checkpoint import newest
from app.training.remembered import onward, since
from tests.app.test_engine_branch_records import at, go, rows
from tests.app.test_engine_checkpoints import NEVER, bits, keeping, run_folder, scene_folder, step  # noqa: F401


def test_a_branch_that_went_on_after_a_file_was_written_is_where_its_own_files_say(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 7)
        folder = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 7), "b1"), "b1")
        step(window, 1)
        go(window, m.SwitchBranch("main"), "main")
        step(window, 13)
        truth = bits(window)
    with keeping() as window:
        window.open(str(place(folder, 8, "b1")))   # it knows main up to 7 only
        assert window.snapshot.timeline.branch("main").tip == 20
        step(window, 2)
    before = newest(place(folder, 20)).state.params().means
    with keeping() as window:
        window.open(str(folder))
        assert window.engine.branch == "b1" and window.snapshot.iteration == 10
        go(window, m.SwitchBranch("main"), "main")
        assert window.snapshot.iteration == 20 and bits(window).items() <= truth.items()
        step(window, 1)
    assert len(rows(folder)["main"]) == 21 and (newest(place(folder, 20)).state.params().means == before).all()


def test_a_leg_without_a_window_on_another_branch_does_not_put_branches_back(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 7)
        folder = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 7), "b1"), "b1")
        step(window, 1)
        go(window, m.SwitchBranch("main"), "main")
        step(window, 13)
    found = newest(place(folder, 8, "b1"))
    told = onward(since(found.extra["timeline"], found, folder), found, "b1")
    (main,) = [one for one in told["branches"] if one["name"] == "main"]
    assert (main["tip"], main["known"], main["log"]) == (20, 20, [])
    (b1,) = [one for one in told["branches"] if one["name"] == "b1"]
    assert (b1["parent"], b1["fork"], b1["known"]) == ("main", 7, 8)


def test_a_branch_that_was_trained_again_from_before_a_fork_shares_no_files_with_it(keeping, scene_folder):  # noqa: F811
    """main is killed before its end is saved, taken up earlier, and goes otherwise; what grew from that end is not of it."""
    with keeping() as window:
        window.open(scene_folder)
        step(window, 5)
        window.send(m.SaveCheckpoint())
        window.until(lambda: window.of(m.RunSaved))
        folder = run_folder(window)
        step(window, 10)
        go(window, m.BranchFrom(m.Moment("main", 15), "b1"), "b1")
        step(window, 1)
        truth = bits(window)
    for saved in find(folder)[0]:   # as if killed before
        if saved.branch == "main" and saved.iteration != 5:
            saved.path.unlink()
    with keeping() as window:
        window.open(str(place(folder, 5)))
        assert window.engine.branch == "main"
        window.send(m.SetOption("means_lr", 0.05))
        step(window, 6)
    with keeping() as window:
        window.open(str(place(folder, 16, "b1")))
        timeline = window.snapshot.timeline
        assert timeline.branch("main").tip == 11 and timeline.branch("b1").parent == ""
        assert bits(window).items() <= truth.items()
        window.send(m.Replay(m.Moment("b1", 12)))
        window.until(lambda: any("cannot be reached" in notice.text for notice in window.of(m.Notice)))


def test_the_future_of_an_older_file_is_not_replayed_without_what_was_done_in_it(keeping, scene_folder):  # noqa: F811
    with keeping(autosave=AutosaveConfig(seconds=0, iterations=5)) as window:
        window.open(scene_folder)
        step(window, 5)
        window.until(lambda: window.of(m.RunSaved))
        folder = run_folder(window)
        window.send(m.SetOption("means_lr", 0.05))
        step(window, 11)
    with keeping(autosave=NEVER) as window:
        window.open(str(place(folder, 5)))
        assert window.engine.branch == "main-2"
        window.send(m.BranchFrom(m.Moment("main", 8), "c"))
        window.until(lambda: any("cannot be reached" in notice.text for notice in window.of(m.Notice)))
        assert "c" not in [branch.name for branch in window.snapshot.timeline.branches]
        go(window, m.BranchFrom(m.Moment("main", 10), "d"), "d")   # which has a file
        step(window, 1)
    assert rows(folder)["d"][:10] == rows(folder)["main"][:10]


def test_a_branch_from_where_another_began_has_the_options_and_the_log_of_that_one(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 7)
        folder = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 7), "b1"), "b1")
        window.send(m.SetOption("means_lr", 0.05))
        step(window, 5)
        go(window, m.SwitchBranch("main"), "main")
        window.send(m.SetOption("means_lr", 0.0002))
        window.sync()
        go(window, m.BranchFrom(m.Moment("b1", 7), "b3"), "b3")
        assert window.engine.config.means_lr == 0.05 and window.snapshot.timeline.branch("b3").parent == "b1"
        step(window, 5)
    found = rows(folder)
    assert found["b3"][7:] == found["b1"][7:] and read_run(folder).config["means_lr"] == 0.05
    assert [event["new"] for event in read_run(folder).events if event["event"] == "option"] == [0.05]


def test_a_name_that_is_used_again_has_nothing_of_the_branch_that_was_deleted(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 20)
        folder = run_folder(window)
        go(window, m.BranchFrom(m.Moment("main", 5), ""), "branch-2")
        window.send(m.SetOption("means_lr", 0.05))
        step(window, 10)
        go(window, m.SwitchBranch("main"), "main")
        window.send(m.DeleteBranch("branch-2", True))
        window.until(lambda: len(window.snapshot.timeline.branches) == 1 and window.snapshot.job is None)
        go(window, m.BranchFrom(m.Moment("main", 12), ""), "branch-2")
        step(window, 3)
    found = rows(folder)
    assert found["branch-2"][:12] == found["main"][:12] and len(found["branch-2"]) == 15
    assert not [event for event in read_run(folder).events if event["event"] == "option"]


def test_a_parent_that_is_deleted_before_the_first_step_leaves_its_past(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 12)
        folder = run_folder(window)
    with keeping() as window:
        window.open(str(folder))
        go(window, m.BranchFrom(m.Moment("main", 12), "b1"), "b1")
        window.send(m.DeleteBranch("main", True))
        window.until(lambda: len(window.snapshot.timeline.branches) == 1 and window.snapshot.job is None)
        step(window, 3)
    assert [iteration for iteration, _ in rows(folder)["b1"]] == list(range(1, 16))


def test_a_branch_of_one_that_took_no_step_has_the_past_of_both(keeping, scene_folder):  # noqa: F811
    with keeping(autosave=AutosaveConfig(seconds=0, iterations=4)) as window:
        window.open(scene_folder)
        step(window, 4)
        window.until(lambda: window.of(m.RunSaved))
        step(window, 3)
        folder = run_folder(window)
    with keeping() as window:
        window.open(str(place(folder, 4)))
        assert window.engine.branch == "main-2"
        go(window, m.BranchFrom(m.Moment("main-2", 4), "b1"), "b1")
        step(window, 2)
    assert [iteration for iteration, _ in rows(folder)["b1"]] == list(range(1, 7))
    assert rows(folder)["b1"][:4] == rows(folder)["main"][:4]


def test_a_reset_that_took_no_step_is_recorded_when_it_is_come_back_to(keeping, scene_folder):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 10)
        first = run_folder(window)
        window.send(m.Reset())
        window.until(lambda: window.snapshot.iteration == 0)
        go(window, m.SwitchBranch("main"), "main")
        go(window, m.SwitchBranch("run-2"), "run-2")
        step(window, 8)
        second = run_folder(window)
        assert second != first and not [notice for notice in window.of(m.Notice) if "not recorded" in notice.text]
    assert at(second) == [("run-2", 8)] and len(rows(second)["run-2"]) == 8


@pytest.mark.parametrize("moved", [True, False])
def test_a_folder_that_is_gone_is_said_and_not_made_anew(keeping, scene_folder, moved, tmp_path):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 6)
        window.send(m.SaveCheckpoint())
        folder = run_folder(window)
        window.until(lambda: at(folder) == [("main", 6)])
        if moved:
            folder.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(folder)
        step(window, 2)
        window.send(m.SaveCheckpoint())
        window.until(lambda: any("was moved or deleted" in notice.text for notice in window.of(m.Notice)))
        if moved:
            (tmp_path / "elsewhere").rename(folder)
            step(window, 1)
    if moved:
        assert at(folder) == [("main", 6), ("main", 9)] and len(rows(folder)["main"]) == 9
    else:
        assert not folder.exists()


def test_files_of_a_run_are_in_order_whatever_the_clock_says(keeping, scene_folder, monkeypatch):  # noqa: F811
    with keeping() as window:
        window.open(scene_folder)
        step(window, 5)
        window.send(m.SaveCheckpoint())
        folder = run_folder(window)
        window.until(lambda: at(folder) == [("main", 5)])
        real = saving.checkpoint.time.time
        monkeypatch.setattr(saving.checkpoint.time, "time", lambda: real() - 30 * 86400)
        step(window, 5)
    assert newest(folder).state.iteration == 10 and [saved.serial for saved in find(folder)[0]] == [2, 1]
