"""Branches over days: on disk, taken up again, and in any order of deeds with the bits of a straight run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.engine.memory import rss_bytes
from app.engine.timeline import pace
from app.records.place import Place
from app.training.autosave import AutosaveConfig
from tests.app.engine_doubles import Window, request_for, running_engine
from tests.app.timeline_doubles import CONFIG, REAL, bits, branch, settled, steps, texts
from tests.training.tiny import make_scene


@pytest.fixture(autouse=True)
def _dense(monkeypatch):
    """Copies as often as they may be, whatever they cost on this machine."""
    monkeypatch.setattr(pace, "SHARE", 1e3)


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
        left = {int(path.stem.split("_")[1]) for path in (tmp_path / "run" / "checkpoints" / "main").iterdir()}
        assert left and max(left) <= 24   # the past that the other branch shares stays
        assert left <= set(branch(window, "other").on_disk)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["main", "other"]
    with running_engine(CONFIG, record=place, **REAL) as window:   # another day
        window.send(m.OpenScene(str(tmp_path / "run"), False))
        window.until(lambda: window.snapshot.iteration == 27 and window.snapshot.state == "paused")
        assert window.snapshot.timeline.current == "other" and branch(window, "other").densified == (10, 20)
        assert [known.name for known in window.snapshot.timeline.branches] == ["other"]
        assert left <= set(branch(window, "other").on_disk)
        steps(window, 3)
        end = bits(window)
        window.send(m.BranchFrom(m.Moment("other", 28), "third"))
        settled(window)
        steps(window, 2)
        assert bits(window).replace("third", "") == end
        window.send(m.Replay(m.Moment("other", 26)))
        settled(window)
        assert 26 in branch(window, "other").replayed and not window.of(m.EngineFailed)   # from the file of its start


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


def test_each_branch_tells_the_options_that_were_changed_on_it_also_when_it_is_taken_up(tmp_path):
    def listed(window):
        return [(change.iteration, change.name, change.new) for change in window.of(m.BranchChanged)[-1].options]

    with running_engine(CONFIG, record=Place(tmp_path / "run"), **REAL) as window:
        window.open()
        steps(window, 8)
        window.send(*(m.SetOption("means_lr", 1e-4 * i) for i in range(2, 6)))   # one drag
        window.sync()
        steps(window, 8)
        window.send(m.SetOption("opacity_lr", 0.04))
        window.sync()
        steps(window, 4)
        window.send(m.BranchFrom(m.Moment("main", 12), "try"))
        settled(window)
        assert listed(window) == [(8, "means_lr", 5e-4)]
        window.send(m.SetOption("sh0_lr", 0.004))
        window.sync()
        steps(window, 2)
        window.send(m.SwitchBranch("main"))
        settled(window)
        assert listed(window) == [(8, "means_lr", 5e-4), (16, "opacity_lr", 0.04)]
        assert window.of(m.BranchChanged)[-1].options[0].old == CONFIG.means_lr
        window.send(m.SwitchBranch("try"))
        settled(window)
        assert listed(window) == [(8, "means_lr", 5e-4), (12, "sh0_lr", 0.004)]
    with running_engine(CONFIG, record=Place(tmp_path / "run"), **REAL) as window:
        window.send(m.OpenScene(str(tmp_path / "run"), False))
        window.until(lambda: window.snapshot.iteration == 14 and window.snapshot.state == "paused")
        assert [(e.iteration, e.name) for e in window.of(m.OptionChanged)] == [(8, "means_lr"), (12, "sh0_lr")]
        window.send(m.SwitchBranch("main"))
        settled(window)
        assert listed(window) == [(8, "means_lr", 5e-4), (16, "opacity_lr", 0.04)]
        window.send(m.Reset())
        settled(window)
        assert listed(window) == [] and "try" in [known.name for known in window.snapshot.timeline.branches]


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


def test_a_run_before_a_reset_goes_on_in_its_own_folder(tmp_path):
    config = AutosaveConfig(seconds=0.0, iterations=10)
    with running_engine(CONFIG, record=Place(root=tmp_path), autosave=config, **REAL) as window:
        window.open()
        steps(window, 12)
        first = window.engine.run_folder
        window.send(m.Reset())
        settled(window)
        steps(window, 11)
        second = window.engine.run_folder
        assert first != second and window.snapshot.timeline.current == "run-2"
        window.send(m.SwitchBranch("main"))
        settled(window)
        steps(window, 9)
        assert window.engine.run_folder == first and window.snapshot.iteration == 21
        window.until(lambda: 20 in branch(window).on_disk)
        window.until(lambda: branch(window, "run-2").on_disk == (10, 11))
    assert {path.name for path in (first / "checkpoints" / "main").iterdir()} >= {"iteration_12.safetensors",
                                                                                "iteration_20.safetensors"}
    assert [path.name for path in (second / "checkpoints").iterdir()] == ["run-2"]
