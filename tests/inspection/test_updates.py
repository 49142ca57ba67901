"""Update sizes per group are those of the parameters before and after the step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, OptimizerConfig, TrainConfig
from app.engine.edits import OpacityReset
from app.engine.model import Model
from app.inspection.chain import chain
from app.inspection.questions import ChainQuestion, Unanswerable, UpdatesQuestion
from app.inspection.updates import POINTS, _Recorder, updates
from app.training.trainer import Trainer
from app.training.updates import last_update
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


def trained(steps: int, **densify) -> tuple[Model, dict[str, torch.Tensor]]:
    """(a model so many steps on, its parameters before the last one)."""
    trainer = Trainer(make_scene(4, 12, size=24, points=24), TrainConfig(sh_every=2, densify=DensifyConfig(**densify)),
                      backend="cpu")
    model, before = Model("here", trainer, trainer.scene), {}
    for _ in range(steps):
        before = {name: tensor.detach().double().clone() for name, tensor in trainer.params.trained().items()}
        trainer.step()
        updates(model, ASK)
    return model, before


def group(model: Model, name: str):
    return next(found for found in updates(model, ASK).groups if found.group == name)


def test_an_update_whose_moments_a_reset_zeroed_is_not_known_and_leaves_a_gap():
    model, before = trained(6, start=1, every=1000, stop=900, reset_every=6)
    trainer = model.trainer
    assert trainer is not None and trainer.records[-1].event.reset
    assert not torch.equal(before["logit_opacities"], trainer.params.logit_opacities.detach().double())
    found = group(model, "logit_opacities")
    assert math.isnan(found.update) and found.forgotten and found.iterations.tolist() == [1, 2, 3, 4, 5]
    assert torch.isnan(last_update(trainer, "logit_opacities")).all()
    assert not group(model, "means").forgotten and group(model, "means").update > 0
    found = chain(model, ChainQuestion(int(trainer.params.uids[0])))
    assert any("not known any more (logit_opacity)" in note for note in found.notes)
    assert {state.group for state in found.adam if np.isnan(state.update).any()} == {"logit_opacities"}
    trainer.step()
    found = group(model, "logit_opacities")
    assert found.update > 0 and not found.forgotten and found.iterations.tolist() == [1, 2, 3, 4, 5, 7]
    assert not any("not known" in note for note in chain(model, ChainQuestion(int(trainer.params.uids[0]))).notes)


def test_an_update_that_an_edit_by_hand_followed_is_not_known_of_those_it_concerned():
    model, _ = trained(4)
    trainer = model.trainer
    assert trainer is not None
    mask = np.arange(len(trainer.params)) < 5
    edit = OpacityReset(model, mask)
    edit.apply(model)
    update = last_update(trainer, "logit_opacities")
    assert update is not None and torch.isnan(update).tolist() == mask.tolist()
    assert math.isnan(group(model, "logit_opacities").update) and group(model, "logit_opacities").forgotten
    assert torch.isnan(last_update(trainer, "logit_opacities", 3)).all()
    assert torch.isfinite(last_update(trainer, "logit_opacities", 7)).all()
    trainer.backward()
    edit.revert(model)   # in the middle of a step: its update is still to come
    trainer.update()
    assert torch.isfinite(last_update(trainer, "logit_opacities")).all() and not group(model, "logit_opacities").forgotten


def test_relocation_leaves_no_zeros_that_were_none():
    model, _ = trained(10, strategy="mcmc", start=1, every=10, stop=900, mcmc_growth=0.2, cap=60)
    trainer = model.trainer
    assert trainer is not None and trainer.records[-1].event.added
    for found in updates(model, ASK).groups:
        assert found.forgotten and math.isnan(found.update), found.group
    sources = np.isin(trainer.params.uids.numpy(), trainer.records[-1].parents)
    update = last_update(trainer, "means")
    assert update is not None and torch.isnan(update).any(dim=1).tolist() == sources.tolist()


def test_those_born_in_the_step_do_not_count_as_standing_still():
    model, _ = trained(10, start=1, every=10, stop=900, grad_threshold=1e-6, percent_dense=0.9, cap=1000)
    trainer = model.trainer
    assert trainer is not None and trainer.records[-1].event.cloned > 5
    old = trainer.params.uids < 24
    moved = last_update(trainer, "means")
    assert moved is not None and not moved[~old].any()
    assert group(model, "means").update == pytest.approx(float(moved[old].abs().double().mean()), rel=1e-6)
    model, _ = trained(10, start=1, every=10, stop=900, grad_threshold=1e-6, cap=1000)   # all are split
    assert group(model, "means").forgotten and group(model, "means").iterations.tolist() == list(range(1, 10))


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
