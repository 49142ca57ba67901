"""3DGS as MCMC (Kheradmand et al. 2024): each rule against a case worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training import schedule as schedules
from app.training.checkpoint import Checkpoint
from app.training.densify import mcmc
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.mcmc import MarkovChain
from app.training.densify.relocation import MOST_COPIES, draw, share
from app.training.saving import resume
from app.training.state import capture
from app.training.trainer import Trainer
from render.types import PARAM_GROUPS
from tests.training.cases import EVERY_STEP, config_of, event_of, params_of, plan_of, state_of, uids
from tests.training.tiny import make_scene


def equation_9(opacity, copies):
    """As the paper writes it, term by term."""
    new = 1.0 - (1.0 - opacity) ** (1.0 / copies)
    total = sum(math.comb(i - 1, k) * (-1) ** k * new ** (k + 1) / math.sqrt(k + 1)
                for i in range(1, copies + 1) for k in range(i))
    return new, opacity / total


@pytest.mark.parametrize("opacity", [0.006, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("copies", [1, 2, 3, 7, 20])
def test_mcmc_new_opacity_and_scale_are_equation_9(opacity, copies):
    new, factor = share(np.array([opacity]), np.array([copies]))
    assert (new[0], factor[0]) == pytest.approx(equation_9(opacity, copies), rel=1e-9)


@pytest.mark.parametrize(("opacity", "copies"), [(0.3, 2), (0.9, 3), (0.99, 10), (0.999, 51)])
def test_mcmc_copies_in_one_place_blend_to_the_same_integral(opacity, copies):
    x = np.linspace(-12.0, 12.0, 200_001)
    new, factor = (float(v[0]) for v in share(np.array([opacity]), np.array([copies])))
    blended = 1.0 - (1.0 - new * np.exp(-0.5 * (x / factor) ** 2)) ** copies
    assert blended.max() == pytest.approx(opacity, rel=1e-9)   # the centre is as opaque as before
    assert np.trapezoid(blended, x) == pytest.approx(opacity * math.sqrt(2 * math.pi), rel=1e-6)


def test_mcmc_equation_9_takes_what_there_should_not_be():
    new, factor = share(np.array([0.0, 1.0, 0.5, 2.0]), np.array([3, 60, 10_000, 2]))
    assert np.isfinite(new).all() and np.isfinite(factor).all() and (factor > 0).all()
    assert new[2] == share(np.array([0.5]), np.array([MOST_COPIES]))[0][0]


def test_mcmc_dead_ones_move_onto_opaque_ones_and_nothing_is_lost():
    state, _ = state_of(params_of([0.1, 0.2, 0.3, 0.4], [0.0049, 0.8, 0.005, 0.0051]))
    for name in PARAM_GROUPS:
        for moment in state.optimizer.moments(name):
            moment.fill_(1.0)
    before = {name: state.rows[name].detach().clone() for name in PARAM_GROUPS}
    config = config_of("mcmc", mcmc_growth=0.0)
    plan = plan_of(MarkovChain(), state, config)
    assert uids(state, plan.dead) == [100, 102] and plan.count == 4
    record = event_of(MarkovChain(), state, config)
    assert record.relocated.tolist() == [100, 102] and (record.event.relocated, record.event.added) == (2, 0)
    assert len(state.rows) == 4 and state.rows["uids"].tolist()[:2] == [101, 103]
    for child, parent in zip(record.born.tolist(), record.parents.tolist(), strict=True):
        row, source = (state.rows["uids"].tolist().index(uid) for uid in (child, parent))
        copies = record.parents.tolist().count(parent) + 1
        opacity, scale = {101: (0.8, 0.2), 103: (0.0051, 0.4)}[parent]
        new, factor = equation_9(opacity, copies)
        for name in ("means", "quats", "sh0", "shN"):
            assert torch.equal(state.rows[name][row], before[name][parent - 100])
        for place in (row, source):
            assert torch.sigmoid(state.rows["logit_opacities"][place]).item() == pytest.approx(max(new, 0.005), rel=1e-5)
            assert torch.exp(state.rows["log_scales"][place, 0]).item() == pytest.approx(scale * factor, rel=1e-5)
            assert not any(m[place].any() for name in PARAM_GROUPS for m in state.optimizer.moments(name))
        assert state.lineage.parent(child) == parent
    quiet = [row for row, uid in enumerate(state.rows["uids"].tolist()) if uid in (101, 103) and uid not in record.parents]
    assert all(state.optimizer.moments("means")[0][row].all() for row in quiet)


def test_mcmc_targets_are_drawn_in_proportion_to_opacity():
    found = np.bincount(draw(np.array([0.0, 0.1, 0.3, 0.6, 0.0]), 20_000, np.random.default_rng(1)), minlength=5)
    assert found[[0, 4]].sum() == 0 and found[1:4] / 20_000 == pytest.approx([0.1, 0.3, 0.6], abs=0.015)


def test_mcmc_grows_by_a_twentieth_up_to_the_cap_F11():
    counts = []
    state, said = state_of(params_of([0.1] * 100, [0.5] * 100), cap=112)
    for _ in range(5):
        counts.append(event_of(MarkovChain(), state, config_of("mcmc")).event.count)
    assert counts == [105, 110, 112, 112, 112] and any("cap of 112" in text for text in said)
    full = MarkovChain().densify_now(state, 7, config_of("mcmc"), EVERY_STEP)
    assert full is None and not any("Nothing was densified" in text for text in said)


def test_F14_mcmc_never_lowers_the_number_and_trims_what_starts_above_the_cap():
    scene = make_scene(points=90)
    trainer = Trainer(scene, TrainConfig(iterations=9, densify=DensifyConfig(strategy="mcmc", cap=50)), backend="cpu")
    assert len(trainer.params) == 50 and any("never lowers" in text and "40" in text for text in trainer.notices)
    assert len(np.unique(trainer.params.uids.numpy())) == 50
    assert "never lowers" in DensifyConfig.__dataclass_fields__["strategy"].metadata["help"]
    live = Trainer(scene, TrainConfig(iterations=9, densify=DensifyConfig(cap=50)), backend="cpu")
    live.set_option("densify.strategy", "mcmc")
    assert len(live.params) == 90 and any("they stay" in text for text in live.notices)
    live.densify_now()
    assert len(live.params) == 90


def test_F14_a_run_that_goes_on_above_the_cap_keeps_all_and_says_so(tmp_path):
    scene = make_scene(points=90)
    before = Trainer(scene, TrainConfig(iterations=9), backend="cpu")
    before.step()
    for changes in ({"densify.strategy": "mcmc", "densify.cap": 50}, {"densify.cap": 50, "densify.strategy": "mcmc"}):
        found = Checkpoint(capture(before))
        config = TrainConfig(iterations=9, densify=DensifyConfig(strategy="mcmc", cap=50))
        trainer = Trainer(scene, config, backend="cpu", params=found.state.params())
        told = resume(trainer, found, changes) + list(trainer.notices)
        assert len(trainer.params) == 90 and not any("left out" in text for text in told)
        assert sum("90 Gaussians, more than the cap of 50" in text and "they stay" in text for text in told) == 1
        trainer.step()
        assert len(trainer.params) == 90


def test_F15_mcmc_noise_has_the_covariance_of_the_gaussian_and_spares_the_opaque():
    n = 60_000
    half = math.sqrt(0.5)   # 90 degrees about z: the long axis, x, lies along y in the world
    params = params_of([0.4] * n, [0.004] * n, [[half * 3, 0, 0, half * 3]] * n)   # of any length
    state, _ = state_of(params)
    before = state.rows["means"].detach().clone()
    MarkovChain().add_noise(state, 2.0)
    moved = (state.rows["means"].detach() - before).double()
    factor = 2.0 / (1.0 + math.exp(100 * (0.004 - 0.005)))
    assert moved.std(dim=0).tolist() == pytest.approx([factor * 0.04, factor * 0.16, factor * 0.04], rel=0.02)
    assert moved.mean(dim=0).abs().max() < 3e-3
    opaque, _ = state_of(params_of([0.4], [0.5]))
    MarkovChain().add_noise(opaque, 2.0)
    assert opaque.rows["means"].detach().abs().max() < 1e-15


def test_noise_that_a_gpu_draws_has_the_same_law():
    """The two ways to draw differ in their numbers n alone."""
    state, _ = state_of(params_of([0.4, 0.1] * 4000, [0.004, 0.02] * 4000))
    ours, theirs = (draws(state.rows, np.random.default_rng(3)) for draws in (mcmc._on_the_host, mcmc._on_the_device))
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=0)
    assert all(abs(float(n.std()) - 1) < 0.02 and abs(float(n.mean())) < 0.02 for n in (ours[0], theirs[0]))
    again = mcmc._on_the_device(state.rows, np.random.default_rng(3))
    assert torch.equal(again[0], theirs[0]) and not torch.equal(
        mcmc._on_the_device(state.rows, np.random.default_rng(4))[0], theirs[0])


def test_F15_noise_follows_the_learning_rate_of_the_means_and_the_extent():
    sizes = []
    for extent in (1.0, 3.0):
        state, _ = state_of(params_of([0.4] * 50, [0.004] * 50), extent=extent)
        before = state.rows["means"].detach().clone()
        config = config_of("mcmc", mcmc_noise_lr=1e3)
        MarkovChain().after_step(state, 5, config, replace(EVERY_STEP, start=9000))
        rate = schedules.means_lr(config, 5, extent)
        sizes.append(float((state.rows["means"].detach() - before).norm()) / (1e3 * rate))
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4) and sizes[0] > 0


def test_mcmc_regularisers_are_the_gradients_of_the_means_of_opacity_and_scale():
    state, _ = state_of(params_of([0.1, 0.7, 0.2], [0.2, 0.6, 0.9]))
    config = config_of("mcmc", mcmc_opacity_reg=0.3, mcmc_scale_reg=0.7)
    logits, logs = (state.rows[name].detach().double().requires_grad_() for name in ("logit_opacities", "log_scales"))
    (0.3 * torch.sigmoid(logits).mean() + 0.7 * torch.exp(logs).mean()).backward()
    zeros = {name: torch.zeros_like(state.rows[name]) for name in PARAM_GROUPS}
    found = MarkovChain().regularise(state, zeros, config)
    torch.testing.assert_close(found["logit_opacities"].double(), logits.grad, rtol=1e-5, atol=0)
    torch.testing.assert_close(found["log_scales"].double(), logs.grad, rtol=1e-5, atol=0)
    assert not found["means"].any() and not zeros["log_scales"].any()   # a new dictionary, the tensors untouched
    assert AdaptiveDensityControl().regularise(state, zeros, config) is zeros


def test_mcmc_regularises_in_a_step():
    runs = []
    for weight in (0.0, 5.0):
        densify = DensifyConfig(strategy="mcmc", mcmc_opacity_reg=weight, mcmc_noise_lr=0.0)
        trainer = Trainer(make_scene(), TrainConfig(iterations=9, densify=densify), backend="cpu")
        trainer.step()
        runs.append(trainer.gradients()["logit_opacities"])
    o = 0.1
    assert (runs[1] - runs[0]).numpy() == pytest.approx(5.0 * o * (1 - o) / 60, rel=1e-3)


def test_F12_mcmc_with_nobody_alive_is_skipped_with_a_warning():
    state, said = state_of(params_of([0.1] * 3, [0.001] * 3))
    assert MarkovChain().after_step(state, 7, config_of("mcmc"), EVERY_STEP) is None
    assert len(state.rows) == 3 and any("nothing to move" in text for text in said)


def test_mcmc_heals_what_is_not_finite():
    params = params_of([0.1] * 4, [0.5] * 4)
    params.means[1, 0], params.sh0[2] = math.nan, math.inf
    state, _ = state_of(params)
    record = event_of(MarkovChain(), state, config_of("mcmc"))
    assert record.relocated.tolist() == [101, 102]
    assert all(torch.isfinite(state.rows[name]).all() for name in PARAM_GROUPS)
