"""Adam over the registry equals torch.optim.Adam, and its rows follow surgery (F07, F08)."""

from __future__ import annotations

import pytest
import torch

from app.training.optimizer import Optimizer
from app.training.rows import Rows
from render.types import PARAM_GROUPS
from tests.training.tiny import make_params

RATES = {"means": 1e-2, "quats": 1e-3, "log_scales": 5e-3, "logit_opacities": 0.05, "sh0": 2.5e-3, "shN": 1e-4}
BACKENDS = ("reference", "cpu")


def random_gradients(rows: Rows, generator: torch.Generator) -> dict[str, torch.Tensor]:
    return {name: torch.randn(rows[name].shape, generator=generator) * 10.0 ** -power
            for power, name in enumerate(PARAM_GROUPS)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_torch_adam_over_ten_steps(backend):
    params = make_params(33, sh_degree=2)
    twins = {name: tensor.clone().requires_grad_() for name, tensor in params.trained().items()}
    theirs = torch.optim.Adam([{"params": [twins[name]], "lr": RATES[name]} for name in PARAM_GROUPS], eps=1e-15)
    rows = Rows(params)
    ours = Optimizer(rows)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        gradients = random_gradients(rows, generator)
        for name, gradient in gradients.items():
            twins[name].grad = gradient.clone()
        ours.step(gradients, RATES, eps=1e-15, backend=backend)
        theirs.step()
    for name in PARAM_GROUPS:
        ours_now = rows[name].detach()
        moved = float((ours_now - make_params(33, sh_degree=2).trained()[name]).abs().max())
        assert moved > RATES[name]
        torch.testing.assert_close(ours_now, twins[name].detach(), rtol=2e-5, atol=2e-6 * moved + 1e-7)
        torch.testing.assert_close(ours.moments(name)[0], theirs.state[twins[name]]["exp_avg"], rtol=1e-5, atol=1e-7)


def test_F07_survivors_keep_their_moments_bit_for_bit_and_new_rows_get_zeros():
    rows = Rows(make_params(12))
    adam = Optimizer(rows)
    adam.step(random_gradients(rows, torch.Generator().manual_seed(1)), RATES, eps=1e-15, backend="reference")
    before = {name: rows[name].detach().clone() for name in rows}
    keep = torch.tensor([0, 3, 4, 11])
    rows.surgery(keep, {name: rows[name].detach()[:2] for name in PARAM_GROUPS}, 2)
    assert len(rows) == 6
    for name in before:
        assert torch.equal(rows[name].detach()[:4], before[name][keep]), name
    for name in PARAM_GROUPS:
        assert before[f"adam.exp_avg.{name}"].abs().max() > 0 or name == "shN"
        for moment in adam.moments(name):
            assert moment.shape == rows[name].shape and not moment[4:].any()
    assert adam.steps["means"] == 1


def test_F07_surgery_works_before_the_first_step_and_training_goes_on_after():
    rows = Rows(make_params(5))
    adam = Optimizer(rows)
    rows.surgery(torch.tensor([4, 1]), {name: rows[name].detach()[:1] for name in PARAM_GROUPS}, 1)
    start = rows["means"].detach().clone()
    adam.step(random_gradients(rows, torch.Generator().manual_seed(2)), RATES, eps=1e-15, backend="reference")
    assert (rows["means"].detach() - start).abs().min() > 0.5 * RATES["means"]
    assert rows.params.means is rows["means"] and rows["means"].is_leaf and rows["means"].requires_grad


def test_F08_every_registered_array_follows_and_a_wrong_size_is_refused():
    rows = Rows(make_params(7))
    Optimizer(rows)
    rows.put("heat", torch.arange(7.0))
    rows.surgery(torch.tensor([6, 2]), {}, 3)
    assert {rows[name].shape[0] for name in rows} == {5}
    assert rows["heat"].tolist() == [6, 2, 0, 0, 0]
    with pytest.raises(ValueError, match="heat: expected 5 rows"):
        rows.put("heat", torch.zeros(4))
    with pytest.raises(ValueError, match="means: expected 2 new rows"):
        rows.surgery(torch.tensor([0]), {"means": torch.zeros(3, 3)}, 2)
    rows._arrays["heat"] = torch.zeros(9)  # what put() would have refused
    with pytest.raises(RuntimeError, match="heat"):
        rows.check()


def test_a_group_without_gradient_stands_still_and_forget_zeroes_one_group():
    rows = Rows(make_params(4, sh_degree=1))
    adam = Optimizer(rows)
    gradients = random_gradients(rows, torch.Generator().manual_seed(3))
    del gradients["shN"]
    before = rows["shN"].detach().clone()
    adam.step(gradients, RATES, eps=1e-15, backend="reference")
    assert torch.equal(rows["shN"].detach(), before) and adam.steps["shN"] == 1
    adam.forget("logit_opacities")
    assert not adam.moments("logit_opacities")[0].any() and not adam.moments("logit_opacities")[1].any()
    assert adam.moments("means")[0].any()
