"""Pictures with their legend and the losses of all views, from the window's side of the engine."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from PIL import Image

from app import messages as m
from app.engine.pictures import STRIP, with_legend
from app.inspection.losses import as_csv
from app.training.evaluate import evaluate
from app.training.trainer import Trainer
from tests.app.engine_doubles import request_for, running_engine


@pytest.mark.parametrize("mode", ["color", "depth", "difference", "heatmap"])
def test_a_saved_picture_is_the_shown_one_with_its_legend(tmp_path, mode):
    """G29: drawn by the engine, whole, whatever detail the window shows."""
    path = tmp_path / "ä b.png"
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        request = request_for(window, mode=mode, view_index=0, width=160, height=120)
        shown = window.frame_of(window.look(request), refined=True)
        window.send(m.SavePicture(str(path), request))
        window.until(lambda: any("Saved" in e.text for e in window.of(m.Notice)))
    image = np.asarray(Image.open(path))
    assert image.shape == (120 + (STRIP if shown.legend is not None else 0), 160, 3)
    apart = np.abs(image[:120] / 255.0 - shown.rgba[..., :3])
    assert apart.max() < 0.05 and apart.mean() < 0.003 and image[:120].max() > 60   # a step of the colour map by rounding
    if shown.legend is not None:
        assert image[120 + 8:120 + 18, 10:90].std() > 10   # the colour bar


def test_a_picture_that_cannot_be_written_is_a_sentence(tmp_path):
    with running_engine(make_trainer=Trainer) as window:
        window.send(m.SavePicture(str(tmp_path / "a.png"), None))   # type: ignore[arg-type]
        window.until(lambda: any("nothing to save" in e.text for e in window.of(m.Notice)))
        window.open()
        window.send(m.SavePicture(str(tmp_path), request_for(window)))
        window.until(lambda: any("is a folder" in e.text for e in window.of(m.Notice)))
        window.send(m.SavePicture(str(tmp_path / "a.png"), request_for(window, width=9000)))
        window.until(lambda: any("at most 8192 px" in e.text for e in window.of(m.Notice)))
        assert not window.of(m.EngineFailed) and not list(tmp_path.iterdir())


def test_a_narrow_picture_and_a_logarithmic_legend_are_drawn():
    image = with_legend(np.full((20, 90, 3), 0.5, np.float32), m.Legend("|dL/dmean2D|", "per half image", 1e-6, 1e-2, "viridis",
                                                                        True))
    assert image.size == (90, 20 + STRIP)


def test_losses_of_all_views_are_those_of_evaluation_and_training():
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        window.send(m.MeasureViews())
        window.until(lambda: window.of(m.ViewsMeasured))
        found = window.of(m.ViewsMeasured)[0]
        views = window.opened.views
        assert [row.name for row in found.views] == [view.name for view in views]
        model = window.engine.model
        assert model is not None and model.trainer is not None and found.iteration == model.iteration
        want = {view.name: view for view in evaluate(model.trainer).views}
        for row in found.views:
            assert row.split == views[row.index].split and row.loss > 0
            if row.split == "test":
                assert row.psnr == pytest.approx(want[row.name].psnr, rel=1e-5)
                assert row.loss == pytest.approx(0.8 * row.l1 + 0.2 * (1 - row.ssim), rel=1e-5)
        text = as_csv(found.iteration, found.views).decode()
        lines = list(csv.DictReader(io.StringIO(text)))
        assert len(lines) == len(views) and float(lines[0]["loss"]) == pytest.approx(found.views[0].loss, rel=1e-6)
