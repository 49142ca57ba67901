"""Branches in the record of a run: what each has of the past, and that none takes anything from another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.records.lines import branches, current
from app.records.read import read_run
from tests.records.test_record import CONFIG, described, make, train


def test_a_branch_has_the_past_of_its_parent_and_each_goes_on_with_its_own():
    def step(iteration: int, v: int) -> dict:
        return {"iteration": iteration, "v": v}

    def cut(iteration: int, branch: str, parent: str = "") -> dict:
        return {"cut": iteration, "branch": branch} | ({"parent": parent} if parent else {})

    rows = [cut(0, "main"), step(10, 1), step(20, 1), cut(10, "bolder", "main"), step(20, 2), cut(15, "bolder"), step(20, 3),
            step(30, 3), cut(20, "main"), step(30, 1), cut(20, "third", "bolder"), step(30, 4), cut(0, "run-2"), step(10, 5),
            cut(10, "old", "main"), step(20, 6), cut(30, "bolder", "main"), step(40, 3)]
    found = branches(rows)
    assert {name: [(row["iteration"], row["v"]) for row in past] for name, past in found.items()} == {
        "main": [(10, 1), (20, 1), (30, 1)], "third": [(10, 1), (20, 3), (30, 4)], "run-2": [(10, 5)],
        "old": [(10, 1), (20, 6)], "bolder": [(10, 1), (20, 3), (30, 3), (40, 3)]}
    assert list(found)[-1] == "bolder" and current(rows) == found["bolder"]
    assert branches([]) == {"main": []} and branches([cut(0, "run-2")]) == {"run-2": []}


def test_events_of_one_iteration_all_count_and_none_of_another_branch():
    lines = [{"cut": 0, "branch": "main"}, {"iteration": 0, "n": 0}, {"iteration": 5, "n": 1}, {"iteration": 5, "n": 2},
             {"iteration": 9, "n": 3}, {"cut": 5, "branch": "try", "parent": "main"}, {"iteration": 5, "n": 4}]
    assert {name: [line["n"] for line in past] for name, past in branches(lines, steps=False).items()} == {
        "main": [0, 1, 2, 3], "try": [0, 1, 2, 4]}


@given(st.lists(st.tuples(st.sampled_from(["step", "cut"]), st.integers(0, 12), st.sampled_from("abc"),
                          st.sampled_from(["", "a", "b", "c", "d"])), max_size=40))
def test_whatever_is_written_iterations_rise_and_only_the_branch_that_the_run_is_on_changes(deeds):
    lines, before = [], {"main": []}
    for kind, iteration, name, parent in deeds:
        lines.append({"iteration": iteration} if kind == "step" else {"cut": iteration, "branch": name, "parent": parent})
        found = branches(lines)
        now = list(found)[-1]
        for rows in found.values():
            assert [row["iteration"] for row in rows] == sorted({row["iteration"] for row in rows})
        others = {other: rows for other, rows in before.items() if other != now and rows}
        assert {other: rows for other, rows in found.items() if other != now} == others
        before = found


def test_options_of_one_branch_are_not_those_of_another(tmp_path):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 30)
    record.note("option", 30, 0.6, name="means_lr", old=1.6e-4, new=2e-4, live=True)
    record.go_on(10, 0.2, branch="try", parent="main", config=CONFIG | {"means_lr": 1.6e-4})
    train(record, 11, 20)
    record.note("option", 20, 0.4, name="means_lr", old=1.6e-4, new=0.05, live=True)
    record.flush()
    assert read_run(record.folder).config["means_lr"] == 0.05
    record.go_on(30, 0.6, branch="main", config=CONFIG | {"means_lr": 2e-4})
    record.flush()
    run = read_run(record.folder)
    assert run.config["means_lr"] == 2e-4 and [event["iteration"] for event in run.events] == [0, 30, 30]
    record.note("option", 30, 0.6, name="iterations", old=300, new=500, live=True)
    record.close()
    assert read_run(record.folder).config["iterations"] == 500


def test_a_branch_is_an_event_and_no_picture_of_another_is_lost(tmp_path):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 50)
    picture = np.full((20, 30, 3), 200, np.uint8)
    for i in (20, 50):
        record.picture(i, "a.png", picture, lambda: picture, (0.0, 0.0, 0.0))
    record.note("saved", 50, 1.0, path="x.ply")
    record.go_on(20, 0.4, branch="lower rate", parent="main", config=CONFIG)
    train(record, 21, 40, base=9.0)
    for i in (30, 40):
        record.picture(i, "a.png", picture, lambda: picture, (0.0, 0.0, 0.0))
    record.go_on(30, 0.4, branch="lower rate", parent="main", config=CONFIG)
    record.close()
    run = read_run(record.folder)
    assert run.series("loss")[0] == list(range(1, 31))
    assert {name: len(rows) for name, rows in run.branches().items()} == {"main": 50, "lower rate": 30}
    assert [(event["event"], event["branch"]) for event in run.events] == [
        ("started", "main"), ("branch", "lower rate"), ("branch", "lower rate")]
    assert {str(path.relative_to(record.folder / "thumbnails")) for path in record.folder.glob("thumbnails/*/*")} == {
        "main/iteration_20", "main/iteration_50", "lower rate/iteration_30"}
