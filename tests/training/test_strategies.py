"""AbsGS by hand, and what holds for every strategy: previews, caps, marks, changes between steps, bits."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.gui.panels.densify_strategy import ABOUT, LABELS
from app.training.densify.absgs import AbsGS
from app.training.densify.mcmc import MarkovChain
from app.training.densify.statistics import COUNT
from app.training.marks import FROZEN, SELECTED
from app.training.state import capture, restore
from app.training.trainer import STRATEGIES, Trainer
from render.backends import cpu
from render.types import PARAM_GROUPS
from tests.training.cases import config_of, event_of, params_of, plan_of, set_statistic, state_of, uids
from tests.training.test_trainer import fingerprint
from tests.training.tiny import make_params, make_scene

GROWING = ("adc", "absgs", "mcmc", "taming")
CLOSE = DensifyConfig(start=0, every=12, stop=60, reset_every=36, percent_dense=0.05)


# ------------------------------------------------------------------ AbsGS

def test_absgs_clones_by_the_signed_sum_and_splits_by_the_absolute_one():
    state, _ = state_of(params_of([0.005, 0.005, 0.4, 0.4], [0.5] * 4))
    set_statistic(state, [3e-4, 1e-4, 3e-4, 1e-4], absolute=[3e-4, 9e-4, 3.9e-4, 4.1e-4])
    record = event_of(AbsGS(), state, config_of("absgs"))
    assert record.cloned.tolist() == [100] and record.split.tolist() == [103]
    assert {(w.action, w.limit) for w in record.why} == {("cloned", 2e-4), ("split", 4e-4)}
    assert record.event.strategy == "absgs"
    assert [h.path for h in (record.histogram,)] == ["densify.absgs_threshold"]


def test_absgs_under_the_cap_goes_by_the_share_of_the_threshold():
    state, said = state_of(params_of([0.005, 0.4], [0.5] * 2), cap=3)
    set_statistic(state, [2.2e-4, 0.0], absolute=[3e-4, 5e-4])   # 1.1 and 1.25 times the own threshold
    plan = plan_of(AbsGS(), state, config_of("absgs"))
    assert uids(state, plan.split) == [101] and not plan.clone.any() and plan.left_out == 1


def test_absgs_absolute_sums_are_gathered_and_at_least_the_signed_ones():
    trainer = Trainer(make_scene(), TrainConfig(iterations=9, densify=DensifyConfig(strategy="absgs")), backend="cpu")
    for _ in range(6):
        trainer.step()
    signed, absolute = trainer.statistics.average(False), trainer.statistics.average(True)
    assert absolute.max() > 0 and (absolute >= signed * (1 - 1e-4)).all()
    assert trainer.set_option("densify.strategy", "adc") and trainer.state.rows[COUNT].any()   # signed sums are whole
    trainer.step()
    trainer.set_option("densify.strategy", "absgs")
    assert not trainer.state.rows[COUNT].any()   # a sum over half of the views would be too small


# ------------------------------------------------------------------ all of them

def trainer_of(strategy, **fields):
    densify = replace(CLOSE, strategy=strategy, taming_budget=150, taming_views=2, **fields)
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, schedule_iterations=30_000, densify=densify), backend="cpu")
    trainer.schedule = replace(trainer.schedule, start=0, every=12, stop=60, reset_every=36)
    return trainer


@pytest.mark.parametrize("strategy", GROWING)
def test_a_preview_is_what_then_happens(strategy, monkeypatch):
    trainer = trainer_of(strategy, cap=110)
    plans, after = {}, type(trainer.strategy).after_step

    def watching(self, state, iteration, config, schedule):
        if schedule.densifies(iteration):
            before, rng = fingerprint(trainer), copy.deepcopy(state.rng.bit_generator.state)
            plans[iteration] = self.candidates(state, iteration, config, schedule), state.rows["uids"].clone()
            assert fingerprint(trainer) == before and state.rng.bit_generator.state == rng   # nothing has changed
        return after(self, state, iteration, config, schedule)

    monkeypatch.setattr(type(trainer.strategy), "after_step", watching)
    while trainer.iteration < 50:
        trainer.step()
    events = {record.event.iteration: record for record in trainer.records if record.event.iteration in plans}
    assert len(events) == 4 and any(len(record.born) for record in events.values())
    for iteration, (plan, ids) in plans.items():
        record = events[iteration]
        assert ids[plan.clone].tolist() == record.cloned.tolist() and ids[plan.split].tolist() == record.split.tolist()
        assert ids[plan.dead].tolist() == record.relocated.tolist()
        assert ids[plan.prune].tolist() == [uid for uid in record.pruned.tolist() if uid in set(ids.tolist())]
        assert plan.count == record.event.count and plan.added == record.event.added
        if strategy == "mcmc":
            assert set(ids[plan.sources].tolist()) == set(record.parents.tolist()) & set(ids.tolist())


@pytest.mark.parametrize("strategy", GROWING)
def test_F11_the_cap_is_never_exceeded(strategy):
    trainer = trainer_of(strategy)

    @settings(max_examples=15, deadline=None)
    @given(st.integers(1, 140), st.floats(0.0, 1.0), st.floats(0.0, 0.9), st.integers(0, 2**31))
    def holds(cap, hot, transparent, seed):
        trainer.take_up(make_params(60, seed=seed % 7))
        trainer.schedule = replace(trainer.schedule, start=0, every=12, stop=60)
        state, rng = trainer.state, np.random.default_rng(seed)
        state.cap = cap
        set_statistic(state, np.where(rng.random(60) < hot, 1.0, 0.0).astype(np.float32))
        with torch.no_grad():
            state.rows["logit_opacities"][torch.from_numpy(rng.random(60) < transparent)] = -9.0
        trainer._activated = None
        for _ in range(3):
            record = trainer.densify_now()
            assert len(state.rows) <= max(cap, 60) and len(state.rows) >= 1
            if record is not None and record.event.cloned + record.event.split + record.event.added:
                assert len(state.rows) <= cap
            if strategy == "mcmc":
                assert len(state.rows) >= 60   # F14
            state.rows.check()
            set_statistic(state, np.ones(len(state.rows), np.float32))

    holds()


@pytest.mark.parametrize("strategy", GROWING)
def test_frozen_ones_are_left_alone_and_marks_are_inherited(strategy):
    trainer = trainer_of(strategy, cap=120, grad_threshold=1e-6, absgs_threshold=1e-6)
    rows = trainer.state.rows
    frozen, selected = torch.zeros(60, dtype=torch.bool), torch.zeros(60, dtype=torch.bool)
    frozen[:30], selected[30:] = True, True
    rows.put(FROZEN, frozen)
    rows.put(SELECTED, selected)
    with torch.no_grad():
        rows["logit_opacities"][:3] = rows["logit_opacities"][30:33] = -8.0   # would be dead, or pruned
    before = {name: rows[name].detach()[:30].clone() for name in PARAM_GROUPS}
    while trainer.iteration < 26:
        trainer.step()
    assert len(rows) > 60
    place = [rows["uids"].tolist().index(uid) for uid in range(30)]
    for name in PARAM_GROUPS:   # resets come later than this
        assert torch.equal(rows[name].detach()[place], before[name]), name
    born = [row for row, uid in enumerate(rows["uids"].tolist()) if uid >= 60]
    assert born and rows[SELECTED][born].all() and not rows[FROZEN][born].any()


@pytest.mark.parametrize("strategy", GROWING)
def test_gaussians_that_are_not_finite_break_nothing(strategy):
    trainer = trainer_of(strategy, cap=120)
    trainer.step()
    rows = trainer.state.rows
    with torch.no_grad():
        rows["means"][0], rows["log_scales"][1], rows["logit_opacities"][2] = math.nan, math.inf, math.nan
        rows["quats"][3], rows["sh0"][4] = 0.0, math.nan
        rows["stat.sum"][5] = math.nan
    trainer._activated = None
    trainer.candidates()
    trainer.densify_now()
    rows.check()
    if strategy == "mcmc":
        MarkovChain().add_noise(trainer.state, 1.0)
    fine = ~torch.isin(rows["uids"], torch.arange(5))
    assert all(torch.isfinite(rows[name][fine]).all() for name in PARAM_GROUPS)


@pytest.mark.parametrize("first", GROWING)
@pytest.mark.parametrize("second", GROWING)
def test_strategies_change_between_steps(first, second):
    trainer = trainer_of(first, cap=120)
    for _ in range(14):
        trainer.step()
    trainer.set_option("densify.strategy", second)
    trainer.schedule = replace(trainer.schedule, start=0, every=12, stop=60, reset_every=36)
    moments = trainer.state.optimizer.moments("means")[0].clone()
    for _ in range(12):
        trainer.step()
    assert type(trainer.strategy) is STRATEGIES[second] and moments.any()
    trainer.state.rows.check()


def test_densify_now_says_why_nothing_can_be_done():
    for strategy in STRATEGIES:
        trainer = trainer_of(strategy, cap=60)
        if strategy != "mcmc":   # whose growth is at the cap
            trainer.config = replace(trainer.config, densify=replace(trainer.config.densify, taming_budget=60))
        assert trainer.densify_now() is None and not trainer.records
        assert trainer.strategy.refused and trainer.candidates().problem == trainer.strategy.refused
        assert not any("Nothing was densified" in text for text in trainer.notices)   # whoever asked says it, once
        problem, trainer.strategy.refused = trainer.strategy.refused, "of another time"
        assert trainer.densify_now() is None and trainer.strategy.refused == problem


def test_a_strategy_is_entered_wherever_it_has_to_be():
    assert tuple(STRATEGIES) == get_args(StrategyName) == tuple(LABELS) == tuple(ABOUT)
    assert all(name == kind.NAME for name, kind in STRATEGIES.items())   # type: ignore[attr-defined]


def test_only_those_that_reset_opacities_have_something_to_do_at_a_reset():
    schedule = replace(trainer_of("adc").schedule, start=0, every=12, stop=60, reset_every=10)
    due = {name: [i for i in range(1, 70) if kind().due(i, schedule)] for name, kind in STRATEGIES.items()}
    assert due["mcmc"] == [12, 24, 36, 48] and due["none"] == []
    assert due["adc"] == due["absgs"] == due["taming"] == [10, 12, 20, 24, 30, 36, 40, 48, 50]


def test_densify_now_acts_whatever_the_schedule_says():
    trainer = trainer_of("mcmc")
    trainer.step()
    record = trainer.densify_now()
    assert record.event.asked and record.event.iteration == 1 and record.event.added == 3 and trainer.records[-1] is record
    trainer.step()


def test_a_copy_of_a_run_surveys_its_own_gaussians():
    trainer = trainer_of("taming")
    twin = copy.deepcopy(trainer, {id(trainer.scene): trainer.scene, id(trainer.views): trainer.views})
    twin.step()
    assert twin.state.survey._trainer is twin


def run_of(strategy: str, threads: int) -> tuple[str, int]:
    before = torch.get_num_threads(), cpu.threads()
    torch.set_num_threads(threads)
    cpu.set_threads(threads)
    try:
        trainer = trainer_of(strategy, cap=140)
        while trainer.iteration < 60:
            trainer.step()
        return fingerprint(trainer), len(trainer.records)
    finally:
        torch.set_num_threads(before[0])
        cpu.set_threads(before[1])


@pytest.mark.parametrize("strategy", GROWING)
def test_N24_bits_are_the_same_at_1_2_and_4_threads(strategy):
    first = run_of(strategy, 1)
    assert first[1] >= 4
    assert run_of(strategy, 2) == first and run_of(strategy, 4) == first


@pytest.mark.parametrize("strategy", GROWING)
def test_a_run_that_is_taken_up_again_goes_on_bit_for_bit(strategy):
    trainer = trainer_of(strategy, cap=140)
    schedule = trainer.schedule
    for _ in range(20):
        trainer.step()
    other = trainer_of(strategy, cap=140)
    assert restore(other, capture(trainer)) == []
    other.schedule = schedule
    for _ in range(20):
        trainer.step()
        other.step()
    assert fingerprint(other) == fingerprint(trainer) and len(trainer.records) > 1
