"""Taming-3DGS (Mallick et al. 2024): its score by hand, and a budget that is reached exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training.densify.relocation import draw_apart
from app.training.densify.survey import Seen, edges, stretched
from app.training.densify.taming import normalised, planned_count, score
from app.training.trainer import Trainer
from tests.training.cases import set_statistic
from tests.training.tiny import make_params, make_scene

CLOSE = DensifyConfig(start=0, every=12, stop=60, reset_every=36, percent_dense=0.05)


def test_taming_counts_are_the_quadratic_of_equation_2():
    # A(x) = a x^2 + k x + S with k = 2 (B - S)/n and a = (B - S - k n)/n^2
    start, budget, n = 1000, 5000, 40
    k = 2 * (budget - start) / n
    a = (budget - start - k * n) / n**2
    assert [planned_count(start, budget, x / n) for x in range(n + 1)] == [
        pytest.approx(int(a * x * x + k * x + start), abs=1) for x in range(n + 1)]
    assert planned_count(start, budget, 1.0) == budget and planned_count(start, budget, 0.0) == start


def seen_of(loss, visible, **arrays):
    n = len(visible)
    zero = np.zeros(n)
    return Seen(loss, np.array(visible), *(np.array(arrays.get(name, zero), float) for name in (
        "depths", "radii", "blend", "spread", "saliency")))


def test_taming_score_by_hand():
    assert normalised(np.array([0.0, 2.0, 4.0, 8.0, np.nan])).tolist() == [0.0, 0.5, 1.0, 2.0, 0.0]
    statistic, opacities, volumes = np.array([2.0, 4.0, 0.0]), np.array([0.5, 0.5, 0.5]), np.array([1.0, 1.0, 3.0])
    views = [seen_of(0.1, [True, False, True], radii=[3.0, 0.0, 6.0], saliency=[2.0, 0.0, 2.0]),
             seen_of(0.2, [True, True, False], blend=[1.0, 3.0, 0.0])]
    own = [25 * 2 / 3 + 100 + 25, 25 * 4 / 3 + 100 + 25, 100 + 25 * 3]
    want = [50 * (0.1 * (own[0] + 10 * 3 / 4.5 + 10) + 0.2 * (own[0] + 50.1 * 0.5)),
            50 * 0.2 * (own[1] + 50.1 * 1.5), 50 * 0.1 * (own[2] + 10 * 6 / 4.5 + 10)]
    assert score(views, statistic, opacities, volumes).tolist() == pytest.approx(want)


def test_taming_edges_and_stretching_by_hand():
    picture = np.zeros((4, 5, 3), np.float32)
    picture[:, 3:] = 100 / 255
    found = edges(picture) * 255
    assert found[1].tolist() == pytest.approx([0, 0, 0, 255, 0])   # 8*100 - 3*0 - 5*100 = 300, held at 255
    assert not found[0].any() and not edges(np.ones((2, 2, 3), np.float32)).any()
    assert stretched(np.array([[1.0, 3.0]], np.float32)).tolist() == [[0.0, 1.0]]
    assert not stretched(np.full((2, 2), 7.0, np.float32)).any()


def test_taming_draws_without_replacement_in_proportion():
    rng = np.random.default_rng(2)
    first = np.bincount([draw_apart(np.array([1.0, 3.0, 0.0]), 1, rng)[0] for _ in range(6000)], minlength=3)
    assert first[:2] / 6000 == pytest.approx([0.25, 0.75], abs=0.02) and first[2] == 0
    assert sorted(draw_apart(np.array([1.0, 3.0, 0.0]), 3, rng).tolist()) == [0, 1, 2]


def test_taming_what_the_survey_sees_is_what_the_compositor_blends():
    trainer = Trainer(make_scene(), TrainConfig(iterations=9), backend="cpu", params=make_params(30))
    seen = trainer.state.survey.see(2)
    picture = trainer.render(trainer.views[2].camera)
    assert seen.blend.sum() == pytest.approx(float((1.0 - picture.transmittances).sum()), rel=1e-4)
    assert (seen.blend[~seen.visible] == 0).all() and seen.visible.any() and seen.saliency.max() > 0
    one = Trainer(make_scene(), TrainConfig(iterations=9), backend="cpu", params=make_params(1, spread=0.0, opacity=0.5))
    alone = one.state.survey.see(0)
    output = one.render(one.views[0].camera)
    weights = 1.0 - output.transmittances.numpy()
    y, x = np.mgrid[:48, :48] + 0.5
    mean = output.projected.means2d[0].numpy()
    rms = math.sqrt(float((weights * ((x - mean[0]) ** 2 + (y - mean[1]) ** 2)).sum() / weights.sum()))
    assert alone.spread[0] / alone.blend[0] == pytest.approx(rms, rel=0.05)   # but for what the cutoff takes


def test_taming_follows_its_schedule_and_reaches_its_budget_exactly():
    densify = replace(CLOSE, strategy="taming", taming_budget=200, taming_views=3)
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, schedule_iterations=30_000, densify=densify), backend="cpu")
    trainer.schedule = replace(trainer.schedule, start=0, every=12, stop=60)
    counts, pruned = {}, 0
    while trainer.iteration < 60:
        if trainer.iteration == 22:
            with torch.no_grad():
                trainer.state.rows["logit_opacities"][:7] = -9.0
        report = trainer.step()
        if report.densified is not None and trainer.iteration % 12 == 0:
            counts[trainer.iteration] = report.gaussians
            pruned += report.densified.pruned
    # four events from 60 Gaussians to 200; a Gaussian has one child an event at most
    assert counts == {12: min(120, planned_count(60, 200, 0.25)), 24: planned_count(60, 200, 0.5),
                      36: planned_count(60, 200, 0.75), 48: 200} and pruned >= 7
    assert trainer.strategy.memory() == {"start_count": 60, "start_event": 0}


def test_taming_takes_those_above_the_threshold_first():
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, densify=replace(CLOSE, strategy="taming", taming_budget=75)),
                      backend="cpu")
    trainer.step()
    rows, n = trainer.state.rows, 60
    set_statistic(trainer.state, [1.0] * 10 + [0.0] * (n - 10))
    last = replace(trainer.schedule, start=0, every=12, stop=13)
    plan = trainer.strategy.candidates(trainer.state, 12, trainer.config, last)
    grown = (plan.clone | plan.split).numpy()
    assert grown.sum() == 15 and grown[:10].all() and len(rows) == n
