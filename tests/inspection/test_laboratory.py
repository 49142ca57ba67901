"""The alpha-rule laboratory: equal rules differ in nothing, others only through clamped pixels; lanes leave the run alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.inspection.laboratory import compare_rules, fork, train_lanes
from app.inspection.rules import Comparison, Lanes, Rule
from app.training.trainer import Trainer
from tests.training.test_trainer import fingerprint
from tests.training.tiny import make_params, make_scene

EXACT, THROUGH = Rule(), Rule(alpha_gradient="straight_through")


def opaque_trainer(backend: str = "cpu", opacity: float = 0.999) -> Trainer:
    """Gaussians so opaque that alpha is clamped around their means."""
    scene = make_scene(4, 12, size=32, points=30, test_every=2)
    config = TrainConfig(iterations=1000, schedule_iterations=30_000, densify=DensifyConfig(start=2, stop=50, every=3,
                                                                                             grad_threshold=1e-5))
    return Trainer(scene, config, backend=backend, params=make_params(20, 3, opacity=opacity))


def result_of(job):
    while True:
        try:
            next(job)
        except StopIteration as end:
            return end.value


def compared(trainer: Trainer, a: Rule, b: Rule) -> Comparison:
    return result_of(compare_rules(trainer, trainer.views[0], a, b))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_equal_rules_differ_in_nothing(backend):
    trainer = opaque_trainer(backend)
    before = fingerprint(trainer)
    found = compared(trainer, EXACT, EXACT)
    assert found.image_difference == 0 and all((pair[0] == pair[1]).all() for pair in found.values.values())
    assert all(pair.any() for pair in found.values.values())
    assert fingerprint(trainer) == before and all(t.grad is None for t in trainer.params.trained().values())


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_modes_differ_only_for_gaussians_that_are_clamped_somewhere(backend):
    trainer = opaque_trainer(backend)
    found = compared(trainer, EXACT, THROUGH)
    assert found.image_difference == 0 and found.a.clamped_pixels == found.b.clamped_pixels > 0
    assert 0 < found.a.clamped_pairs < found.a.clamped_pixels
    for name, rows in found.tops.items():
        pair = found.values[name]
        apart = np.abs(pair[0] - pair[1])
        assert apart.any() and (np.diff(apart[rows]) <= 0).all() and apart[rows[0]] == apart.max()
    low = compared(opaque_trainer(backend, opacity=0.5), EXACT, THROUGH)
    assert low.a.clamped_pixels == 0 and all((pair[0] == pair[1]).all() for pair in low.values.values())


def test_the_gradients_are_those_of_a_training_step():
    """Under the run's own rule they equal what the optimiser gets in the next step on that view."""
    trainer = opaque_trainer()
    found = {i: result_of(compare_rules(trainer, view, EXACT, THROUGH)) for i, view in enumerate(trainer.views)}
    report = trainer.step()
    index = trainer.last_view_index
    assert index is not None and trainer.views[index].name == report.view_name
    gradient = trainer.gradients()["means"].detach().numpy()
    np.testing.assert_allclose(found[index].values["means"][0], np.linalg.norm(gradient, axis=1), rtol=1e-5)
    assert found[index].a.loss == pytest.approx(report.loss, rel=1e-6)
    assert found[index].a.psnr == pytest.approx(report.psnr, rel=1e-6)


def test_another_alpha_max_is_another_picture_and_a_wrong_one_is_refused():
    trainer = opaque_trainer()
    found = compared(trainer, EXACT, Rule(alpha_max=0.9))
    assert 0.01 < found.image_difference < 1.0 and found.b.clamped_pixels > found.a.clamped_pixels
    with pytest.raises(ValueError, match="alpha_max"):
        compared(trainer, EXACT, Rule(alpha_max=1e-3))


@pytest.mark.parametrize("rule", [EXACT, THROUGH])
def test_a_lane_is_the_run_itself_under_its_rule(rule):
    """Bit for bit, a densification included, and the run does not move meanwhile."""
    trainer, alone = opaque_trainer(), opaque_trainer()
    for _ in range(2):
        trainer.step(), alone.step()
    before = fingerprint(trainer)
    twin = fork(trainer, rule)
    alone.set_option("raster.alpha_gradient", rule.alpha_gradient)
    for _ in range(6):
        mine, its = alone.step(), twin.step()
        assert (mine.loss, mine.view_name, mine.densified) == (its.loss, its.view_name, its.densified)
    assert fingerprint(twin) == fingerprint(alone) != fingerprint(trainer) == before
    assert twin.scene is trainer.scene
    trainer.step()


def test_lanes_report_as_they_go_and_end_with_the_held_out_views():
    trainer = opaque_trainer()
    job, seen = train_lanes(trainer, EXACT, THROUGH, 5), []
    while True:
        try:
            seen.append(next(job))
        except StopIteration as end:
            last: Lanes = end.value
            break
    assert [lanes.done for lanes in seen[:5]] == [1, 2, 3, 4, 5] and last.done == 5
    assert last.a.rule == EXACT and last.b.rule == THROUGH and last.start == 0
    assert np.isfinite([last.a.held_out, last.b.held_out]).all() and np.isfinite(last.a.loss).all()
    assert last.a.loss[0] == last.b.loss[0] and not np.array_equal(last.a.loss, last.b.loss)
    assert trainer.iteration == 0 and torch.equal(trainer.params.means, opaque_trainer().params.means)
