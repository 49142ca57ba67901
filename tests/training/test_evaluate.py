"""Held-out views measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training import evaluate as evaluate_module
from app.training.evaluate import evaluate, evaluation_job, find_lpips
from app.training.trainer import Trainer
from app.training.verdict import psnr_of
from tests.training.tiny import make_params, make_scene


def test_psnr_is_that_of_the_rendered_picture_and_ssim_of_identical_pictures_is_one():
    scene = make_scene(6, 40, test_every=3)
    truth = Trainer(scene, TrainConfig(iterations=5, sh_degree=1), backend="cpu", params=make_params(40, 0))
    scored = evaluate(truth)
    assert [view.name for view in scored.views] == ["view0.png", "view3.png"]
    assert scored.psnr > 55 and scored.ssim == pytest.approx(1.0, abs=1e-3)   # 8-bit rounding is all there is
    other = Trainer(scene, TrainConfig(iterations=5), backend="cpu")
    view = scene.test[0]
    picture = other.render(view.camera).colors.clamp(0, 1).numpy()
    mse = np.mean((picture - view.load().astype(np.float64) / 255) ** 2)
    assert evaluate(other).views[0].psnr == pytest.approx(-10 * math.log10(mse), abs=1e-3)
    assert scored.psnr > evaluate(other).psnr


def test_job_yields_between_views_and_changes_nothing():
    trainer = Trainer(make_scene(6, test_every=2), TrainConfig(iterations=5, densify=DensifyConfig(strategy="none")),
                      backend="cpu")
    trainer.step()
    means = trainer.params.means.detach().clone()
    job = evaluation_job(trainer, trainer.scene.test)
    fractions = []
    with pytest.raises(StopIteration) as end:
        while True:
            fractions.append(next(job)[0])
    assert fractions == sorted(fractions) and len(fractions) == 6 and fractions[0] >= 0 and fractions[-1] < 1
    assert end.value.value.iteration == 1 and torch.equal(trainer.params.means.detach(), means)


def test_no_views_is_nan_not_zero():
    trainer = Trainer(make_scene(), TrainConfig(iterations=5), backend="cpu")
    scored = evaluate(trainer)
    assert math.isnan(scored.psnr) and math.isnan(scored.ssim) and scored.lpips is None


def test_lpips_is_null_with_the_reason_where_package_or_weights_are_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lpips", None)   # import fails
    assert find_lpips() == (None, "the package lpips is not installed")
    monkeypatch.setitem(__import__("sys").modules, "lpips", object())
    monkeypatch.setattr(torch.hub, "get_dir", lambda: "nowhere")
    metric, reason = find_lpips()
    assert metric is None and evaluate_module.LPIPS_BACKBONE in reason


def test_psnr_of_known_errors():
    assert psnr_of(0.01) == pytest.approx(20.0) and psnr_of(1.0) == 0.0 and math.isfinite(psnr_of(0.0))
