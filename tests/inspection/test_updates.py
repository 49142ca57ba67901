"""Update sizes per group are those of the parameters before and after the step."""

from __future__ import annotations

import math

import pytest

from app.config import OptimizerConfig, TrainConfig
from app.engine.model import Model
from app.inspection.questions import Unanswerable, UpdatesQuestion
from app.inspection.updates import POINTS, _Recorder, updates
from app.training.trainer import Trainer
from render.types import PARAM_GROUPS
from tests.training.tiny import make_params, make_scene

ASK = UpdatesQuestion()


def test_mean_update_and_ratio_equal_what_the_parameters_did():
    config = TrainConfig(sh_every=2, optimizer=OptimizerConfig(sh0="sgd", sh0_factor=50.0, quats="still"))
    trainer = Trainer(make_scene(4, 12, size=24, points=24), config, backend="cpu")
    model = Model("here", trainer, trainer.scene)
    assert all(math.isnan(group.update) and not len(group.iterations) for group in updates(model, ASK).groups)
    for _ in range(5):
        before = {name: tensor.detach().double().clone() for name, tensor in trainer.params.trained().items()}
        trainer.step()
        found = updates(model, ASK)
        assert found.iteration == trainer.iteration and not found.pending
        for group in found.groups:
            after = trainer.params.trained()[group.group].detach().double()
            moved = float((after - before[group.group]).abs().mean())
            size = float(after.abs().mean())
            assert group.update == pytest.approx(moved, rel=2e-3, abs=1e-12), group.group
            assert group.size == pytest.approx(size, rel=1e-6)
            assert (moved > 0) == (group.group != "quats" and (group.group != "shN" or trainer.iteration >= 2))
            assert group.iterations[-1] == trainer.iteration and group.updates[-1] == group.update
            if size:
                assert group.ratios[-1] == pytest.approx(moved / size, rel=2e-3, abs=1e-12)
    rules = {group.group: group.rule for group in found.groups}
    assert rules == {**dict.fromkeys(PARAM_GROUPS, "adam"), "sh0": "sgd", "quats": "still"}
    trainer.backward()
    pending = updates(model, ASK)
    assert pending.pending and pending.iteration == 6 and all(math.isnan(group.update) for group in pending.groups)
    assert pending.groups[0].iterations.tolist() == [1, 2, 3, 4, 5]


def test_a_model_that_nobody_trains_has_no_optimiser():
    with pytest.raises(Unanswerable, match="no optimiser"):
        updates(Model("here", fixed_params=make_params(3), fixed_backend="cpu"), ASK)


def test_curves_stay_short_keep_their_spikes_and_go_back_with_the_run():
    recorder = _Recorder()
    for i in range(1, 5000):
        table = recorder.add("means", i, 9.0 if i == 777 else 1.0, 2.0)
        assert len(table) <= 2 * POINTS and table[-1, 0] == i
    assert 9.0 in table[:, 1]
    table = recorder.add("means", 100, 1.0, 2.0)
    assert table[-1, 0] == 100 and (table[:-1, 0] < 100).all()
