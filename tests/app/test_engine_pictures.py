"""Colours and photographs: what pictures are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.colormaps import NEVER_SEEN, auto_range, colorize, lut, normalise
from app.data.scene import View
from app.engine.photographs import Photographs, resample, same_pose
from tests.training.tiny import ring

# ---------------------------------------------------------------- colours


def test_colours_are_matplotlibs_own():
    from matplotlib import colormaps

    for name in ("viridis", "turbo", "coolwarm"):
        assert np.allclose(lut(name)[[0, 128, 255]], colormaps[name]([0, 128, 255])[:, :3], atol=1e-6)


def test_f17_unknown_values_are_grey():
    """F17: never seen has its own colour."""
    colors = colorize(np.array([0.0, np.nan, 1.0]), "viridis", 0.0, 1.0)
    assert np.allclose(colors[1], NEVER_SEEN)
    assert np.allclose(colors[[0, 2]], lut("viridis")[[0, 255]])


def test_log_colours_are_even_over_decades():
    t = normalise(np.array([1e-4, 1e-3, 1e-2, 0.0]), 1e-4, 1e-2, log=True)
    assert np.allclose(t, [0.0, 0.5, 1.0, 0.0], atol=1e-6)


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=50), st.booleans(), st.booleans())
def test_automatic_ranges_have_two_ends_whatever_the_values(values, log, signed):
    lo, hi = auto_range(np.array(values, np.float32), log=log, signed=signed and not log)
    assert np.isfinite([lo, hi]).all() and hi > lo
    if log:
        assert lo > 0
    elif signed:
        assert lo == pytest.approx(-hi)
    colors = colorize(np.array(values, np.float32), "turbo", lo, hi, log)
    assert np.isfinite(colors).all() and (colors >= 0).all() and (colors <= 1).all()


def test_outliers_do_not_set_the_range():
    values = np.concatenate([np.linspace(0, 1, 10_000), [1e9]])
    lo, hi = auto_range(values)
    assert 0.0 <= lo < 0.05 and 0.95 < hi < 1.01


# ---------------------------------------------------------------- photographs


def test_a_photograph_on_its_own_camera_is_itself():
    camera = ring(1, 40, 30)[0]
    image = np.random.default_rng(0).random((30, 40, 3), dtype=np.float32)
    picture, inside = resample(image, camera, camera)
    assert np.allclose(picture, image, atol=1e-6) and inside.all()


def test_n01_a_crop_of_the_camera_is_a_crop_of_the_photograph():
    """N01: the map between two cameras of one pose honours the principal point and both focal lengths."""
    from render.types import Camera

    camera = ring(1, 40, 30)[0]
    K = camera.K.copy()
    K[0, 2] -= 7
    K[1, 2] -= 5
    crop = Camera(camera.viewmat, K, 20, 16)
    image = np.random.default_rng(0).random((30, 40, 3), dtype=np.float32)
    picture, inside = resample(image, camera, crop)
    assert np.allclose(picture, image[5:21, 7:27], atol=1e-5) and inside.all()
    wide = Camera(camera.viewmat, camera.K + np.array([[0, 0, 10.0], [0, 0, 0], [0, 0, 0]]), 60, 30)
    picture, inside = resample(image, camera, wide)
    assert inside[:, 10:50].all() and not inside[:, :9].any() and not inside[:, 51:].any()
    assert np.allclose(picture[:, 10:50], image, atol=1e-5)


def test_shrinking_a_photograph_averages():
    camera = ring(1, 40, 30)[0]
    image = np.zeros((30, 40, 3), np.float32)
    image[::2, ::2] = 1.0   # a quarter of the pixels: a picture that does not average sees all or nothing
    picture, _ = resample(image, camera, camera.resized(10, 7))
    assert np.allclose(picture.mean(), 0.25, atol=0.02) and picture.max() < 0.5


def test_d08_alpha_is_laid_over_the_background():
    """D08: the picture shown is what training compares with, target = rgb a + background (1 - a)."""
    image = np.full((30, 40, 4), [200, 100, 0, 51], np.uint8)
    camera = ring(1, 40, 30)[0]
    expected = np.array([200, 100, 0]) / 255 * 0.2 + 0.8 * np.array([1.0, 0.5, 0.0])
    view = View("v", camera, lambda: image)
    picture, inside = Photographs().at(view, camera, torch.tensor([1.0, 0.5, 0.0]))
    assert inside.all() and np.allclose(picture, expected, atol=1e-6)


def test_poses_are_compared_with_a_tolerance():
    a, b = ring(2, 40, 30)
    assert same_pose(a, a.resized(20, 15)) and not same_pose(a, b)


