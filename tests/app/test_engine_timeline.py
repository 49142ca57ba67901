"""The timeline from the window's side: looking back, replays, branches. On the CPU all of it is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from app import messages as m
from app.config import StrategyName
from app.engine.timeline import pace
from app.inspection.questions import Sight, XRayQuestion
from app.records.place import Place
from app.training.autosave import AutosaveConfig
from tests.app.engine_doubles import request_for, running_engine
from tests.app.timeline_doubles import CONFIG, REAL, bits, branch, settled, steps, texts


@pytest.fixture(autouse=True)
def _dense(monkeypatch):
    """Copies as often as they may be, whatever they cost on this machine."""
    monkeypatch.setattr(pace, "SHARE", 1e3)


def test_moments_are_kept_before_events_and_shown_at_once():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 40)
        kept = branch(window).kept
        assert kept[0] == 0 and {14, 19, 29} <= set(kept) and window.snapshot.timeline.exact
        assert branch(window).densified == (10, 20, 40) and branch(window).resets == (15, 30)
        now = window.frame_of(window.look(request_for(window)))
        back = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 17))))
        assert back.moment == m.Moment("main", 19) and back.iteration == 19 and now.moment is None
        assert not np.array_equal(now.rgba, back.rgba)
        begin = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 2), mode="heatmap")))
        assert begin.iteration == 0 and "a moment of the past has none" in begin.note
        for mode in m.VIEW_MODES:
            frame = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 14), mode=mode, view_index=0)))
            assert frame.iteration == 14
        assert not window.of(m.EngineFailed)


def test_a_moment_stands_still_while_the_run_goes_on_and_two_lie_beside_each_other():
    with running_engine(replace(CONFIG, iterations=10**6), **REAL) as window:
        window.open()
        steps(window, 30)
        alone = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 14))), refined=True)
        window.send(m.Play())
        window.until(lambda: window.snapshot.iteration > 45)
        assert window.snapshot.frame is alone   # not drawn again
        both = window.look(request_for(window, moment=m.Moment("main", 14),
                                       beside=m.Beside("color", share=0.5, moment=m.Moment("main", 29))))
        frame = window.frame_of(both)
        assert frame.moment == m.Moment("main", 14) and frame.moment_beside == m.Moment("main", 29)
        assert np.array_equal(frame.rgba[:, :16], alone.rgba[:, :16])
        right = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 29))))
        assert np.array_equal(frame.rgba[:, 16:], right.rgba[:, 16:])
        depth = window.frame_of(window.look(request_for(
            window, mode="depth", moment=m.Moment("main", 14), beside=m.Beside("depth", moment=m.Moment("main", 29)))))
        assert depth.legend == depth.legend_beside   # the same colours stand for the same numbers
        window.send(m.Pause())
        window.sync()


def test_a_replay_has_the_bits_of_the_run_with_options_changed_on_the_way():
    seen = {}
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        for at in range(1, 41):
            steps(window, 1)
            if at in (7, 12, 21):
                window.send(m.SetOption("means_lr", 1e-4 * at), m.SetOption("densify.absgrad", at == 12))
                window.sync()
            if at in (9, 17, 26, 33):
                seen[at] = bits(window)
        now = bits(window)
        assert {text for _, text in branch(window).options} == {
            "means_lr = 0.0007", "means_lr = 0.0012", "densify.absgrad = True", "means_lr = 0.0021", "densify.absgrad = False"}
        for at, expected in seen.items():
            window.send(m.Replay(m.Moment("main", at)))
            settled(window)
            assert at in branch(window).kept and bits(window) == now
            window.send(m.BranchFrom(m.Moment("main", at), f"from {at}"))
            settled(window)
            assert window.snapshot.iteration == at and bits(window) == expected
            window.send(m.SwitchBranch("main"))
            settled(window)
            assert bits(window) == now and window.snapshot.iteration == 40


def test_what_was_done_by_hand_is_not_crossed():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 12)
        uid = int(window.engine.model.params.uids[3])
        window.send(m.Select(uid=uid), m.Operate("delete"))
        window.sync()
        edited = bits(window)
        assert branch(window).edits == (12,) and 12 in branch(window).kept
        steps(window, 4)
        later = bits(window)
        steps(window, 6)
        for at, expected in ((12, edited), (16, later)):
            window.send(m.BranchFrom(m.Moment("main", at)), m.Pause())
            settled(window)
            assert bits(window) == expected and window.snapshot.selection.undo == ""
            window.send(m.SwitchBranch("main"))
            settled(window)
        timeline = window.engine.timeline
        timeline.ring.drop(next(kept for kept in timeline.ring.of("main") if kept.iteration == 12))
        window.engine.timeline.ring.drop_branch("branch-2")
        window.engine.timeline.ring.drop_branch("branch-3")
        window.send(m.Replay(m.Moment("main", 13)))
        settled(window)
        assert "Iteration 13 cannot be reached: nothing is kept between it and the last change made by hand" in texts(window)


def test_why_a_moment_of_a_run_that_was_taken_up_cannot_be_reached_is_said_truly(tmp_path):
    """Nothing was changed by hand: nothing is kept before it, or nobody knows what was done before the file."""
    place, saving = Place(tmp_path / "run"), AutosaveConfig(seconds=0.0, iterations=5)
    with running_engine(CONFIG, record=place, autosave=saving, **REAL) as window:
        window.open()
        for _ in range(2):
            steps(window, 5)
            window.until(lambda: window.snapshot.iteration in branch(window).on_disk)
        steps(window, 2)
    for forgets in (False, True):   # as a run without a window forgets
        with running_engine(CONFIG, record=place, **REAL) as window:
            window.send(m.OpenScene(str(tmp_path / "run"), False))
            window.until(lambda: window.snapshot.iteration == 12 and window.snapshot.state == "paused")
            if forgets:
                window.engine.timeline.now.known = 12
            for goal in (0, 7):
                window.send(m.Replay(m.Moment("main", goal)))
                settled(window)
            said = texts(window)
            assert "by hand" not in said and not window.of(m.EngineFailed)
            assert "Iteration 0 cannot be reached: no moment before it is kept, and a replay only goes forward;" in said
            assert (7 in branch(window).replayed) == (not forgets)
            assert ("Iteration 7 cannot be reached: what was done before iteration 12 is not known, since the run was taken up "
                    "from a file; choose a kept moment." in said) == forgets


def test_branches_keep_their_curves_and_events_and_can_be_renamed_and_deleted():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 30)
        window.send(m.Evaluate())
        settled(window)
        assert branch(window).evaluated[-1:] == (30,) and branch(window).ssim == tuple(e.ssim for e in window.of(m.Evaluated))
        window.send(m.BranchFrom(m.Moment("main", 12), "slow means"))
        settled(window)
        told = window.of(m.BranchChanged)[-1]
        assert (told.name, told.iteration, told.evaluated) == ("slow means", 12, None)
        assert [e.iteration for e in told.densified] == [10]
        assert len(window.snapshot.curves["count"].x) == 12 and window.snapshot.curves["loss"].x[-1] == 12
        assert len(window.snapshot.branch_curves["main"]["count"].x) == 30
        steps(window, 5)
        window.send(m.RenameBranch("main", "first try"), m.RenameBranch("slow means", "first try"),
                    m.RenameBranch("main", "red\x1b[31m"), m.RenameBranch("main", "two\nlines"), m.RenameBranch("main", "a\0b"),
                    m.DeleteBranch("slow means"),
                    m.BranchFrom(m.Moment("main", 99)), m.BranchFrom(m.Moment("main", 3), "a/b"),
                    m.BranchFrom(m.Moment("main", 3), "Slow Means"), m.SwitchBranch("nowhere"))
        window.sync()
        assert branch(window).label == "first try" and branch(window, "slow means").fork == 12
        for words in ("There is a branch first try already", "The branch that trains cannot be deleted", "99 is none of them",
                      "'a/b' cannot be the name", "There is a branch Slow Means already", "There is no branch nowhere"):
            assert words in texts(window)
        assert texts(window).count("A branch is called by 1 to 40 printable characters.") == 3
        before = bits(window)
        window.send(m.DeleteBranch("main"))
        settled(window)
        assert [b.name for b in window.snapshot.timeline.branches] == ["slow means"]
        assert branch(window, "slow means").parent == "" and 0 in branch(window, "slow means").kept
        window.send(m.BranchFrom(m.Moment("slow means", 5)))   # its past is its own now
        settled(window)
        window.send(m.SwitchBranch("slow means"))
        settled(window)
        assert bits(window) == before
        assert not window.of(m.EngineFailed)


def test_a_reset_loses_nothing():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        window.send(m.Reset())
        settled(window)
        assert [b.name for b in window.snapshot.timeline.branches] == ["main"]   # nothing had been trained
        steps(window, 23)
        before = bits(window)
        window.send(m.SetOption("seed", 8), m.Reset())
        settled(window)
        assert window.snapshot.iteration == 0 and window.snapshot.timeline.current == "run-2"
        steps(window, 3)
        window.send(m.SwitchBranch("main"))
        settled(window)
        assert bits(window) == before and window.snapshot.iteration == 23
        assert window.engine.config.seed == 8   # still waits for a reset
        window.send(m.SwitchBranch("run-2"))
        settled(window)
        assert window.snapshot.iteration == 3


def test_a_replay_can_be_cancelled_and_commands_are_heard_meanwhile():
    with running_engine(replace(CONFIG, iterations=10**6), **REAL) as window:
        window.open()
        steps(window, 120)
        timeline = window.engine.timeline
        for kept in timeline.ring.of("main")[1:]:
            timeline.ring.drop(kept)
        window.send(m.BranchFrom(m.Moment("main", 119), "late"))
        window.until(lambda: window.snapshot.job is not None and window.snapshot.job.name == "branch"
                     and window.snapshot.job.fraction > 0)
        window.send(m.CancelJob())
        window.until(lambda: window.snapshot.job is None)
        assert [b.name for b in window.snapshot.timeline.branches] == ["main"] and window.snapshot.iteration == 120
        window.send(m.Replay(m.Moment("main", 119)), m.OpenScene(".", False))
        window.until(lambda: len(window.of(m.SceneOpened)) == 2 and window.snapshot.job is None)
        assert window.snapshot.timeline.branches[0].kept == () and not window.of(m.EngineFailed)


def test_moments_never_take_more_than_their_budget_and_the_ends_of_branches_stay_longest():
    with running_engine(CONFIG, timeline_bytes=400_000, **REAL) as window:
        window.open()
        for at in range(30):
            steps(window, 2)
            assert window.engine.timeline.ring.nbytes <= 400_000
            if at in (10, 20):
                window.send(m.BranchFrom(m.Moment(window.snapshot.timeline.current, window.snapshot.iteration - 3)))
                settled(window)
        assert window.snapshot.timeline.budget == 400_000 >= window.snapshot.timeline.nbytes
        for name in ("main", "branch-2"):
            assert branch(window, name).tip in branch(window, name).kept
        window.until(lambda: window.snapshot.memory["timeline"] == window.engine.timeline.ring.nbytes)
    with running_engine(CONFIG, timeline_bytes=1000, **REAL) as window:
        window.open()
        steps(window, 12)
        assert window.engine.timeline.ring.nbytes == 0 and texts(window).count("none is kept in memory") == 1
        frame = window.frame_of(window.look(request_for(window, moment=m.Moment("main", 3))))
        assert frame.moment is None and "No moment is kept" in frame.note
        window.send(m.BranchFrom(m.Moment("main", 3)))
        settled(window)
        assert "cannot be reached" in texts(window) and window.snapshot.iteration == 12


def test_parts_of_steps_and_densifications_by_hand_are_not_crossed_either():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 11)
        window.send(m.TakePart("backward"), m.SetOption("means_lr", 5e-4), m.TakePart("optimiser"))
        window.sync()
        window.until(lambda: window.snapshot.steering.phase == "update")
        steps(window, 1) if window.snapshot.iteration == 11 else window.send(m.Step(1))
        window.until(lambda: window.snapshot.steering.phase == "" and window.snapshot.state == "paused")
        at = window.snapshot.iteration
        half = bits(window)
        steps(window, 2)
        window.send(m.DensifyNow())
        window.sync()
        dense, then = bits(window), window.snapshot.iteration
        steps(window, 7)
        for iteration, expected in ((at, half), (then, dense)):
            window.send(m.BranchFrom(m.Moment("main", iteration)))
            settled(window)
            assert bits(window) == expected and window.snapshot.iteration == iteration
            window.send(m.SwitchBranch("main"))
            settled(window)


@pytest.mark.parametrize("strategy", [name for name in get_args(StrategyName) if name not in ("adc", "none")])
def test_replays_of_every_strategy_and_of_a_change_of_it_have_the_bits_of_the_run(strategy):
    seen = {}
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 12)
        window.send(m.SetOption("densify.strategy", strategy), m.SetOption("optimizer.quats", "sgd"))
        window.sync()
        for at in range(13, 48):
            steps(window, 1)
            if at in (13, 26, 44):
                seen[at] = bits(window)
        for at, expected in seen.items():
            window.send(m.BranchFrom(m.Moment("main", at)))
            settled(window)
            assert window.snapshot.iteration == at and bits(window) == expected, texts(window)
            steps(window, 47 - at)
            seen[at] = bits(window)
            window.send(m.SwitchBranch("main"))
            settled(window)
        assert set(seen.values()) == {bits(window)} and not window.of(m.EngineFailed)


def test_the_x_ray_is_of_the_moment_that_is_looked_at():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 40)
        answers = {}
        for moment in (None, m.Moment("main", 14), m.Moment("main", 29)):
            request = window.look(request_for(window, moment=moment))
            window.frame_of(request)
            question = XRayQuestion(Sight.of(request.camera), 16, 12)
            window.engine.inspect_requests.put(m.InspectRequest({"xray": question}))
            at = 40 if moment is None else moment.iteration
            window.until(lambda at=at: "xray" in window.snapshot.answers and window.snapshot.answers["xray"].iteration == at)
            answers[at] = window.snapshot.answers["xray"].value.rendered
        assert not np.array_equal(answers[14], answers[29]) and not np.array_equal(answers[14], answers[40])
        split = window.look(request_for(window, moment=m.Moment("main", 14), beside=m.Beside("color", share=0.25)))
        window.frame_of(split)   # now stands at the right
        window.until(lambda: window.snapshot.answers["xray"].iteration == 40)
        assert np.array_equal(window.snapshot.answers["xray"].value.rendered, answers[40])
