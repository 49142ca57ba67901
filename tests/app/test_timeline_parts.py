"""The parts of the timeline that need no trainer: the ring within its budget, when copies are made, the tree of branches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.timeline.branches import Branch, Branches, Entry
from app.engine.timeline.memory import memory, remember
from app.engine.timeline.pace import SHARE, CapturePace
from app.engine.timeline.ring import MOST, Kept, Ring


@dataclass
class Weight:
    """Stands for a state."""

    nbytes: int


def kept(branch: str, iteration: int, nbytes: int = 10, rank: int = 0) -> Kept:
    return Kept(branch, iteration, Weight(nbytes), rank=rank)   # type: ignore[arg-type]


# ---------------------------------------------------------------- the ring


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 200), st.integers(1, 12), st.lists(st.tuples(
    st.sampled_from(["main", "b", "c"]), st.integers(0, 40), st.integers(1, 90), st.integers(0, 2)), max_size=60))
def test_a_ring_never_holds_more_than_its_budget(budget, most, moments):
    ring = Ring(budget, most=most)
    for branch, iteration, nbytes, rank in moments:
        new = kept(branch, iteration, nbytes, rank)
        before = set(ring)
        gone = ring.add(new)
        assert ring.nbytes == sum(entry.nbytes for entry in ring) <= budget and len(ring) <= most
        assert (new in gone) is (nbytes > budget) is (new not in set(ring))
        for name in ("main", "b", "c"):
            iterations = [entry.iteration for entry in ring.of(name)]
            assert iterations == sorted(set(iterations))
        replaced = {old for old in before if (old.branch, old.iteration) == (branch, iteration)}
        assert before | {new} == set(ring) | set(gone) | replaced


def test_moments_thin_out_towards_the_past_and_what_is_needed_goes_last():
    looked = kept("main", 3)
    ring = Ring(200, held=lambda: (looked,))
    ring.add(looked)
    tip, edit = kept("old", 50, rank=2), kept("old", 20, rank=1)
    ring.add(tip)
    ring.add(edit)
    for iteration in range(10, 400):
        ring.add(kept("main", iteration))
    iterations = [entry.iteration for entry in ring.of("main")]
    assert 3 in iterations and iterations[-2:] == [398, 399] and set(ring.of("old")) == {edit, tip}
    gaps = np.diff(iterations)
    assert gaps[1:4].mean() > 2 * gaps[-4:].mean()
    ring.make_room(180)   # only two may stay
    assert set(ring) == {looked, tip}
    ring.make_room(190)
    assert set(ring) == {looked}


def test_there_are_never_more_moments_than_can_be_told_apart():
    ring = Ring(1 << 40)
    for iteration in range(MOST + 100):
        ring.add(kept("main", iteration))
    assert len(ring) == MOST and ring.of("main")[0].iteration == 0


# ---------------------------------------------------------------- when


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 2.0), st.floats(1e-4, 2.0), st.integers(10, 300))
def test_copies_take_no_more_than_their_share_of_training(step, cost, every):
    pace, seconds, spent, last, copies = CapturePace(), 0.0, 0.0, 0, 0
    pace.began(cost)
    for iteration in range(1, 2000):
        seconds += step
        if pace.due(seconds, since=iteration - last, iteration=iteration, event=iteration % every == 0):
            pace.made(cost)
            spent, last, copies = spent + cost, iteration, copies + 1
    assert spent <= 2.0 * SHARE * seconds + cost
    if cost <= 0.5 * SHARE * step * every:   # cheap beside what lies between two events
        assert copies >= 2000 // every - 1


def test_copies_before_events_come_before_an_even_spread():
    pace, seconds, last, at = CapturePace(), 0.0, 0, []
    pace.began(1.0)   # as much as 50 steps give
    for iteration in range(1, 1001):
        seconds += 1.0
        if pace.due(seconds, since=iteration - last, iteration=iteration, event=iteration % 100 == 0):
            pace.made(1.0)
            last = iteration
            at.append(iteration)
    assert {100 * k for k in range(1, 11)} <= set(at) and len(at) <= 21


# ---------------------------------------------------------------- branches


def tree() -> Branches:
    branches = Branches()
    main = branches.add(Branch("main", "main", tip=100, log=[Entry(10, {"means_lr": 1e-4}), Entry(30), Entry(60)]))
    branches.add(main.grow("a", "a", 50, None))
    branches.add(branches["a"].grow("b", "b", 45, None))
    branches.add(main.grow("c", "c", 20, None))
    return branches


def test_a_branch_has_the_log_of_its_past_and_only_that():
    branches = tree()
    assert [e.iteration for e in branches["a"].log] == [10, 30] == [e.iteration for e in branches["b"].log]
    assert [(of.name, last) for of, last in branches.past("b")][1:] == [("a", 45), ("main", 45)]
    main, c = branches["main"], branches["c"]
    c.log.append(Entry(20, {"means_lr": 5e-4}))
    assert c.has(main.mark(15)) and not c.has(main.mark(30)) and not main.has(c.mark())
    assert main.edited_between(main.mark(10), 30) and not main.edited_between(main.mark(30), 59)


def test_children_take_over_the_past_of_a_branch_that_goes():
    branches = tree()
    found = branches.adopt(branches.remove("main"))
    assert found is not None and (found[0].name, found[1]) == ("a", 50)
    assert (branches["a"].parent, branches["a"].fork, branches["c"].parent, branches["c"].fork) == ("", 0, "a", 20)
    assert branches.adopt(branches.remove("b")) is None


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 41, "ends ", "ünicode", "MAIN", "a", "taken"])
def test_names_that_cannot_be_folders_or_are_taken_are_refused(tmp_path, name):
    (tmp_path / "checkpoints" / "taken").mkdir(parents=True)
    assert tree().refusal(name, tmp_path)


@pytest.mark.parametrize("name", ["con", "NUL", "Aux", "prn", "com1", "LPT9", "nul.txt", "Con .a"])
def test_names_that_windows_keeps_for_devices_are_refused(tmp_path, name):
    assert "Windows keeps it for a device" in tree().refusal(name, tmp_path)
    assert tree().refusal(f"my {name}", tmp_path) == tree().refusal(f"{name[:3]}x", tmp_path) == ""


def test_good_names_are_taken_and_free_ones_found(tmp_path):
    (tmp_path / "checkpoints" / "branch-5").mkdir(parents=True)
    assert tree().refusal("Slower means 0.1", tmp_path) == "" and tree().free_name(tmp_path) == "branch-6"


def test_branches_survive_as_json_and_share_their_past():
    class Told:
        branches, current = tree(), "a"
        now = branches["a"]

    told = memory(Told())   # type: ignore[arg-type]
    back = remember(told, "a", Branch("a", "a"))
    assert [(b.name, b.label, b.parent, b.fork, b.tip) for b in back] == [
        (b.name, b.label, b.parent, b.fork, b.tip) for b in tree()]
    assert back["b"].log[1] is back["main"].log[1] and back["main"].log[0].options == {"means_lr": 1e-4}
    for damaged in ({}, {"entries": []}, {"entries": [], "branches": [{"name": "main"}]}, {"entries": [], "branches": []}):
        with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
            remember(damaged, "a", Branch("a", "a"))
