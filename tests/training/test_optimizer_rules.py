"""Rules and factors of the parameter groups: SGD as torch.optim.SGD, switching, what stands still, what a step moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import OptimizerConfig, TrainConfig
from app.training import schedule
from app.training.marks import FROZEN
from app.training.optimizer import Optimizer
from app.training.rows import Rows
from app.training.state import capture, restore
from app.training.trainer import Trainer
from app.training.updates import last_update
from render.types import PARAM_GROUPS
from tests.training.test_optimizer import RATES, random_gradients
from tests.training.tiny import make_params, make_scene

ALL_SGD = OptimizerConfig(**dict.fromkeys(PARAM_GROUPS, "sgd"))


@pytest.fixture(scope="module")
def scene():
    return make_scene(4, 12, size=24, points=24)


def one_group(*values: float, frozen: tuple[int, ...] = ()) -> tuple[Rows, Optimizer]:
    """Logit opacities of these values."""
    rows = Rows(make_params(len(values)))
    rows["logit_opacities"].data.copy_(torch.tensor(values).reshape(rows["logit_opacities"].shape))
    if frozen:
        mask = torch.zeros(len(values), dtype=torch.bool)
        mask[list(frozen)] = True
        rows.put(FROZEN, mask)
    return rows, Optimizer(rows)


def step(optimizer: Optimizer, *gradient: float, rate: float = 0.5, momentum: float = 0.5, rule: str = "sgd",
         **named) -> list[float]:
    logits = optimizer.rows["logit_opacities"]
    settings = OptimizerConfig(logit_opacities=rule, momentum=momentum, on_switch=named.pop("on_switch", "zero"))
    optimizer.step({"logit_opacities": torch.tensor(gradient).reshape(logits.shape)}, {**RATES, "logit_opacities": rate},
                   eps=1e-15, backend="reference", settings=settings, **named)
    return logits.detach().reshape(-1).tolist()


def test_sgd_by_hand():
    _, optimizer = one_group(1.0, -2.0)
    assert step(optimizer, 0.5, -1.0) == [0.75, -1.5]          # b = g;             1 - 0.5 * 0.5
    assert step(optimizer, 1.0, 0.0) == [0.125, -1.25]         # b = 1.25, -0.5;    0.75 - 0.5 * 1.25
    assert step(optimizer, 0.0, 0.0) == [-0.1875, -1.125]      # b = 0.625, -0.25:  it rolls on
    assert optimizer.steps["logit_opacities"] == 0 and optimizer.steps["means"] == 3
    assert not any(moment.any() for moment in optimizer.moments("logit_opacities"))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equals_torch_sgd_over_ten_steps(momentum):
    params = make_params(33, sh_degree=2)
    twins = {name: tensor.clone().requires_grad_() for name, tensor in params.trained().items()}
    theirs = torch.optim.SGD([{"params": [twins[name]], "lr": RATES[name]} for name in PARAM_GROUPS], lr=1.0, momentum=momentum)
    rows = Rows(params)
    ours, generator = Optimizer(rows), torch.Generator().manual_seed(0)
    for _ in range(10):
        gradients = random_gradients(rows, generator)
        for name, gradient in gradients.items():
            twins[name].grad = gradient.clone()
        ours.step(gradients, RATES, eps=1e-15, backend="cpu", settings=replace(ALL_SGD, momentum=momentum))
        theirs.step()
    for name in PARAM_GROUPS:
        assert (rows[name].detach() - make_params(33, sh_degree=2).trained()[name]).abs().max() > 0
        torch.testing.assert_close(rows[name].detach(), twins[name].detach(), rtol=1e-6, atol=1e-7)
        if momentum:
            torch.testing.assert_close(ours.momentum(name), theirs.state[twins[name]]["momentum_buffer"], rtol=1e-6, atol=1e-8)


def test_sgd_has_the_same_bits_on_any_number_of_threads():
    def run(threads: int) -> list[bytes]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            rows = Rows(make_params(4099, sh_degree=1))
            optimizer, generator = Optimizer(rows), torch.Generator().manual_seed(3)
            extents = (torch.rand(len(rows), 2, generator=generator) - 0.3).clamp(min=0)
            for i in range(6):
                optimizer.step(random_gradients(rows, generator), RATES, eps=1e-15, backend="reference", settings=ALL_SGD,
                               extents=extents if i % 2 else None)
            return [rows[name].detach().numpy().tobytes() for name in PARAM_GROUPS]
        finally:
            torch.set_num_threads(before)

    one = run(1)
    assert run(2) == one and run(4) == one


def test_frozen_and_unseen_rows_stand_still_and_keep_their_momentum():
    rows, optimizer = one_group(1.0, 1.0, 1.0, frozen=(1,))
    assert step(optimizer, 1.0, 1.0, 1.0) == [0.5, 1.0, 0.5]
    extents = torch.tensor([[0.0, 0.0], [3.0, 3.0], [3.0, 3.0]])   # the first is in no picture
    assert step(optimizer, 1.0, 1.0, 1.0, extents=extents) == [0.5, 1.0, -0.25]
    assert optimizer.momentum("logit_opacities").reshape(-1).tolist() == [1.0, 0.0, 1.5]
    rows.drop(FROZEN)
    assert step(optimizer, 0.0, 0.0, 0.0) == [0.25, 1.0, -0.625]


def test_a_step_whose_gradients_are_not_finite_moves_nothing_on_the_device():
    _, optimizer = one_group(1.0, 2.0)
    step(optimizer, 1.0, 1.0)
    count = dict(optimizer.steps)
    assert step(optimizer, float("nan"), 1.0, ok=torch.zeros(1, dtype=torch.int32)) == [0.5, 1.5]
    optimizer.take_back()
    assert optimizer.steps == count and optimizer.momentum("logit_opacities").reshape(-1).tolist() == [1.0, 1.0]
    assert step(optimizer, 0.0, 0.0, ok=torch.ones(1, dtype=torch.int32)) == [0.25, 1.25]


def test_a_group_with_another_rule_begins_anew_or_takes_up_what_it_had():
    for on_switch in ("zero", "keep"):
        _, optimizer = one_group(1.0)
        for _ in range(3):
            step(optimizer, 1.0, rule="adam", on_switch=on_switch)
        moments = [moment.clone() for moment in optimizer.moments("logit_opacities")]
        step(optimizer, 1.0, on_switch=on_switch)
        step(optimizer, 1.0, on_switch=on_switch)
        before = step(optimizer, 1.0, rule="still", on_switch=on_switch)
        assert step(optimizer, 7.0, rule="still", on_switch=on_switch) == before
        if on_switch == "zero":
            assert optimizer.steps["logit_opacities"] == 0 and optimizer.momentum("logit_opacities") is None
            assert not any(moment.any() for moment in optimizer.moments("logit_opacities"))
            now = step(optimizer, 4.0, rule="adam")
            assert now[0] == pytest.approx(before[0] - 0.5)   # the first step of Adam is as large as its rate
        else:
            assert optimizer.steps["logit_opacities"] == 3
            assert all(map(torch.equal, optimizer.moments("logit_opacities"), moments))
            assert optimizer.momentum("logit_opacities").item() == 1.5
            step(optimizer, 0.0, on_switch="keep")
            assert optimizer.momentum("logit_opacities").item() == 0.75
        assert optimizer.steps["means"] == 8


def test_surgery_carries_momentum_and_forget_zeroes_it():
    rows, optimizer = one_group(1.0, 2.0, 3.0)
    step(optimizer, 1.0, 2.0, 3.0)
    rows.surgery(torch.tensor([2, 0]), {}, 1)
    assert optimizer.momentum("logit_opacities").reshape(-1).tolist() == [3.0, 1.0, 0.0]
    optimizer.forget("logit_opacities")
    assert not optimizer.momentum("logit_opacities").any()
    assert rows.nbytes["adam"] == sum(a.numel() * 4 for name in PARAM_GROUPS for a in optimizer.memories(name))


def test_factors_multiply_the_learning_rates_and_plain_ones_leave_every_bit(scene):
    plain = schedule.learning_rates(TrainConfig(), 10, 2.0)
    config = TrainConfig(optimizer=OptimizerConfig(means_factor=3.0, shN_factor=0.5))
    rates = schedule.learning_rates(config, 10, 2.0)
    assert {name: rates[name] / plain[name] for name in plain} == {**dict.fromkeys(plain, 1.0), "means": 3.0, "shN": 0.5}
    trainer = Trainer(scene, TrainConfig(), backend="cpu")
    trainer.step()
    trainer.set_option("optimizer.log_scales_factor", 4.0)
    trainer.step()
    assert last_update(trainer, "log_scales").abs().max() > 2 * trainer.config.scale_lr


MIXED = OptimizerConfig(means="sgd", means_factor=100.0, quats="still", sh0="sgd", sh0_factor=30.0, log_scales_factor=0.5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_what_is_said_of_an_update_is_what_the_parameters_did(scene, sparse, batch):
    config = TrainConfig(sh_every=2, micro_batch=batch, sparse_adam=sparse, optimizer=MIXED)
    trainer = Trainer(scene, config, backend="cpu")
    frozen = torch.zeros(len(trainer.params), dtype=torch.bool)
    frozen[:3] = True
    trainer.state.rows.put(FROZEN, frozen)
    assert last_update(trainer, "means") is None
    for _ in range(6):
        before = {name: tensor.detach().clone() for name, tensor in trainer.params.trained().items()}
        trainer.backward()
        assert all(last_update(trainer, name) is None for name in PARAM_GROUPS)   # pending
        trainer.step()
        for name in PARAM_GROUPS:
            moved = trainer.params.trained()[name].detach() - before[name]
            said = last_update(trainer, name)
            # a parameter is rounded where it stands, so the difference is known to an ulp of it only
            torch.testing.assert_close(said, moved, rtol=1e-4, atol=float(before[name].abs().max()) * 2e-7)
            assert bool(said.any()) == (name != "quats" and (name != "shN" or trainer.iteration >= 2)), name
            assert not said[:3].any()
            one = last_update(trainer, name, 5)
            torch.testing.assert_close(one, said[5].double(), rtol=1e-5, atol=1e-12)


def test_a_run_with_several_rules_resumes_bit_for_bit(scene):
    config = TrainConfig(seed=3, optimizer=MIXED, sh_every=2)
    trainer = Trainer(scene, config, backend="cpu")
    for _ in range(4):
        trainer.step()
    state = capture(trainer)
    other = Trainer(scene, TrainConfig(), backend="cpu")
    assert restore(other, state) == [] and other.state.optimizer.rules == trainer.state.optimizer.rules
    for _ in range(4):
        trainer.step()
        other.step()
    for name in trainer.state.rows:
        if name.startswith(("adam.", "sgd.")) or name in PARAM_GROUPS:
            assert np.array_equal(trainer.state.rows[name].detach(), other.state.rows[name].detach()), name
