"""What the cameras say about the world: which way is up, what they look at, how large the scene is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.data.scene import PointCloud, View

OUTLIER = 5.0
"""Cameras further from the median centre than this many median distances do not set the extent (F15)."""


def scene_up(views: Sequence[View]) -> np.ndarray:
    """[3] unit up vector of the world: minus the mean of the cameras' y axes, which point down (U01).

    Where these cancel, as in a drone's circle looking straight down, up is the way the cameras look away from.
    """
    rotations = np.stack([view.camera.viewmat[:3, :3] for view in views])
    for axis in (1, 2):
        up = -rotations[:, axis].mean(axis=0)
        if np.linalg.norm(up) > 0.1:
            return up / np.linalg.norm(up)
    return -rotations[0, 1]


def scene_center(views: Sequence[View], points: PointCloud | None = None) -> np.ndarray:
    """[3] the point that the cameras look at, robust against single stray cameras and points.

    With points: the median over cameras of the place on the optical axis at the median depth of the points in view.
    Without: the point nearest to all optical axes, or one extent ahead where they are nearly parallel.
    """
    centers, axes = _centers(views), _axes(views)
    if points is not None and len(points.positions):
        # Some ten thousand points give the same medians as millions.
        sample = points.positions[:: max(1, len(points.positions) // 20000)].astype(np.float64)
        targets = [center + axis * depth for view, center, axis in zip(views, centers, axes, strict=True)
                   if (depth := _median_depth(view, sample)) is not None]
        if targets:
            return np.median(targets, axis=0)
    across = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    normal = across.mean(axis=0)
    if np.linalg.eigvalsh(normal)[0] > 1e-3:
        nearest = np.linalg.solve(normal, (across @ centers[:, :, None]).mean(axis=0)[:, 0])
        if np.median(((nearest - centers) * axes).sum(axis=1)) > 0.0:
            return nearest
    return np.median(centers, axis=0) + axes.mean(axis=0) * (scene_extent(views) or 1.0)


def scene_extent(views: Sequence[View]) -> float:
    """Radius of the scene in world units: 1.1 times the largest distance of a camera centre from their mean.

    That is graphdeco's rule, made robust: a camera further from the median centre than 5 median distances is left out
    of both the mean and the maximum (F15). 0 for a single camera, or several in one place.
    """
    centers = _centers(views)
    distances = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    kept = centers[distances <= OUTLIER * np.median(distances)] if np.median(distances) > 0.0 else centers
    return 1.1 * float(np.linalg.norm(kept - kept.mean(axis=0), axis=1).max())


def _median_depth(view: View, positions: np.ndarray) -> float | None:
    """Median camera z of the points inside the picture; None with fewer than 10 of them."""
    camera = view.camera
    x, y, z = camera.viewmat[:3, :3] @ positions.T + camera.viewmat[:3, 3:]
    ahead = z > camera.near
    safe = np.where(ahead, z, 1.0)
    u = camera.K[0, 0] * x / safe + camera.K[0, 2]
    v = camera.K[1, 1] * y / safe + camera.K[1, 2]
    inside = ahead & (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)
    return float(np.median(z[inside])) if inside.sum() >= 10 else None


def _centers(views: Sequence[View]) -> np.ndarray:
    return np.stack([view.camera.center for view in views])


def _axes(views: Sequence[View]) -> np.ndarray:
    """[V,3] unit viewing directions in the world."""
    axes = np.stack([view.camera.viewmat[2, :3] for view in views])
    return axes / np.linalg.norm(axes, axis=1, keepdims=True)
