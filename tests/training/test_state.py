"""C11, C12: what is taken out of a run and put into another trainer goes on bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.options import config_from, flatten
from app.training.marks import FROZEN, SELECTED
from app.training.state import RunState, StateError, capture, restore
from app.training.trainer import Trainer
from tests.training.test_trainer import fingerprint
from tests.training.tiny import make_scene

CONFIG = TrainConfig(iterations=40, schedule_iterations=30_000, sh_every=7, micro_batch=2, seed=5,
                     densify=DensifyConfig(start=3, every=10, stop=35, reset_every=15, grad_threshold=1e-6))


@pytest.fixture(scope="module")
def scene():
    return make_scene(5, 12, size=32, points=30)


def through_json(state: RunState) -> RunState:
    return RunState(state.arrays, json.loads(json.dumps(state.meta, allow_nan=False)))


def everything(trainer: Trainer) -> tuple:
    rows = trainer.state.rows
    arrays = {name: rows[name].detach().numpy().tobytes() for name in rows}
    return (trainer.iteration, trainer.phase, arrays, trainer.state.optimizer.steps, trainer.order.memory(),
            trainer.state.rng.bit_generator.state, trainer.lineage.arrays()["parents"].tolist(), trainer.sh_degree)


@pytest.mark.parametrize("strategy", get_args(StrategyName))
@pytest.mark.parametrize("at", [9, 10, 15, *(pytest.param(at, marks=pytest.mark.thorough) for at in (0, 1, 11, 23))])
# before, at and after a densification (10) and a reset (15)
def test_C11_a_run_resumed_at_any_step_equals_the_one_that_went_on(scene, strategy, at):
    config = replace(CONFIG, densify=replace(CONFIG.densify, strategy=strategy))
    plain = Trainer(scene, config, backend="cpu")
    for _ in range(at):
        plain.step()
    state = through_json(capture(plain))
    resumed = Trainer(scene, TrainConfig(seed=77), backend="cpu", params=state.params())
    assert restore(resumed, state) == []
    assert resumed.config == config and resumed.iteration == at and resumed.measured.iteration == plain.measured.iteration
    for _ in range(at, 36):
        before, after = plain.step(), resumed.step()
        assert (before.loss, before.view_name, before.densified) == (after.loss, after.view_name, after.densified)
    assert everything(plain) == everything(resumed)
    if strategy == "adc":
        assert len(plain.params) > 40


def test_a_step_in_its_parts_and_taken_over_in_the_middle_has_the_bits_of_a_whole_one(scene):
    whole, parts = (Trainer(scene, CONFIG, backend="cpu") for _ in range(2))
    for iteration in range(1, 22):
        report = whole.step()
        name, ahead = parts.forward()
        assert parts.phase == "" and parts.iteration == iteration - 1
        found = parts.backward()
        assert parts.phase == "backward" and parts.iteration == iteration - 1 and found.loss == report.loss
        if iteration % 5 == 0:   # another trainer takes over between the gradients and the update
            state = through_json(capture(parts))
            parts = Trainer(scene, CONFIG, backend="cpu", params=state.params())
            assert restore(parts, state) == [] and parts.phase == "backward" and parts.tap.v_means2d is not None
        parts.backward()   # nothing more to do
        moved = parts.update()
        assert parts.phase == "update" and moved.iteration == iteration and moved.densified is None
        if iteration % 4 == 0:
            state = through_json(capture(parts))
            assert restore(parts, state) == [] and parts.phase == "update"
        ended = parts.step()
        assert parts.phase == "" and ended.iteration == iteration and ended.densified == report.densified
        assert report.view_name == ended.view_name
        if CONFIG.micro_batch == 1:
            assert name == report.view_name and ahead.loss == report.loss
    assert fingerprint(whole) == fingerprint(parts)


def test_the_forward_pass_alone_measures_the_view_that_comes_next(scene):
    trainer = Trainer(scene, replace(CONFIG, micro_batch=1), backend="cpu")
    for _ in range(4):
        before = everything(trainer)
        name, found = trainer.forward()
        assert everything(trainer) == before
        report = trainer.step()
        assert (report.view_name, report.loss, report.psnr) == (name, found.loss, found.psnr)


def test_marks_and_lineage_survive(scene):
    trainer = Trainer(scene, CONFIG, backend="cpu")
    marked = torch.zeros(len(trainer.params), dtype=torch.bool)
    marked[::3] = True
    trainer.state.rows.put(SELECTED, marked)
    trainer.state.rows.put(FROZEN, ~marked)
    for _ in range(12):
        trainer.step()
    state = through_json(capture(trainer))
    other = Trainer(scene, CONFIG, backend="cpu")
    restore(other, state)
    for name in (SELECTED, FROZEN):
        assert torch.equal(other.state.rows[name], trainer.state.rows[name])
    born = [uid for uid in trainer.params.uids.tolist() if trainer.lineage.parent(uid) is not None]
    assert born and all(other.lineage.parent(uid) == trainer.lineage.parent(uid)
                        and other.lineage.born(uid) == trainer.lineage.born(uid) for uid in born)
    assert other.lineage.give_birth(np.array([0]), 13).tolist() == [trainer.lineage.next_uid]


def test_a_capture_is_a_copy_and_what_is_restored_leaves_it_alone(scene):
    trainer = Trainer(scene, CONFIG, backend="cpu")
    state = capture(trainer)
    before = {name: array.tobytes() for name, array in state.arrays.items()}
    trainer.step()
    other = Trainer(scene, CONFIG, backend="cpu")
    restore(other, state)
    other.step()
    assert {name: array.tobytes() for name, array in state.arrays.items()} == before


def test_C12_missing_parts_are_said_and_start_anew(scene):
    trainer = Trainer(scene, CONFIG, backend="cpu")
    for _ in range(12):
        trainer.step()
    state = capture(trainer)
    bare = RunState({name: array for name, array in state.arrays.items() if ".adam." not in name and ".stat." not in name},
                    {"iteration": 12, "config": {**flatten(CONFIG), "densify.new_idea": 1, "opacity_lr": "fast"}})
    other = Trainer(scene, CONFIG, backend="cpu")
    said = " ".join(restore(other, bare))
    assert "adam, stat" in said and "densify.new_idea" in said and "opacity_lr" in said
    assert other.iteration == 12 and not other.state.rows["adam.exp_avg.means"].any()
    other.step()


@pytest.mark.parametrize("harm, says", [
    (lambda a, m: a.pop("rows.means"), "no means"),
    (lambda a, m: a.update({"rows.quats": a["rows.quats"][:-1]}), "quats has"),
    (lambda a, m: m.update(view_names=["other.png"]), "other.png among them")])
def test_a_state_that_does_not_fit_is_refused_and_nothing_has_changed(scene, harm, says):
    trainer = Trainer(scene, CONFIG, backend="cpu")
    trainer.step()
    state = capture(trainer)
    arrays, meta = dict(state.arrays), dict(state.meta)
    harm(arrays, meta)
    before = everything(trainer)
    with pytest.raises(StateError, match=says):
        restore(trainer, RunState(arrays, meta))
    assert everything(trainer) == before


def test_every_option_survives_the_file():
    config = replace(CONFIG, raster=replace(CONFIG.raster, alpha_max=0.999), loss="mse")
    assert config_from(json.loads(json.dumps(flatten(config)))) == (config, [])
    assert config_from({}) == (TrainConfig(), [])


def test_a_run_that_was_resumed_takes_up_absgs_as_the_one_that_went_on(scene):
    plain = Trainer(scene, CONFIG, backend="cpu")
    for _ in range(6):
        plain.step()
    state = through_json(capture(plain))
    resumed = Trainer(scene, CONFIG, backend="cpu", params=state.params())
    restore(resumed, state)
    for trainer in (plain, resumed):
        trainer.set_option("densify.strategy", "absgs")
        for _ in range(7):
            trainer.step()
    assert everything(plain) == everything(resumed)
