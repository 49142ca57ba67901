"""What the window knows, and the pure helpers of its panels."""

from __future__ import annotations

import json
import math
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.curves import decimate
from app.gui import formatting, layout, overlay
from app.gui.callbacks import run_jobs
from app.gui.fields import BY_PATH, RASTER_FIELDS, SLIDER_STEPS
from app.gui.heartbeat import STALL_SECONDS, Heartbeat
from app.gui.panels.plots import POINTS, smoothed
from app.gui.preferences import Preferences
from app.gui.resolution import MAX_HEIGHT, MAX_WIDTH, MOVING_PIXELS, AdaptiveResolution
from app.gui.textures import RUNGS, SIDE_LIMIT, checked
from app.gui.trace import Trace
from app.gui.view_model import NOTICE_SECONDS, ViewModel
from app.mailbox import Latest
from app.options import flatten
from render.config import RasterConfig
from tests.gui.fake_engine import ring_of_views, scene

FRAME = m.Frame(np.zeros((4, 4, 4), np.float32), ring_of_views(1)[0].camera, "color")


# ------------------------------------------------------------------------------------------- reduction
def test_scene_clears_what_belonged_to_the_old_one() -> None:
    model = ViewModel()
    model.apply(m.Densified(100, 1, 2, 3), 0.0)
    model.observe(m.Snapshot("running", 120, 1000, frame=FRAME, curves={"loss": m.Curve(np.arange(3), np.arange(3))}))
    model.apply(m.Evaluated(100, 20.0, 0.5), 0.0)
    model.apply(scene(), 1.0)
    assert model.frame is None and model.curves == {} and model.densified == [] and model.evaluated is None
    assert model.totals.cloned == 0


def test_parts_left_out_keep_their_last_value() -> None:
    model = ViewModel()
    curves = {"loss": m.Curve(np.arange(3), np.arange(3))}
    model.observe(m.Snapshot("running", 1, 10, frame=FRAME, curves=curves))
    version = model.curves_version
    model.observe(m.Snapshot("running", 2, 10, curves=curves))
    assert model.frame is FRAME and model.curves_version == version


def test_reset_forgets_the_abandoned_future() -> None:
    model = ViewModel()
    for i in (100, 200, 300):
        model.observe(m.Snapshot("running", i, 1000))
        model.apply(m.Densified(i, cloned=10, split=5, pruned=2), 0.0)
    assert (model.totals.cloned, model.totals.split, model.totals.pruned, model.totals.events) == (30, 15, 6, 3)
    model.observe(m.Snapshot("paused", 0, 1000))
    assert model.densified == [] and model.totals.cloned == 0


def test_totals_count_events_that_the_table_no_longer_holds() -> None:
    model = ViewModel()
    for i in range(700):
        model.apply(m.Densified(i + 1, cloned=1), 0.0)
    assert model.totals.cloned == 700 and len(model.densified) == 500


def test_notices_leave_but_errors_stay() -> None:
    model = ViewModel()
    model.apply(m.Notice("hello"), 0.0)
    model.apply(m.Notice("trouble", "error"), 0.0)
    model.apply(m.Notice("hello"), 1.0)
    assert [n.text for n in model.visible_notices(1.0)] == ["hello", "trouble"]
    later = model.visible_notices(NOTICE_SECONDS + 2)
    assert [n.text for n in later] == ["trouble"]
    later[0].dismissed = True
    assert model.visible_notices(NOTICE_SECONDS + 2) == []


def test_failure_is_kept_until_training_goes_on() -> None:
    model = ViewModel()
    model.apply(m.EngineFailed("Division by zero", "Traceback ..."), 0.0)
    model.observe(m.Snapshot("failed", 5, 10))
    assert model.failure is not None and model.visible_notices(100.0)[0].level == "error"
    model.observe(m.Snapshot("running", 6, 10))
    assert model.failure is None


def test_job_progress_shows_where_the_picture_will_be() -> None:
    model = ViewModel()
    assert model.empty_text is not None and "Open" in model.empty_text[1]
    model.apply(m.JobProgress("loading images", 0.4, "10 of 25"), 0.0)
    assert model.empty_text == ("Loading images", "10 of 25   40%")
    model.apply(m.JobProgress("loading images", 1.0, done=True), 0.0)
    assert model.job is None


def test_progress_and_eta() -> None:
    model = ViewModel()
    model.apply(scene(), 0.0)
    model.observe(m.Snapshot("running", 250, 1000, steps_per_second=50.0))
    assert model.fraction == 0.25 and model.eta == 15.0
    assert model.progress_texts == ("250 / 1 000   15 s left", "250 / 1 000", "25%")
    model.observe(m.Snapshot("paused", 250, 1000, steps_per_second=50.0))
    assert math.isnan(model.eta) and model.progress_texts[0] == "250 / 1 000"
    assert model.can_train
    model.apply(replace(scene(), trainable=False), 0.0)
    assert not model.can_train


def test_threshold_follows_the_statistic() -> None:
    """F09: which threshold the line in the histogram moves depends on the mode."""
    model = ViewModel()
    model.apply(m.ConfigChanged({"densify.absgrad": False}), 0.0)
    assert model.threshold_path() == "densify.grad_threshold"
    model.apply(m.ConfigChanged({"densify.absgrad": True}), 0.0)
    assert model.threshold_path() == "densify.absgrad_threshold"


# ------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (float("nan"), "–"), (1.0, "1.00"), (0.0123456, "0.0123"), (2e-4, "2.00e-4"), (1234.5, "1234"),
    (123456.0, "1.23e5"), (-0.5, "-0.500"), (math.inf, "∞")])
def test_number(value: float, text: str) -> None:
    assert formatting.number(value) == text


def test_other_formats() -> None:
    assert formatting.count(1234567) == "1 234 567"
    assert formatting.chip("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz") == "Intel Xeon E5-2680 v4"
    assert formatting.chip("AMD EPYC 7B13 64-Core Processor") == "AMD EPYC 7B13 64-Core" and formatting.chip("H200") == "H200"
    assert formatting.size(1536) == "2 KiB" and formatting.size(3 << 20) == "3.0 MiB" and formatting.size(5 << 30) == "5.0 GiB"
    assert [formatting.duration(s) for s in (5, 200, 7500, math.nan)] == ["5 s", "3 min 20 s", "2 h 05 min", "–"]
    assert [formatting.rate(r) for r in (0.25, 12.34, 345.6, 0.0)] == ["4.0 s/it", "12.3 it/s", "346 it/s", "–"]


# ------------------------------------------------------------------------------------------- fields
def test_every_configuration_field_has_a_control_with_a_tooltip() -> None:
    """Sliders, tooltips and the engine's option names come from one place."""
    assert set(BY_PATH) == set(flatten(TrainConfig()))
    assert {f.path for f in RASTER_FIELDS} == {f"raster.{f.name}" for f in fields(RasterConfig)}
    for spec in BY_PATH.values():
        assert spec.help and spec.help in spec.tooltip
        assert ("next step" in spec.tooltip) == spec.live
    assert BY_PATH["densify.grad_threshold"].default == DensifyConfig().grad_threshold


@pytest.mark.parametrize("path", [p for p, s in BY_PATH.items() if s.has_slider])
def test_sliders_cover_their_range_and_return(path: str) -> None:
    spec = BY_PATH[path]
    assert spec.from_slider(0) == pytest.approx(spec.lo) and spec.from_slider(SLIDER_STEPS) == pytest.approx(spec.hi, rel=1e-3)
    for position in range(0, SLIDER_STEPS + 1, 50):
        value = spec.from_slider(position)
        assert spec.lo is not None and spec.hi is not None and spec.lo * 0.999 <= value <= spec.hi * 1.001
        if spec.kind == "float":
            assert abs(spec.to_slider(value) - position) <= 1


def test_typed_values_are_checked() -> None:
    spec = BY_PATH["means_lr"]
    assert spec.parse("1e-4") == 1e-4 and spec.parse("5") == spec.hi
    for text in ("abc", "nan", ""):
        with pytest.raises(ValueError, match="means_lr"):
            spec.parse(text)
    assert BY_PATH["iterations"].parse("2 000") == 2000


# ------------------------------------------------------------------------------------------- layout
@given(st.integers(640, 4000), st.integers(480, 2400), st.floats(1.0, 2.0), st.booleans(), st.booleans(),
       st.integers(0, 900), st.integers(0, 900), st.integers(0, 900))
def test_layout_tiles_the_window(width: int, height: int, scale: float, inspector: bool, plots: bool, left: int, right: int,
                                 bottom: int) -> None:
    """Nothing overlaps, nothing leaves the window sideways, the viewport always has room."""
    wanted = Preferences(show_inspector=inspector, show_plots=plots, left=left, right=right, bottom=bottom)
    got = layout.compute(width, height, scale, wanted)
    parts = [r for r in (got.top, got.left, got.view, got.bottom, got.right, got.status) if r.width > 0 and r.height > 0]
    for r in parts:
        assert r.x >= 0 and r.y >= 0 and r.x + r.width <= width
    for i, a in enumerate(parts):
        for b in parts[i + 1:]:
            apart = (a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y)
            assert apart, (a, b)
    assert got.view.width >= 16 and got.view.height >= 16
    if width >= 1280 and scale == 1.0:
        assert got.left.width >= layout.MIN_LEFT and (not inspector or got.right.width >= layout.MIN_RIGHT)


def test_splitters_move_the_boundaries() -> None:
    wanted = Preferences()
    got = layout.compute(1280, 720, 1.0, wanted)
    assert got.splitter_at(got.left.width + 2, 300) == "left" and got.splitter_at(640, 300) is None
    assert got.splitter_at(got.right.x - 2, 300) == "right" and got.splitter_at(640, got.bottom.y - 2) == "bottom"
    layout.drag("right", 1280 - 500, 0, got, wanted)
    assert layout.compute(1280, 720, 1.0, wanted).right.width == 500
    layout.drag("left", 5, 0, got, wanted)
    assert wanted.left == layout.MIN_LEFT


# ------------------------------------------------------------------------------------------- pictures
def test_G06_G25_only_sound_pictures_reach_the_toolkit() -> None:
    good = np.zeros((6, 8, 4), np.float32)
    assert checked(good) is good
    for bad in (good[:, :, :3], good[::-1], good.astype(np.uint8), good.astype(np.float64), np.zeros((0, 8, 4), np.float32)):
        with pytest.raises(ValueError, match="picture"):
            checked(bad)
    assert all(max(r) <= SIDE_LIMIT for r in RUNGS) and RUNGS[-1] == (MAX_WIDTH, MAX_HEIGHT)  # G12, G09


@given(st.integers(16, 5000), st.integers(16, 3000), st.floats(0.1, 500), st.booleans(), st.booleans())
def test_resolution_fits_the_ladder_and_the_area(width: int, height: int, ms: float, moving: bool, training: bool) -> None:
    adaptive = AdaptiveResolution()
    for _ in range(20):
        w, h = adaptive.choose(width, height, moving=moving, training=training)
        assert 16 <= w <= max(16, min(width, MAX_WIDTH)) and 16 <= h <= max(16, min(height, MAX_HEIGHT))
        adaptive.observe(ms * w * h / 1e6, w * h)
    if not moving and not training and width <= MAX_WIDTH and height <= MAX_HEIGHT:
        assert (w, h) == (width, height)
    if moving and min(width, height) > 100:
        assert w * h <= MOVING_PIXELS * 1.05 or w <= round(width * 0.31)


def test_resolution_settles_and_does_not_starve_for_nothing() -> None:
    """A cost that is mostly fixed (sorting, projecting) is not answered by ever smaller pictures."""
    fixed, slope = AdaptiveResolution(), AdaptiveResolution()
    for _ in range(60):
        w, h = fixed.choose(700, 430, moving=True, training=True)
        fixed.observe(60.0 + 1e-5 * w * h, w * h)
        v, u = slope.choose(700, 430, moving=True, training=True)
        slope.observe(6e-4 * v * u, v * u)
    assert w >= 0.5 * 700 * 0.79
    assert v * u * 6e-4 <= 30.0


def test_decimation_keeps_extremes() -> None:
    """G20: few points, and the one spike survives."""
    x = np.arange(100_000.0)
    y = np.sin(x / 1000)
    y[54_321], y[12_345] = 50.0, -50.0
    curve = decimate(x, y, POINTS)
    dx, dy = curve.x, curve.y
    assert len(dx) <= POINTS and dy.max() == 50.0 and dy.min() == -50.0 and (np.diff(dx) > 0).all()
    assert np.allclose(smoothed(np.full(500, 3.0)), 3.0) and len(smoothed(y)) == len(y)


# ------------------------------------------------------------------------------------------- overlay
def test_frustum_of_the_own_camera_frames_the_picture() -> None:
    camera = ring_of_views(3)[0].camera
    corners, z = overlay.project(overlay.frustum_corners(camera, 2.0)[1:], camera)
    assert np.allclose(z, 2.0)
    assert np.allclose(corners, [[0, 0], [320, 0], [320, 240], [0, 240]])
    assert overlay.frusta((camera,), camera, 0.5) == [], "the eye itself lies in no picture"


def test_frusta_and_axes_in_front_are_drawn() -> None:
    views = ring_of_views(24)
    camera = views[0].camera
    strokes = overlay.frusta(tuple(v.camera for v in views), camera, 0.4)
    assert 3 <= len(strokes) < 24 and all(np.isfinite(s).all() for _, s in strokes)
    x, y, z = overlay.axes(np.zeros(3), 1.0, camera)
    assert z is not None and z[1, 1] < z[0, 1], "world up points up in the picture"
    assert x is not None and y is not None


def test_ellipse_is_the_level_set() -> None:
    conic = np.array([100.0, 50.0, 0.01, 0.004, 0.02])
    outline = overlay.ellipse(conic, 2.0)
    assert outline is not None
    d = outline - conic[:2]
    q = 0.01 * d[:, 0] ** 2 + 0.008 * d[:, 0] * d[:, 1] + 0.02 * d[:, 1] ** 2
    assert np.allclose(q, 4.0)
    assert overlay.ellipse(np.array([0, 0, 1.0, 2.0, 1.0]), 1.0) is None
    assert overlay.ellipse(np.full(5, np.nan), 1.0) is None


# ------------------------------------------------------------------------------------------- loop helpers
def test_jobs_are_guarded_one_by_one() -> None:
    ran: list[object] = []
    failed: list[BaseException] = []

    def breaks() -> None:
        raise RuntimeError("first")

    def one(sender: object) -> None:
        ran.append(sender)

    def three(sender: object, data: object, user: object) -> None:
        ran.append((sender, data, user))

    run_jobs([(breaks, 1, 2, 3), (None, 1, 2, 3), (one, 1, 2, 3), (three, 4, 5, 6)], failed.append)
    assert ran == [1, (4, 5, 6)] and len(failed) == 1
    run_jobs(None, failed.append)


def test_G03_a_window_that_stands_still_asks_for_no_pictures() -> None:
    """Minimised, the loop blocks inside the toolkit; the engine is told, and told again when it goes on."""
    requests: Latest[m.ViewRequest] = Latest()
    heart = Heartbeat(requests)
    requests.put(m.ViewRequest(FRAME.camera, moving=True))
    heart.beat()
    heart.start()
    end = time.monotonic() + 20 * STALL_SECONDS
    while not (newest := requests.get()[1]) or not newest.hidden:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not newest.moving
    assert heart.beat() is True and heart.beat() is False
    heart.stop()


def test_trace_writes_readable_lines(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t.jsonl")
    trace.frame(5.0, 12.3456, m.Snapshot("running", 7, 10, gaussians=3, backend="cpu"), "depth", moving=True, shown_size=(4, 3))
    trace.frame(5.5, 1.0, m.Snapshot(loss=0.25), "color", moving=False, shown_size=(4, 3))
    trace.close()
    first, second = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert first["time"] == 0.0 and first["frame_ms"] == 12.346 and first["loss"] is None and first["view_mode"] == "depth"
    assert second["time"] == 0.5 and second["loss"] == 0.25
