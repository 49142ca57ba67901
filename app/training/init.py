"""The first Gaussians: from a scene's points, or random inside what the cameras see."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.spatial import KDTree

from app.data.orient import scene_center
from app.data.scene import PointCloud, View
from render.config import SH_C0
from render.types import Camera, GaussianParams

INITIAL_OPACITY = 0.1
NEIGHBOURS = 3
MIN_SQUARED_DISTANCE = 1e-7
QUERY_POINTS = 50_000
"""Points whose neighbours are looked up between two reports of progress."""
Progress = Callable[[float, str], None]
"""Called with the share done in [0,1] and a text; an exception raised in it ends the work."""


def mean_squared_distances(positions: np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """[P]: mean of the squared distances to the 3 nearest neighbours, at least 1e-7, as graphdeco's simple-knn.

    With fewer neighbours the mean is over those there are; a point alone gets 1e-7.
    """
    count = len(positions)
    neighbours = min(NEIGHBOURS, count - 1)
    if neighbours < 1:
        return np.full(count, MIN_SQUARED_DISTANCE)
    tree, means = KDTree(positions), np.empty(count)
    for start in range(0, count, QUERY_POINTS):
        if progress is not None:
            progress(start / count, "placing Gaussians")
        part = slice(start, start + QUERY_POINTS)
        distances, _ = tree.query(positions[part], k=neighbours + 1)
        means[part] = (distances[:, 1:] ** 2).mean(axis=1)
    return np.maximum(means, MIN_SQUARED_DISTANCE)


def params_from_points(points: PointCloud, sh_degree: int, device: str | torch.device = "cpu",
                       progress: Progress | None = None) -> GaussianParams:
    """Round Gaussians of opacity 0.1 at the points, as wide as their neighbours are far (Kerbl et al. 2023).

    Points whose position is not finite are left out. Raises ValueError when none is left.
    """
    finite = np.isfinite(points.positions).all(axis=1)
    positions = np.ascontiguousarray(points.positions[finite], np.float64)
    count = len(positions)
    if count == 0:
        raise ValueError("there is no point with a finite position to start from")
    log_scales = 0.5 * np.log(mean_squared_distances(positions, progress))
    sh0 = (points.colors[finite].astype(np.float64) / 255.0 - 0.5) / SH_C0
    quats = np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(device)

    return GaussianParams(
        means=tensor(positions), quats=tensor(quats), log_scales=tensor(np.repeat(log_scales[:, None], 3, axis=1)),
        logit_opacities=tensor(np.full(count, math.log(INITIAL_OPACITY / (1.0 - INITIAL_OPACITY)))),
        sh0=tensor(sh0[:, None, :]), shN=torch.zeros(count, (sh_degree + 1) ** 2 - 1, 3, device=device),
        uids=torch.arange(count, dtype=torch.int64, device=device))


def seen_by(positions: np.ndarray, camera: Camera) -> np.ndarray:
    """Mask [P] of the points inside a camera's picture."""
    x, y, z = (camera.viewmat[:3, :3] @ positions.T + camera.viewmat[:3, 3:4])
    safe = np.where(z > camera.near, z, 1.0)
    u = camera.K[0, 0] * x / safe + camera.K[0, 2]
    v = camera.K[1, 1] * y / safe + camera.K[1, 2]
    return (z > camera.near) & (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)


def random_points(views: Sequence[View], count: int, rng: np.random.Generator) -> PointCloud:
    """Grey points, uniform in the box of the cameras around what they look at, in the picture of a quarter of them.

    Where hardly any place is, e.g. when the cameras look outwards, the rest lie on random viewing rays, no farther from
    their camera than twice the size of the box.
    """
    cameras = [view.camera for view in views]
    centers = np.stack([camera.center for camera in cameras])
    middle = scene_center(views)
    reach = float(np.linalg.norm(centers - middle, axis=1).max()) or 1.0
    needed = max(1, math.ceil(len(cameras) / 4))
    found = np.empty((0, 3))
    for _ in range(16):
        tries = middle + rng.uniform(-reach, reach, (max(4 * count, 1024), 3))
        votes = sum(seen_by(tries, camera).astype(int) for camera in cameras)
        found = np.concatenate([found, tries[votes >= needed]])[:count]
        if len(found) == count:
            break
    found = np.concatenate([found, points_on_rays(cameras, count - len(found), 2.0 * reach, rng)])
    return PointCloud(found.astype(np.float32), np.full((count, 3), 128, np.uint8))


def points_on_rays(cameras: Sequence[Camera], count: int, reach: float, rng: np.random.Generator) -> np.ndarray:
    """[count,3]: each through a random pixel of a random camera, a tenth to the whole of `reach` deep."""
    points = np.empty((count, 3))
    for i, index in enumerate(rng.integers(0, len(cameras), count)):
        camera = cameras[index]
        pixel = np.array([rng.uniform(0, camera.width), rng.uniform(0, camera.height), 1.0])
        ray = np.linalg.solve(camera.K, pixel) * rng.uniform(0.1, 1.0) * reach
        points[i] = camera.viewmat[:3, :3].T @ (ray - camera.viewmat[:3, 3])
    return points


def initial_params(points: PointCloud | None, views: Sequence[View], *, sh_degree: int, init_points: int,
                   seed: int, device: str | torch.device, progress: Progress | None = None
                   ) -> tuple[GaussianParams, str | None]:
    """(the first Gaussians, a sentence for the user when they had to be random) (D16)."""
    if points is not None and np.isfinite(points.positions).all(axis=1).any():
        return params_from_points(points, sh_degree, device, progress), None
    points = random_points(views, init_points, np.random.default_rng(seed))
    notice = (f"The scene has no points: training starts from {len(points.positions):,} random ones "
              "inside what the cameras see.")
    return params_from_points(points, sh_degree, device, progress), notice
