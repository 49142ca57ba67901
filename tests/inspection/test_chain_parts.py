"""The card of a Gaussian in the middle of a step, under SGD, and after a step of several views."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from app.config import OptimizerConfig, TrainConfig
from app.engine.model import Model
from app.inspection.chain import chain
from app.inspection.questions import ChainQuestion
from app.training.quantities.registry import Unreadable
from app.training.trainer import Trainer
from tests.training.tiny import make_scene

GROUPS = {"mean": "means", "log_scale": "log_scales", "quat, raw": "quats", "logit_opacity": "logit_opacities", "sh0": "sh0"}


def make(**named) -> tuple[Trainer, Model]:
    trainer = Trainer(make_scene(4, 12, size=24, points=24), TrainConfig(**named), backend="cpu")
    return trainer, Model("here", trainer, trainer.scene)


def card(model: Model, row: int):
    assert model.trainer is not None
    return chain(model, ChainQuestion(int(model.trainer.params.uids[row])))


def test_between_gradients_and_update_the_card_shows_the_gradients_and_that_nothing_has_moved():
    trainer, model = make()
    for _ in range(3):
        trainer.step()
    at_3 = card(model, 0)
    trainer.backward()
    row = int(torch.nonzero(trainer.last_extents[:, 0] > 0)[0, 0])
    found = card(model, row)
    assert found.iteration == 4 and at_3.iteration == 3 and found.view == trainer.views[trainer.last_view_index].name
    assert "update is pending" in found.notes[0]
    links = {link.name: link for link in found.links}
    for name, group in GROUPS.items():   # values are those that stand, gradients end where the rasterizer's lead
        assert np.array_equal(links[name].value.astype(np.float32), trainer.params.trained()[group].detach()[row].numpy())
        assert links[name].residual < 1e-3
    assert found.adam and not any(state.update.any() for state in found.adam)
    assert np.isnan(found.trails[-1].values[-1])
    with pytest.raises(Unreadable, match="let the optimiser take its part"):
        model.reading("adam_means")
    before = trainer.params.means.detach()[row].clone()
    trainer.step()
    after = card(model, row)
    moved = next(state.update for state in after.adam if state.group == "means")
    assert after.iteration == 4 and moved.any()
    np.testing.assert_allclose(trainer.params.means.detach()[row] - before, moved, rtol=1e-2, atol=2e-7)


def test_under_sgd_the_card_shows_the_step_that_was_taken():
    trainer, model = make(optimizer=OptimizerConfig(means="sgd", means_factor=1000.0, quats="still"))
    for _ in range(3):
        before = trainer.params.means.detach().clone()
        trainer.step()
    row = int(torch.nonzero(trainer.last_extents[:, 0] > 0)[0, 0])
    states = {state.group: state for state in card(model, row).adam}
    assert states["means"].rule == "sgd" and states["quats"].rule == "still" and not states["quats"].update.any()
    np.testing.assert_allclose(states["means"].update, -states["means"].rate * states["means"].exp_avg)
    assert states["means"].update.any() and not states["means"].exp_avg_sq.any()
    np.testing.assert_allclose(trainer.params.means.detach()[row] - before[row], states["means"].update, rtol=1e-3, atol=2e-7)


def test_what_one_view_of_several_showed_is_not_called_unseen():
    trainer, model = make(micro_batch=3)
    trainer.step()
    seen, last = trainer.state.rows["last.union"][:, 0] > 0, trainer.last_extents[:, 0] > 0
    other = seen & ~last
    if not bool(other.any()):   # the scene is small: every view shows all
        trainer.state.rows["last.extents"][0] = 0.0
        other = seen & ~(trainer.last_extents[:, 0] > 0)
    row = int(torch.nonzero(other)[0, 0])
    assert trainer.gradients()["means"][row].any()
    notes = " ".join(card(model, row).notes)
    assert "in other views of the step" in notes and "exactly 0" not in notes
    unseen = model.reading("means_grad").unseen
    assert not bool(unseen[row])
