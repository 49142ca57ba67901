"""Where training starts: points, or random ones inside what the cameras see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from app.data.scene import PointCloud, View
from app.training.init import (
    MIN_SQUARED_DISTANCE,
    initial_params,
    mean_squared_distances,
    params_from_points,
    random_points,
    seen_by,
)
from render.config import SH_C0
from tests.training.tiny import make_scene, ring


def cloud(positions, color=(255, 128, 0)) -> PointCloud:
    positions = np.asarray(positions, np.float32)
    return PointCloud(positions, np.tile(np.asarray(color, np.uint8), (len(positions), 1)))


def test_scale_is_root_of_mean_squared_distance_to_three_neighbours():
    # on a line at 0, 1, 3, 7, 20: the neighbours of 0 are at 1, 3 and 7
    line = np.zeros((5, 3))
    line[:, 0] = [0, 1, 3, 7, 20]
    assert mean_squared_distances(line)[0] == pytest.approx((1 + 9 + 49) / 3)
    assert mean_squared_distances(line)[2] == pytest.approx((4 + 9 + 16) / 3)
    params = params_from_points(cloud(line), 3)
    assert torch.exp(params.log_scales[0]).tolist() == pytest.approx([np.sqrt(59 / 3)] * 3)


def test_doubles_and_lone_points_get_the_least_distance():
    assert mean_squared_distances(np.zeros((4, 3))).tolist() == [MIN_SQUARED_DISTANCE] * 4
    assert mean_squared_distances(np.zeros((1, 3))).tolist() == [MIN_SQUARED_DISTANCE]
    assert mean_squared_distances(np.array([[0, 0, 0], [2.0, 0, 0]])).tolist() == [4.0, 4.0]


def test_initial_values():
    params = params_from_points(cloud(np.eye(3)), 2)
    assert torch.sigmoid(params.logit_opacities).tolist() == pytest.approx([0.1] * 3)
    assert (0.5 + SH_C0 * params.sh0[0, 0]).tolist() == pytest.approx([1.0, 128 / 255, 0.0], abs=1e-6)
    assert params.shN.shape == (3, 8, 3) and not params.shN.any()
    assert params.quats.tolist() == [[1, 0, 0, 0]] * 3
    assert params.uids.tolist() == [0, 1, 2] and params.uids.dtype == torch.int64


def test_points_that_are_not_finite_are_left_out():
    params = params_from_points(cloud([[0, 0, 0], [np.nan, 0, 0], [1, 0, 0], [0, np.inf, 0]]), 0)
    assert len(params) == 2
    with pytest.raises(ValueError, match="finite"):
        params_from_points(cloud([[np.nan, 0, 0]]), 0)


def test_D16_no_points_start_random_inside_what_the_cameras_see_and_it_is_said():
    scene = make_scene(points=None)
    params, notice = initial_params(None, scene.views, sh_degree=1, init_points=500, seed=3, device="cpu")
    assert notice is not None and "no points" in notice and "500" in notice
    assert len(params) == 500
    votes = sum(seen_by(params.means.numpy().astype(float), view.camera).astype(int) for view in scene.views)
    assert votes.min() >= 2
    again, _ = initial_params(None, scene.views, sh_degree=1, init_points=500, seed=3, device="cpu")
    assert torch.equal(params.means, again.means)
    other, _ = initial_params(None, scene.views, sh_degree=1, init_points=500, seed=4, device="cpu")
    assert not torch.equal(params.means, other.means)


def test_D16_a_scene_with_points_says_nothing():
    scene = make_scene()
    params, notice = initial_params(scene.points, scene.views, sh_degree=1, init_points=500, seed=0, device="cpu")
    assert notice is None and len(params) == len(scene.points.positions)


def test_random_points_of_a_single_camera_and_of_outward_cameras_are_seen():
    one = make_scene(views=1).views
    points = random_points(one, 200, np.random.default_rng(0)).positions.astype(float)
    assert len(points) == 200 and seen_by(points, one[0].camera).all()
    outward = [type(c)(np.diag([-1.0, 1, -1, 1]) @ c.viewmat, c.K, c.width, c.height) for c in ring(8)]
    views = [View(str(i), camera, lambda: np.zeros((48, 48, 3), np.uint8)) for i, camera in enumerate(outward)]
    points = random_points(views, 200, np.random.default_rng(0)).positions.astype(float)
    assert len(points) == 200
    assert sum(seen_by(points, camera) for camera in outward).min() >= 1
