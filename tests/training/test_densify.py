"""Clone, split, prune and reset against cases worked out by hand (Kerbl et al. 2023, section 5)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.base import ViewGradients
from app.training.densify.lineage import Lineage
from app.training.densify.none import NoDensification
from app.training.densify.operations import reset_opacities, rotate
from app.training.densify.statistics import COUNT, RADIUS, SUM, GradientStatistics, screen_gradient
from app.training.schedule import Schedule
from render.config import RasterConfig
from render.types import PARAM_GROUPS, Camera, GradientTap
from tests.training.cases import EVERY_STEP, params_of, set_statistic, state_of

CAMERA = Camera(np.eye(4), np.array([[100.0, 0, 50], [0, 100, 20], [0, 0, 1]]), 100, 40)

def densify(state, config=None, *, after_reset=False):
    return AdaptiveDensityControl().densify(state, 7, config or DensifyConfig(), after_reset=after_reset)


# ------------------------------------------------------------------ the statistic

def gradients(v, extents, generation=0, v_abs=None) -> ViewGradients:
    tap = GradientTap(v_abs is not None, torch.tensor(v), None if v_abs is None else torch.tensor(v_abs))
    return ViewGradients(tap, torch.tensor(extents), CAMERA, generation)


def test_statistic_is_per_half_image_and_averaged_over_views_that_saw_it():
    assert screen_gradient(torch.tensor([[3e-2, 4e-2]]), 100, 40).item() == pytest.approx(math.hypot(1.5, 0.8))
    state, _ = state_of(params_of([0.1] * 3, [0.5] * 3))
    stats = GradientStatistics(state.rows)
    stats.add(gradients([[1e-2, 0.0], [2e-2, 0.0], [9.0, 9.0]], [[3.0, 1.0], [2.0, 2.0], [0.0, 0.0]]), False)
    stats.add(gradients([[0.0, 5e-2], [7.0, 7.0], [9.0, 9.0]], [[3.0, 8.0], [0.0, 0.0], [0.0, 0.0]]), False)
    assert stats.average(False).tolist() == pytest.approx([(0.5 + 1.0) / 2, 1.0, 0.0])
    assert state.rows[RADIUS].tolist() == [8.0, 2.0, 0.0]


def test_F17_never_seen_is_zero_not_nan_and_told_apart():
    state, _ = state_of(params_of([0.1] * 2, [0.5] * 2))
    stats = GradientStatistics(state.rows)
    stats.add(gradients([[0.0, 0.0], [1.0, 1.0]], [[2.0, 2.0], [0.0, 0.0]]), False)
    assert stats.average(False).tolist() == [0.0, 0.0]
    assert stats.never_seen.tolist() == [False, True]


def test_N26_visible_without_gradient_is_counted():
    state, _ = state_of(params_of([0.1] * 3, [0.5] * 3))
    stats = GradientStatistics(state.rows)
    for v in ([0.0, 0.0], [1.0, 0.0]):
        stats.add(gradients([[0.0, 0.0], v, [0.0, 0.0]], [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]), False)
    assert stats.visible_without_gradient.tolist() == [True, False, False]


def test_N21_a_camera_that_faces_away_leaves_the_statistics_unchanged():
    state, _ = state_of(params_of([0.1] * 2, [0.5] * 2))
    set_statistic(state, [1e-3, 2e-3])
    before = {name: state.rows[name].clone() for name in state.rows if name.startswith("stat.")}
    GradientStatistics(state.rows).add(gradients([[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2), True)
    assert all(torch.equal(state.rows[name], value) for name, value in before.items())


def test_F05_gradients_from_before_a_densification_are_refused():
    state, _ = state_of(params_of([0.1] * 2, [0.5] * 2))
    set_statistic(state, [1.0, 0.0])
    densify(state)
    with pytest.raises(RuntimeError, match="generation 0"):
        AdaptiveDensityControl().after_backward(state, gradients([[0.0, 0.0]] * 3, [[1.0, 1.0]] * 3), TrainConfig())


def test_F09_threshold_and_statistic_switch_with_absgrad():
    state, _ = state_of(params_of([0.001] * 2, [0.5] * 2))
    set_statistic(state, [1.9e-4, 1e-4])   # sums of absolutes are five times larger: 9.5e-4 and 5e-4
    assert densify(state).event.cloned == 0
    set_statistic(state, [1.9e-4, 1e-4])
    assert densify(state, DensifyConfig(absgrad=True)).event.cloned == 1
    assert DensifyConfig().absgrad_threshold == 8e-4 and DensifyConfig().grad_threshold == 2e-4


# ------------------------------------------------------------------ clone, split, prune by hand

def test_small_ones_are_cloned_exactly_and_the_copy_descends_from_them():
    state, _ = state_of(params_of([0.005, 0.0099, 0.005], [0.5] * 3))
    set_statistic(state, [3e-4, 2.1e-4, 1.9e-4])
    before = {name: state.rows[name].detach().clone() for name in PARAM_GROUPS}
    record = densify(state)
    assert (record.event.cloned, record.event.split, record.event.pruned, record.event.count) == (2, 0, 0, 5)
    for name in PARAM_GROUPS:
        after = state.rows[name].detach()
        assert torch.equal(after[:3], before[name]) and torch.equal(after[3:], before[name][:2])
    assert state.rows["uids"].tolist() == [100, 101, 102, 103, 104]
    assert [state.lineage.parent(uid) for uid in (100, 103, 104)] == [None, 100, 101]
    assert [state.lineage.born(uid) for uid in (100, 103)] == [0, 7]
    assert record.cloned.tolist() == [100, 101] and record.born.tolist() == [103, 104]
    assert not state.rows[COUNT].any() and not state.rows[SUM].any()


def test_large_ones_are_split_in_two_drawn_from_them():
    quats = torch.nn.functional.normalize(torch.randn(400, 4, generator=torch.Generator().manual_seed(5)), dim=1)
    params = params_of([0.4] * 400, [0.5] * 400, quats.tolist())
    params.quats[:] = quats
    state, _ = state_of(params, cap=10_000)
    set_statistic(state, [3e-4] * 399 + [0.0])
    before = {name: state.rows[name].detach().clone() for name in PARAM_GROUPS}
    record = densify(state)
    assert (record.event.cloned, record.event.split, record.event.pruned, record.event.count) == (0, 399, 0, 799)
    assert state.rows["uids"][0] == 499 and record.split.tolist() == list(range(100, 499))
    children = {name: state.rows[name].detach()[1:] for name in PARAM_GROUPS}
    assert torch.exp(children["log_scales"]).max() == pytest.approx(0.4 / 1.6)
    for name in ("quats", "logit_opacities", "sh0", "shN"):
        assert torch.equal(children[name], before[name][:399].repeat(2, *[1] * (children[name].dim() - 1)))
    # back in the frame of each parent the offsets have its standard deviations
    offset = children["means"] - before["means"][:399].repeat(2, 1)
    inverse = quats[:399].repeat(2, 1) * torch.tensor([1.0, -1, -1, -1])
    spread = rotate(inverse, offset).std(dim=0)
    assert spread.tolist() == pytest.approx([0.4, 0.2, 0.2], rel=0.1)
    assert rotate(inverse, offset).mean(dim=0).abs().max() < 0.05
    assert state.lineage.parent(int(state.rows["uids"][1])) == 100


def test_rotate_is_the_rotation_of_the_quaternion():
    half = math.sqrt(0.5)  # 90 degrees about z takes x to y
    turned = rotate(torch.tensor([[half, 0, 0, half]]), torch.tensor([[1.0, 0, 0]]))
    assert turned[0].tolist() == pytest.approx([0, 1, 0], abs=1e-6)


def test_transparent_ones_are_pruned_after_the_births_of_the_same_event():
    state, _ = state_of(params_of([0.005] * 4, [0.5, 0.0049, 0.0051, 0.004]))
    set_statistic(state, [0.0, 0.0, 0.0, 1.0])
    record = densify(state)
    # the last is cloned, then it and its copy are pruned with the second
    assert (record.event.cloned, record.event.pruned, record.event.count) == (1, 3, 2)
    assert state.rows["uids"].tolist() == [100, 102]
    assert record.pruned.tolist() == [101, 103, 104]


def test_F02_world_size_prunes_only_after_the_first_reset_and_screen_size_only_on_demand():
    sizes = [0.09, 0.11, 0.02]
    for after_reset, expected in ((False, [100, 101, 102]), (True, [100, 102])):
        state, _ = state_of(params_of(sizes, [0.5] * 3))
        state.rows.put(RADIUS, torch.tensor([500.0, 1.0, 500.0]))
        densify(state, after_reset=after_reset)
        assert state.rows["uids"].tolist() == expected
    assert DensifyConfig().prune_screen is False


def test_F01_one_gaussian_of_500_px_is_pruned_by_the_screen_option():
    state, _ = state_of(params_of([0.005, 0.005], [0.5] * 2))
    set_statistic(state, [1.0, 1.0])  # both are cloned in the same event, which must not wash out the radii
    state.rows.put(RADIUS, torch.tensor([500.0, 19.0]))
    record = densify(state, DensifyConfig(prune_screen=True), after_reset=True)
    assert record.event.cloned == 2 and record.pruned.tolist() == [100]
    assert state.rows["uids"].tolist() == [101, 102, 103]


def test_children_of_a_split_are_judged_by_their_own_size():
    state, _ = state_of(params_of([0.15, 0.17], [0.5] * 2))
    set_statistic(state, [1.0, 1.0])
    record = densify(state, after_reset=True)  # 0.15/1.6 fits under 0.1, 0.17/1.6 does not
    assert (record.event.split, record.event.pruned, record.event.count) == (2, 2, 2)
    assert {state.lineage.parent(uid) for uid in state.rows["uids"].tolist()} == {100}


def test_F03_pruning_never_leaves_nothing():
    state, said = state_of(params_of([0.005] * 3, [0.001, 0.003, 0.002]))
    record = densify(state)
    assert state.rows["uids"].tolist() == [101] and record.event.count == 1
    assert any("every Gaussian" in text for text in said)


def test_F11_the_cap_is_never_exceeded_and_the_largest_statistics_grow_first():
    state, said = state_of(params_of([0.005, 0.4, 0.005, 0.4], [0.5] * 4), cap=6)
    set_statistic(state, [3e-4, 9e-4, 8e-4, 4e-4])
    record = densify(state)
    assert record.cloned.tolist() == [102] and record.split.tolist() == [101]
    assert len(state.rows) == 6 and any("cap of 6" in text for text in said)
    set_statistic(state, [1.0] * 6)
    assert densify(state).event.count == 6
    state.cap = 3
    set_statistic(state, [1.0] * 6)
    assert densify(state).event.cloned == 0


def test_F12_nothing_seen_is_skipped_with_a_warning():
    state, said = state_of(params_of([0.005] * 2, [0.5] * 2))
    record = densify(state)
    assert record.event.count == 2 and any("No view has seen" in text for text in said)


def test_F08_all_arrays_have_the_same_rows_after_every_densify():
    state, _ = state_of(params_of([0.005, 0.4, 0.005], [0.5, 0.5, 0.001]))
    for _ in range(4):
        set_statistic(state, [1.0] * len(state.rows))
        densify(state, DensifyConfig(prune_opacity=0.01))
        assert {state.rows[name].shape[0] for name in state.rows} == {len(state.rows.params)}
        assert len(set(state.rows["uids"].tolist())) == len(state.rows)


def test_record_has_the_histogram_that_decided():
    state, _ = state_of(params_of([0.005] * 4, [0.5] * 4))
    set_statistic(state, [3e-4, 1e-5, 1e-3, 0.0], [1.0, 1.0, 2.0, 0.0])
    histogram = densify(state).histogram
    assert histogram is not None and histogram.counts.sum() == 3 and histogram.never_seen == 0.25
    above = histogram.counts[histogram.edges[:-1] >= histogram.threshold * 0.999].sum()
    assert above == 2 and histogram.threshold == 2e-4 and "signed sum" in histogram.label


# ------------------------------------------------------------------ reset, and when

def test_reset_lowers_opacities_and_forgets_their_moments():
    state, _ = state_of(params_of([0.1] * 3, [0.9, 0.011, 0.006]))
    for moment in state.optimizer.moments("logit_opacities"):
        moment.fill_(1.0)
    state.optimizer.moments("means")[0].fill_(1.0)
    record = reset_opacities(state, 3000, TrainConfig())
    assert torch.sigmoid(state.rows["logit_opacities"].detach()).tolist() == pytest.approx([0.01, 0.01, 0.006])
    assert (record.event.reset, record.event.count) == (2, 3)
    assert not any(moment.any() for moment in state.optimizer.moments("logit_opacities"))
    assert state.optimizer.moments("means")[0].all()


def test_N26_reset_value_is_at_least_twice_the_cutoff():
    assert DensifyConfig().reset_opacity >= 2 * TrainConfig().raster.cutoff
    state, said = state_of(params_of([0.1], [0.9]))
    reset_opacities(state, 1, TrainConfig(densify=DensifyConfig(reset_opacity=0.004)))
    assert torch.sigmoid(state.rows["logit_opacities"].detach()).item() == pytest.approx(2 / 255)
    assert any("twice the alpha cutoff" in text for text in said)


def test_a_cutoff_of_more_than_a_half_still_leaves_an_opacity_to_reset_to():
    state, _ = state_of(params_of([0.1], [0.999]))
    reset_opacities(state, 1, TrainConfig(raster=RasterConfig(cutoff=0.6)))
    assert torch.sigmoid(state.rows["logit_opacities"].detach()).item() == pytest.approx(0.99)


def test_hooks_act_when_the_schedule_says():
    config = TrainConfig()
    state, _ = state_of(params_of([0.005] * 2, [0.5] * 2))
    adc = AdaptiveDensityControl()
    set_statistic(state, [1.0, 0.0])
    schedule = Schedule(length=30000, start=500, stop=15000, every=100, reset_every=3000, sh_every=1000)
    assert adc.after_step(state, 500, config, schedule) is None
    assert adc.after_step(state, 650, config, schedule) is None
    record = adc.after_step(state, 600, config, schedule)
    assert record is not None and record.event.cloned == 1
    both = adc.after_step(state, 3000, config, schedule)
    assert both is not None and both.event.reset == 3 and both.histogram is not None
    assert adc.after_step(state, 15100, config, schedule) is None
    assert NoDensification().after_step(state, 600, config, EVERY_STEP) is None


def test_ancestors_of_what_there_never_was_are_none():
    lineage = Lineage(np.arange(3))
    lineage.give_birth(np.array([2]), 5)
    assert lineage.ancestors(np.array([3, 1]), 3).tolist() == [2, 1]
    assert lineage.ancestors(np.array([3, 1, -7]), -6).tolist() == [-1, -1, -7]
