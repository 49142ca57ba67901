"""Quantities of every Gaussian against their definitions, and the instruments that read them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.engine.model import Model
from app.inspection.quantities import histogram, summary, table
from app.inspection.questions import HistogramQuestion, Sight, SummaryQuestion, TableQuestion, Unanswerable
from app.training.marks import FROZEN, SELECTED
from app.training.probes import PROBES, Unreadable, quantities, read
from app.training.trainer import Trainer
from render.reference.pixel import pixel_contributions
from tests.training.tiny import make_params, make_scene

CONFIG = TrainConfig(iterations=100, schedule_iterations=30_000, densify=DensifyConfig(strategy="none"))


@pytest.fixture
def model() -> Model:
    trainer = Trainer(make_scene(4, size=32), CONFIG, backend="cpu")
    for _ in range(4):
        trainer.step()
    return Model("tiny", trainer, trainer.scene)


def test_the_contribution_is_the_sum_of_weights_over_all_pixels(model):
    camera = model.scene.views[0].camera
    output = model.render(camera)
    expected = np.zeros(len(model.params))
    for y in range(camera.height):
        for x in range(camera.width):
            found = pixel_contributions(output.projected, output.splat_colors, output.splat_opacities, output.bins, camera,
                                        model.background, model.options.raster, x, y)
            np.add.at(expected, found.ids.numpy(), found.weights.numpy())
    reading = model.reading("contribution", camera)
    assert expected.max() > 1
    assert reading.values.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert reading.values.sum() == pytest.approx(float((1 - output.transmittances).sum()), rel=1e-4)
    assert (reading.unseen == (output.projected.extents[:, 0] == 0)).all()
    with pytest.raises(Unreadable, match="belongs to a view"):
        model.reading("contribution")


def test_gradients_are_those_that_adam_gets_and_its_update_is_what_moved_the_parameters(model):
    trainer = model.trainer
    before = {name: tensor.detach().clone() for name, tensor in trainer.params.trained().items()}
    trainer.step()
    model.moved()
    gradients = trainer.gradients()
    for group in ("log_scales", "quats", "sh0", "means"):
        name, expected = f"{group}_grad", np.linalg.norm(gradients[group].reshape(len(before["means"]), -1).numpy(), axis=1)
        assert model.reading(name).values.numpy() == pytest.approx(expected, rel=1e-5) and expected.max() > 0
    assert torch.equal(model.reading("logit_opacity_grad").values, gradients["logit_opacities"])
    assert model.reading("size_grad").values.numpy() == pytest.approx(gradients["log_scales"].numpy().sum(1), abs=1e-9)
    for group in ("means", "log_scales", "quats", "sh0"):
        moved = (trainer.params.trained()[group].detach() - before[group]).reshape(len(before["means"]), -1)
        reading = model.reading(f"adam_{group}")
        assert reading.values.numpy() == pytest.approx(np.linalg.norm(moved.numpy(), axis=1), rel=1e-3, abs=1e-6)
        assert reading.values.max() > 0
    moved = trainer.params.logit_opacities.detach() - before["logit_opacities"]
    assert model.reading("adam_logit_opacities").values.numpy() == pytest.approx(moved.numpy(), rel=1e-3, abs=1e-6)


def test_states_against_their_definitions(model):
    trainer, config = model.trainer, model.options.densify
    scales = model.gaussians().scales.numpy()
    assert model.reading("anisotropy").values.numpy() == pytest.approx(scales.max(1) / scales.min(1), rel=1e-5)
    statistic = trainer.statistics.average(config.absgrad).numpy()
    expected = np.log10(np.maximum(statistic / config.grad_threshold, 1e-4))
    assert model.reading("threshold_distance").values.numpy() == pytest.approx(expected, abs=1e-4)
    with torch.no_grad():
        trainer.params.sh0[0] = -10.0
        trainer.params.sh0[1] = torch.tensor([-10.0, 0.0, 0.0])
    trainer.edited()
    model.moved()
    dead = model.reading("dead_color", model.scene.views[0].camera)
    assert dead.values[:2].tolist() == [3.0, 1.0] and not dead.unseen[:2].any()
    with torch.no_grad():
        trainer.params.means[2] = torch.tensor([0.0, 0.0, 0.0])
        trainer.params.logit_opacities[2] = -12.0   # too faint to touch a pixel: seen by none
        trainer.params.sh0[3] = -30.0
    trainer.edited()
    trainer.statistics.clear()
    for _ in range(3):
        trainer.step()
    model.moved()
    silent = model.reading("zero_gradient")
    never = trainer.statistics.never_seen
    assert torch.equal(silent.unseen, never)
    assert ((silent.values > 0) == trainer.statistics.visible_without_gradient).all()


def test_every_quantity_says_what_it_is():
    for probe in PROBES.values():
        assert probe.label and probe.help.endswith((".", "1.", "0.")) and not (probe.signed and probe.log)
    still = {q.name for q in quantities(trained=False)}
    assert {"opacity", "anisotropy", "contribution", "dead_color"} <= still and "mean2d_grad" not in still
    params = make_params(6)
    ply = Model("ply", fixed_params=params, fixed_backend="cpu")
    assert ply.reading("largest_scale").values.shape == (6,)
    with pytest.raises(Unreadable, match="A PLY has no age"):
        ply.reading("age")


def test_a_histogram_counts_each_gaussian_once_and_a_range_of_bins_holds_what_it_says(model):
    model.set_mark(SELECTED, np.arange(len(model.params)) < 10)
    for name in ("opacity", "largest_scale", "mean2d_grad_average", "opacity_grad", "age"):
        found = histogram(model, HistogramQuestion(name, bins=16))
        reading = model.reading(name)
        values = reading.values[~reading.unseen].numpy()
        assert found.counts.sum() == len(values) == found.total - found.unseen and found.selected.sum() <= 10
        assert (found.selected <= found.counts).all() and found.log == (PROBES[name].log and not PROBES[name].signed)
        assert found.low == pytest.approx(values.min()) and found.high == pytest.approx(values.max())
        lo, hi = found.edges[5], found.edges[9]
        assert abs(int(((values >= lo) & (values < hi)).sum()) - int(found.counts[5:9].sum())) <= 1   # rounding at an edge
    assert histogram(model, HistogramQuestion("opacity_grad")).edges[0] == -histogram(
        model, HistogramQuestion("opacity_grad")).edges[-1]
    assert not histogram(model, HistogramQuestion("largest_scale", log=False)).log


def test_the_table_is_in_order_and_its_columns_are_of_its_rows(model):
    values = model.reading("opacity_grad").values.numpy()
    known = ~model.reading("opacity_grad").unseen.numpy()
    for order, key in (("largest", -values), ("smallest", values), ("largest absolute", -np.abs(values))):
        found = table(model, TableQuestion("opacity_grad", ("opacity", "opacity_grad", "lab_means"), order, 7))
        best = np.flatnonzero(known)[np.argsort(key[known], kind="stable")[:7]]
        assert found.uids.tolist() == model.params.uids.numpy()[best].tolist() and found.total == known.sum()
        assert [c.quantity for c in found.columns] == ["opacity_grad", "opacity"]
        assert np.array_equal(found.columns[1].values, model.reading("opacity").values.numpy()[best])
    with pytest.raises(Unanswerable, match="Nothing is selected"):
        table(model, TableQuestion("opacity", selected_only=True))
    model.set_mark(SELECTED, model.params.uids.numpy() == 5)
    assert table(model, TableQuestion("opacity", selected_only=True)).uids.tolist() == [5]


def test_the_card_of_a_selection_adds_up(model):
    with pytest.raises(Unanswerable):
        summary(model, SummaryQuestion(("opacity",)))
    mask = np.arange(len(model.params)) % 3 == 0
    model.set_mark(SELECTED, mask)
    model.set_mark(FROZEN, np.arange(len(model.params)) == 3)
    sight = Sight.of(model.scene.views[0].camera)
    found = summary(model, SummaryQuestion(("opacity", "lab_means", "contribution"), sight))
    assert found.count == mask.sum() and found.frozen == 1 and found.born == 0 and found.roots == found.count
    opacity = model.reading("opacity").values.numpy()[mask].astype(np.float64)
    row = found.rows[0]
    expected = (opacity.sum(), opacity.mean(), opacity.min(), opacity.max())
    assert (row.sum, row.mean, row.low, row.high) == pytest.approx(expected)
    assert row.high_uid == model.params.uids.numpy()[mask][opacity.argmax()]
    assert [r.quantity for r in found.rows] == ["opacity", "contribution"] and math.isfinite(found.rows[1].sum)


def test_lineage_of_a_selection_after_a_densification():
    trainer = Trainer(make_scene(), replace(CONFIG, densify=DensifyConfig(grad_threshold=1e-9)), backend="cpu",
                      params=make_params(20))
    trainer.step()
    model = Model("tiny", trainer, trainer.scene)
    model.set_mark(SELECTED, np.arange(20) < 5)
    trainer.strategy.densify(trainer.state, 1, trainer.config.densify, after_reset=False)
    trainer.edited()
    model.moved()
    found = summary(model, SummaryQuestion(("opacity",)))
    assert found.roots <= 5 < found.count and found.born >= found.count - 5
    assert set(read(trainer, "age").values.tolist()) <= {0.0, 1.0}
