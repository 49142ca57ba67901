"""The timeline from the window's side: looking back, replays, branches. On the CPU all of it is exact."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from app import messages as m
from app.config import DensifyConfig, StrategyName, TrainConfig
from app.engine import timeline_pace
from app.engine.memory import rss_bytes
from app.inspection.questions import Sight, XRayQuestion
from app.records.place import Place
from app.training.autosave import AutosaveConfig
from app.training.trainer import Trainer
from tests.app.engine_doubles import Window, request_for, running_engine
from tests.training.tiny import make_scene

CONFIG = TrainConfig(iterations=1000, schedule_iterations=30_000, sh_every=7, seed=5,
                     densify=DensifyConfig(start=3, every=10, stop=45, reset_every=15, grad_threshold=1e-6, cap=150))
REAL = {"make_trainer": Trainer, "backend": "cpu"}


@pytest.fixture(autouse=True)
def _dense(monkeypatch):
    """Copies as often as they may be, whatever they cost on this machine."""
    monkeypatch.setattr(timeline_pace, "SHARE", 1e3)


def bits(window: Window) -> str:
    """Of all that decides the steps to come. Only while the run stands still."""
    assert window.engine.model is not None and window.engine.model.trainer is not None
    trainer = window.engine.model.trainer
    rows, digest = trainer.state.rows, hashlib.sha256()
    for name in sorted(rows):
        if not name.startswith(("grad.", "tap.", "last.", "lab.", "mark.selected", "mark.hidden")):
            digest.update(name.encode() + rows[name].detach().numpy().tobytes())
    for value in (trainer.iteration, trainer.state.optimizer.memory(), trainer.order.memory(), trainer.config,
                  trainer.state.rng.bit_generator.state, trainer.lineage.arrays()["parents"].tolist()):
        digest.update(repr(value).encode())
    return digest.hexdigest()


def steps(window: Window, count: int) -> None:
    goal = window.snapshot.iteration + count
    window.send(m.Step(count))
    window.until(lambda: window.snapshot.iteration == goal and window.snapshot.state == "paused")


def settled(window: Window) -> None:
    """All commands done and no job left."""
    window.sync()
    window.until(lambda: window.snapshot.job is None and window.engine.jobs.current is None)
    window.sync()


def branch(window: Window, name: str = "main") -> m.BranchState:
    found = window.snapshot.timeline.branch(name)
    assert found is not None
    return found


def texts(window: Window) -> str:
    return " ".join(event.text for event in window.of(m.Notice))


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


def test_branches_keep_their_curves_and_events_and_can_be_renamed_and_deleted():
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        steps(window, 30)
        window.send(m.Evaluate())
        settled(window)
        window.send(m.BranchFrom(m.Moment("main", 12), "slow means"))
        settled(window)
        told = window.of(m.BranchChanged)[-1]
        assert (told.name, told.iteration, told.evaluated) == ("slow means", 12, None)
        assert [e.iteration for e in told.densified] == [10]
        assert len(window.snapshot.curves["count"].x) == 12 and window.snapshot.curves["loss"].x[-1] == 12
        assert len(window.snapshot.branch_curves["main"]["count"].x) == 30
        steps(window, 5)
        window.send(m.RenameBranch("main", "first try"), m.RenameBranch("slow means", "first try"),
                    m.DeleteBranch("slow means"),
                    m.BranchFrom(m.Moment("main", 99)), m.BranchFrom(m.Moment("main", 3), "a/b"),
                    m.BranchFrom(m.Moment("main", 3), "Slow Means"), m.SwitchBranch("nowhere"))
        window.sync()
        assert branch(window).label == "first try" and branch(window, "slow means").fork == 12
        for words in ("There is a branch first try already", "The branch that trains cannot be deleted", "99 is none of them",
                      "'a/b' cannot be the name", "There is a branch Slow Means already", "There is no branch nowhere"):
            assert words in texts(window)
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


# ---------------------------------------------------------------- a reference run


class Straight:
    """What was done to a run, in order, so that it can be done again without a timeline."""

    def __init__(self, done: tuple = ()) -> None:
        self.done = done

    def until(self, iteration: int) -> Straight:
        taken, reached = [], 0
        for kind, value in self.done:
            if kind == "steps" and reached + value > iteration:
                if iteration > reached:
                    taken.append((kind, iteration - reached))
                break
            reached += value if kind == "steps" else 0
            taken.append((kind, value))
        return Straight(tuple(taken))

    def bits(self) -> str:
        with running_engine(CONFIG, **REAL) as window:
            window.open()
            for kind, value in self.done:
                do(window, kind, value)
            return bits(window)


def do(window: Window, kind: str, value) -> None:
    if kind == "steps":
        steps(window, value)
    else:
        window.send(*value)
        window.sync()


def random_deed(rng: random.Random, window: Window) -> tuple[str, object]:
    uids = window.engine.model.params.uids
    chosen = m.Select(uid=int(uids[rng.randrange(len(uids))]))
    return rng.choice([
        *[("steps", rng.randrange(1, 16))] * 7,
        ("option", (m.SetOption("means_lr", rng.choice([1e-4, 2e-4, 5e-4])),)),
        ("option", (m.SetOption("densify.absgrad", rng.random() < 0.5),)),
        ("option", (m.SetOption("lambda_dssim", rng.choice([0.0, 0.2])),)),
        ("edit", (chosen, m.Operate("delete"))),
        ("edit", (chosen, m.Operate("reset_opacity"))),
        ("edit", (chosen, m.Operate("freeze"))),
        ("edit", (chosen, m.Operate("delete"), m.Undo()))])


def play(window: Window, rng: random.Random, rounds: int) -> None:
    done = {"main": Straight()}
    expected = {"main": ""}
    for _ in range(rounds):
        current, what = window.snapshot.timeline.current, rng.random()
        if what < 0.7:
            deed = random_deed(rng, window)
            do(window, *deed)
            done[current] = Straight((*done[current].done, deed))
        elif what < 0.8:
            source = rng.choice(list(done))
            tip = window.snapshot.iteration if source == current else branch(window, source).tip
            at, name = rng.randrange(tip + 1), f"b{len(done)}"
            expected[current] = bits(window)
            window.send(m.BranchFrom(m.Moment(source, at), name))
            settled(window)
            done[name] = done[source].until(at)
            assert window.snapshot.iteration == at and window.snapshot.timeline.current == name, texts(window)
        elif what < 0.9:
            expected[current] = bits(window)
            target = rng.choice(list(done))
            window.send(m.SwitchBranch(target))
            settled(window)
            assert bits(window) == expected[target]
        else:
            before, name = bits(window), rng.choice(list(done))
            moment = m.Moment(name, rng.randrange(branch(window, name).tip + 1))
            window.look(request_for(window, moment=moment))
            window.send(m.Replay(moment))
            settled(window)
            assert bits(window) == before
        assert window.engine.timeline.ring.nbytes <= window.engine.timeline.ring.budget
    assert not window.of(m.EngineFailed), window.of(m.EngineFailed)[0].traceback
    expected[window.snapshot.timeline.current] = bits(window)
    assert len(done) > 1 and max(sum(value for kind, value in s.done if kind == "steps") for s in done.values()) > 30
    for name, straight in done.items():
        assert straight.bits() == expected[name], (name, straight.done)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_done_every_branch_has_the_bits_of_a_straight_run(seed):
    with running_engine(CONFIG, **REAL) as window:
        window.open()
        play(window, random.Random(seed), 25)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3, 9))
def test_whatever_is_done_for_long_every_branch_has_the_bits_of_a_straight_run(seed):
    with running_engine(CONFIG, timeline_bytes=2_000_000 if seed % 2 else 0, **REAL) as window:   # with few moments, too
        window.open()
        play(window, random.Random(seed), 60)


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


def test_moments_on_disk_are_listed_read_and_replayed_from(tmp_path):
    place = Place(tmp_path / "run")
    with running_engine(CONFIG, record=place, autosave=AutosaveConfig(seconds=0.0, iterations=10), **REAL) as window:
        window.open()
        seen = {}
        for goal in range(1, 36):
            steps(window, 1)
            if goal in (10, 20, 24, 30):
                seen[goal] = bits(window)
                window.until(lambda goal=goal: goal % 10 or goal in branch(window).on_disk)
        window.engine.timeline.ring.clear()
        window.look(request_for(window, moment=m.Moment("main", 19)))
        window.until(lambda: window.snapshot.frame is not None and window.snapshot.frame.moment == m.Moment("main", 20))
        window.engine.timeline.ring.clear()
        window.send(m.BranchFrom(m.Moment("main", 24), "other"))
        settled(window)
        assert bits(window) == seen[24] and window.snapshot.timeline.current == "other"
        window.send(m.SwitchBranch("main"))   # its end is on disk as well
        settled(window)
        assert 35 in branch(window).on_disk
        steps(window, 1)
        window.send(m.SwitchBranch("other"))
        settled(window)
        steps(window, 3)
        window.send(m.DeleteBranch("main", files=True))
        settled(window)
        assert not (tmp_path / "run" / "checkpoints" / "main").exists()
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["other"]
    with running_engine(CONFIG, record=place, **REAL) as window:   # another day
        window.send(m.OpenScene(str(tmp_path / "run"), False))
        window.until(lambda: window.snapshot.iteration == 27 and window.snapshot.state == "paused")
        assert window.snapshot.timeline.current == "other" and branch(window, "other").densified == (10, 20)
        steps(window, 3)
        end = bits(window)
        window.send(m.BranchFrom(m.Moment("other", 28), "third"))
        settled(window)
        steps(window, 2)
        assert bits(window).replace("third", "") == end
        window.send(m.Replay(m.Moment("other", 26)))
        settled(window)
        assert "Iteration 26 cannot be reached" in texts(window) and not window.of(m.EngineFailed)


def test_branches_options_and_curves_come_back_with_a_run_that_is_taken_up(tmp_path):
    place = Place(tmp_path / "run")
    with running_engine(CONFIG, record=place, autosave=AutosaveConfig(seconds=0.0, iterations=10), **REAL) as window:
        window.open()
        steps(window, 13)
        window.send(m.SetOption("means_lr", 5e-4))
        window.sync()
        steps(window, 4)
        seen = bits(window)
        steps(window, 13)
        window.send(m.BranchFrom(m.Moment("main", 22), "try"), m.RenameBranch("main", "long one"))
        settled(window)
        steps(window, 4)
        told = window.snapshot.timeline
    with running_engine(CONFIG, record=place, **REAL) as window:
        window.send(m.OpenScene(str(tmp_path / "run"), False))
        window.until(lambda: window.snapshot.iteration == 26 and window.snapshot.state == "paused")
        for before, after in zip(told.branches, window.snapshot.timeline.branches, strict=True):
            assert replace(after, kept=(), replayed=(), on_disk=(), tip=0) == replace(before, kept=(), replayed=(), on_disk=(),
                                                                                      tip=0)
        assert branch(window).label == "long one" and branch(window).tip == 30 and branch(window).on_disk
        assert len(window.snapshot.branch_curves["main"]["count"].x) == 30
        window.send(m.BranchFrom(m.Moment("try", 17), "again"))   # from a file, over the option that was changed
        settled(window)
        assert bits(window) == seen
        window.send(m.SwitchBranch("main"))
        settled(window)
        assert window.snapshot.iteration == 30


@pytest.mark.slow
def test_M01_5000_steps_with_a_timeline_grow_by_no_more_than_its_budget():
    budget = 64 << 20
    config = TrainConfig(iterations=7000, schedule_iterations=30_000,
                         densify=DensifyConfig(start=0, every=100, stop=600, reset_every=3000))

    def open_scene(path, *, progress, **_):
        return make_scene(6, 80, size=56, points=400)

    with running_engine(config, timeline_bytes=budget, open_scene=open_scene, **REAL) as window:
        window.open()
        steps(window, 1000)   # warm-up: the number of Gaussians settles
        before, held = rss_bytes(), window.engine.timeline.ring.nbytes
        window.send(m.Step(5000))
        window.until(lambda: window.snapshot.iteration == 6000 and window.snapshot.state == "paused", 600.0)
        assert window.engine.timeline.ring.nbytes <= budget
        assert rss_bytes() - before < (100 << 20) + budget - held


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
