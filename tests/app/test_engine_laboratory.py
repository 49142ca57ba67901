"""Two alpha rules compared, and two lanes run, from the window's side of the engine."""

from __future__ import annotations

import numpy as np

from app import messages as m
from app.inspection.rules import Rule
from app.training.trainer import Trainer
from tests.app.engine_doubles import running_engine

EXACT, THROUGH = Rule(), Rule(alpha_gradient="straight_through")


def test_rules_are_compared_and_lanes_run_while_the_run_stands_still():
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        window.send(m.CompareRules(EXACT, THROUGH, 1))
        window.until(lambda: window.of(m.RulesCompared))
        found = window.of(m.RulesCompared)[0].comparison
        assert found.view == window.opened.views[1].name and found.iteration == 2
        window.send(m.RunLanes(EXACT, Rule(smooth_cutoff=True), 4))
        window.until(lambda: any(e.lanes.done == 4 and np.isfinite(e.lanes.b.held_out) for e in window.of(m.LanesMoved)))
        lanes = window.of(m.LanesMoved)[-1].lanes
        assert lanes.start == 2 and len(lanes.a.loss) == 4 and lanes.a.loss[0] != lanes.b.loss[0]
        assert window.snapshot.iteration == 2
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 3)


def test_lanes_can_be_cancelled_and_what_makes_no_sense_is_refused_in_a_sentence():
    with running_engine(make_trainer=Trainer) as window:
        window.send(m.RunLanes(EXACT, THROUGH, 5))
        window.until(lambda: any("no run to compare" in e.text for e in window.of(m.Notice)))
        window.open()
        window.send(m.RunLanes(EXACT, THROUGH, 0), m.RunLanes(EXACT, Rule(alpha_max=1e-4), 5),
                    m.CompareRules(EXACT, Rule(alpha_max=2.0)))
        window.sync()
        texts = " ".join(e.text for e in window.of(m.Notice))
        assert "Lanes of 0 steps" in texts and "cutoff" in texts and "alpha_max is 2.0" in texts
        window.send(m.RunLanes(EXACT, THROUGH, 5000))
        window.until(lambda: window.of(m.LanesMoved))
        window.send(m.CancelJob())
        window.until(lambda: window.snapshot.job is None)
        assert window.snapshot.state == "paused" and not window.of(m.EngineFailed)


def test_opening_another_scene_ends_what_belongs_to_the_run():
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.RunLanes(EXACT, THROUGH, 5000))
        window.until(lambda: window.of(m.LanesMoved))
        window.open(play=False)
        assert any(e.name == "lanes" and e.done and e.text == "cancelled" for e in window.of(m.JobProgress))
        window.send(m.RunLanes(EXACT, THROUGH, 5000))
        before = len(window.of(m.LanesMoved))
        window.until(lambda: len(window.of(m.LanesMoved)) > before)
        window.send(m.Step(1))
        window.send(m.Reset())
        window.until(lambda: window.snapshot.job is None and window.snapshot.iteration == 1)
        assert not window.of(m.EngineFailed)
