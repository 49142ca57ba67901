"""Per-Gaussian quantities, the histogram and the card of one Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training import probes
from app.training.trainer import Trainer
from tests.training.tiny import make_params, make_scene


@pytest.fixture
def trained() -> Trainer:
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, schedule_iterations=30000,
                                                densify=DensifyConfig(strategy="none", absgrad=True)),
                      backend="cpu")
    for _ in range(7):
        trainer.step()
    return trainer


def test_every_quantity_reads_one_finite_number_per_gaussian_once_trained(trained):
    for name, probe in probes.PROBES.items():
        reading = probes.read(trained, name, trained.views[0].camera)
        if name == "shN_grad" or name.startswith("lab_"):   # no band but the first is in use yet; nothing was compared
            assert reading is None
            continue
        assert reading is not None and reading.values.shape == reading.unseen.shape == (60,), name
        assert torch.isfinite(reading.values).all() and reading.unseen.dtype == torch.bool
        assert probe.label and (probe.signed or reading.values.min() >= 0)
    assert {q.name for q in probes.quantities()} == set(probes.PROBES)
    with pytest.raises(ValueError, match="no quantity 'x'; choose one of mean2d_grad"):
        probes.read(trained, "x")


def test_before_the_first_step_there_is_no_gradient_and_nothing_was_seen():
    trainer = Trainer(make_scene(), TrainConfig(iterations=60), backend="cpu")
    assert probes.read(trainer, "mean2d_grad") is None
    assert probes.read(trainer, "mean2d_grad_average").unseen.all()
    assert probes.read(trainer, "opacity").values.tolist() == pytest.approx([0.1] * 60)
    assert probes.histogram(trainer).never_seen == 1.0


def test_numbers_shown_are_those_the_optimiser_uses(trained):
    camera, tap = trained.last_camera, trained.tap
    expected = np.hypot(*(tap.v_means2d.numpy() * [camera.width / 2, camera.height / 2]).T)
    assert probes.read(trained, "mean2d_grad").values.numpy() == pytest.approx(expected, rel=1e-5)
    assert expected.max() > 0
    average = probes.read(trained, "mean2d_grad_average").values
    assert torch.equal(average, trained.statistics.average(True))
    assert torch.equal(probes.read(trained, "opacity_grad").values, tap.v_opacities)


def test_F09_labels_say_which_gradient_and_absolute_is_never_less(trained):
    assert "signed sum" in probes.PROBES["mean2d_grad"].label
    assert "sum of absolutes" in probes.PROBES["mean2d_grad_abs"].label
    assert "abs-norm" in probes.PROBES["means_grad"].label
    signed, absolute = (probes.read(trained, name).values for name in ("mean2d_grad", "mean2d_grad_abs"))
    assert absolute.max() > 0 and (absolute >= signed * (1 - 1e-4)).all()
    label = probes.histogram(trained).label
    assert "sum of absolutes" in label
    trained.set_option("densify.absgrad", False)
    assert "signed sum" in probes.histogram(trained).label
    assert probes.histogram(trained).threshold == DensifyConfig().grad_threshold


def test_F17_never_seen_is_told_apart_from_a_gradient_of_zero():
    params = make_params(20)
    params.means[:5] += 1000.0   # no camera sees these
    trainer = Trainer(make_scene(), TrainConfig(iterations=60, densify=DensifyConfig(strategy="none")),
                      backend="cpu", params=params)
    for _ in range(6):
        trainer.step()
    reading = probes.read(trainer, "mean2d_grad_average")
    assert reading.unseen[:5].all() and not reading.unseen[5:].all()
    assert probes.histogram(trainer).never_seen >= 0.25
    assert probes.summary(trainer)["never_seen"] >= 5
    assert probes.read(trainer, "mean2d_grad").unseen[:5].all()


def test_histogram_counts_every_gaussian_that_was_seen(trained):
    histogram = probes.histogram(trained)
    seen = int((~trained.statistics.never_seen).sum())
    assert histogram.counts.sum() == seen and len(histogram.edges) == len(histogram.counts) + 1
    above = int((trained.statistics.average(True) >= histogram.threshold).sum())
    assert abs(int(histogram.counts[histogram.edges[:-1] >= histogram.threshold * 0.999].sum()) - above) <= 1


def test_a_histogram_says_of_which_event_it_is_until_half_the_views_were_seen_again():
    trainer = Trainer(make_scene(), TrainConfig(iterations=600, densify=DensifyConfig(grad_threshold=1e-6)), backend="cpu")
    for _ in range(6):
        trainer.step()
    assert probes.histogram(trainer).found is None
    trainer.densify_now()
    told = probes.histogram(trainer)
    assert told.found == 6 and told.label == "mean |∂L/∂mean2D|, signed sum, per half image" and told.counts.sum() > 0
    for _ in range(len(trainer.views)):
        trainer.step()
    assert probes.histogram(trainer).found is None


def test_report_of_one_gaussian_is_complete_and_survives_densification(trained):
    index = int(probes.read(trained, "mean2d_grad").values.argmax())
    report = probes.gaussian_report(trained, index, trained.views[0].camera)
    assert report.uid == int(trained.params.uids[index]) and report.parent is None
    assert set(report.parameters) == {"means", "quats", "log_scales", "logit_opacities", "sh0", "shN"}
    taps = {"v_means2d", "v_abs_means2d", "v_conics", "v_colors", "v_opacities"}
    assert taps | {"means", "sh0"} <= set(report.gradients)
    assert np.abs(report.gradients["v_means2d"]).max() > 0
    assert report.parameters["means"] == pytest.approx(trained.params.means[index].detach().numpy())
    assert np.linalg.norm(report.activated["quat"]) == pytest.approx(1.0)
    assert report.statistics["densify_threshold"] == DensifyConfig().absgrad_threshold
    assert report.statistics["views_seen"] >= 1
    assert report.ellipse.shape == (5,)
    kept = report.parameters["means"].copy()
    trained.step()
    assert np.array_equal(report.parameters["means"], kept)   # a copy
    with pytest.raises(IndexError, match="there is no Gaussian 60"):
        probes.gaussian_report(trained, 60, trained.views[0].camera)
