"""Up, centre and extent from the cameras; cameras.json."""

from __future__ import annotations

import json

import numpy as np
import pytest

from app.data.cameras_json import write_cameras_json
from app.data.open import open_scene
from app.data.orient import scene_center, scene_extent, scene_up
from app.data.scene import PointCloud, View
from render.types import Camera
from tests.data.synthetic import colmap_scene
from tests.realdata import real_data


def look_at(center, target, up=(0.0, 0.0, 1.0)) -> View:
    """A view from `center` to `target` with the image's up direction towards `up`."""
    forward = np.subtract(target, center) / np.linalg.norm(np.subtract(target, center))
    right = np.cross(forward, up)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, -rotation @ center
    K = np.array([[100.0, 0, 50], [0, 100, 50], [0, 0, 1]])
    return View("v", Camera(viewmat, K, 100, 100), lambda: np.zeros((100, 100, 3), np.uint8))


def ring(count=12, radius=2.0, height=1.0, target=(5.0, 6.0, 7.0)):
    angles = np.arange(count) * 2 * np.pi / count
    return [look_at(np.add(target, [radius * np.cos(a), radius * np.sin(a), height]), target) for a in angles]


def test_u01_up_is_minus_the_mean_of_the_cameras_y_axes():
    np.testing.assert_allclose(scene_up(ring()), [0, 0, 1], atol=1e-12)


def test_u01_cameras_that_look_straight_down_still_have_an_up():
    views = [look_at([0, 0, 5], [0, 0, 0], up=(np.cos(a), np.sin(a), 0)) for a in np.arange(8) * np.pi / 4]
    np.testing.assert_allclose(scene_up(views), [0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("name", ["lego_200_rgba", "fox", "fox_colmap", "banana", "kermit", "fountain"])
def test_u01_up_of_real_scenes(name):
    """Each camera's own up leans towards it; the synthetic scene's is +z exactly."""
    views = open_scene(real_data("scenes", name)).views
    up = scene_up(views)
    assert np.linalg.norm(up) == pytest.approx(1.0)
    agreement = [-view.camera.viewmat[1, :3] @ up for view in views]
    assert np.mean(agreement) > 0.6
    if name == "lego_200_rgba":
        np.testing.assert_allclose(up, [0, 0, 1], atol=0.1)


def test_center_is_what_the_cameras_look_at():
    np.testing.assert_allclose(scene_center(ring()), [5, 6, 7], atol=1e-9)


def test_center_with_points_is_robust_against_strays():
    rng = np.random.default_rng(0)
    positions = rng.normal([5, 6, 7], 0.1, (500, 3))
    positions[:20] = rng.normal(0, 1000, (20, 3))
    stray = look_at([900.0, 0, 0], [901.0, 0, 0])
    cloud = PointCloud(positions.astype(np.float32), np.zeros((500, 3), np.uint8))
    assert np.linalg.norm(scene_center([*ring(), stray], cloud) - [5, 6, 7]) < 0.1


def test_center_of_parallel_cameras_lies_ahead():
    views = [look_at([x, 0.0, 0.0], [x, 10.0, 0.0]) for x in (-1.0, 0.0, 1.0)]
    center = scene_center(views)
    assert center[1] == pytest.approx(1.1) and abs(center[0]) < 1e-9


def test_extent_is_graphdecos():
    views = [look_at(center, [0, 0, 0]) for center in ([1.0, 0, 0], [0, 3.0, 0], [0, 0.1, 2.0], [2.0, 2.0, 0])]
    centers = np.stack([view.camera.center for view in views])
    expected = 1.1 * np.linalg.norm(centers - centers.mean(axis=0), axis=1).max()
    assert scene_extent(views) == pytest.approx(expected)


def test_f15_one_stray_camera_does_not_set_the_extent():
    views = ring()
    assert scene_extent([*views, look_at([5000.0, 0, 0], [0, 0, 0])]) == pytest.approx(scene_extent(views))


def test_f15_noise_on_the_centres_moves_the_extent_little():
    rng = np.random.default_rng(0)
    clean = scene_extent(ring(40))
    noisy = [look_at(view.camera.center + rng.normal(0, 0.02, 3), [5, 6, 7]) for view in ring(40)]
    assert scene_extent(noisy) == pytest.approx(clean, rel=0.05)


def test_f15_a_single_camera_has_extent_0():
    assert scene_extent(ring(1)) == 0.0
    assert scene_extent([look_at([1.0, 2, 3], [0, 0, 0])] * 3) == 0.0


def test_cameras_json_has_graphdecos_layout(tmp_path):
    scene = open_scene(colmap_scene(tmp_path), eval_every=8)
    write_cameras_json(tmp_path / "out ä" / "cameras.json", scene.views)
    entries = json.loads((tmp_path / "out ä" / "cameras.json").read_text(encoding="utf-8"))
    assert [entry["img_name"] for entry in entries[:3]] == ["000.png", "008.png", "001.png"]  # held-out views first
    assert [entry["id"] for entry in entries] == list(range(10))
    view = next(view for view in scene.views if view.name == "003.png")
    entry = next(entry for entry in entries if entry["img_name"] == "003.png")
    assert {"id", "img_name", "width", "height", "position", "rotation", "fx", "fy"} <= set(entry)
    assert (entry["width"], entry["height"], entry["fx"], entry["fy"]) == (64, 48, 60.0, 61.0)
    # graphdeco's reader: rotation is camera to world, position the centre
    rotation = np.array(entry["rotation"])
    np.testing.assert_allclose(rotation.T, view.camera.viewmat[:3, :3])
    np.testing.assert_allclose(-rotation.T @ entry["position"], view.camera.viewmat[:3, 3], atol=1e-12)
