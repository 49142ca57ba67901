"""Geometry that is drawn over the picture: frusta, axes, the selected Gaussian's ellipse. Pure; px of the picture."""

from __future__ import annotations

import numpy as np

from render.types import Camera

FRUSTUM_LIMIT = 160   # scene views drawn at most; more would hide the scene and cost the frame rate
NEAR = 1e-3
# One stroke over all eight edges of a pyramid (apex 0, corners 1..4); one edge is drawn twice.
_STROKE = np.array([1, 0, 2, 3, 0, 4, 3, 2, 1, 4])


def frustum_corners(camera: Camera, depth: float) -> np.ndarray:
    """[5,3] world: the eye, then the image corners at `depth` in front of it."""
    w, h = camera.width, camera.height
    pixels = np.array([[0, 0], [w, 0], [w, h], [0, h]], dtype=np.float64)
    rays = np.concatenate([(pixels - camera.K[:2, 2]) / camera.K[[0, 1], [0, 1]], np.ones((4, 1))], axis=1)
    rotation = camera.viewmat[:3, :3]
    return np.concatenate([camera.center[None], camera.center + depth * rays @ rotation])


def project(points: np.ndarray, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """([P,2] px, [P] z) of world points [P,3]; px are meaningless where z <= 0."""
    local = points @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    z = local[:, 2]
    safe = np.where(np.abs(z) > NEAR, z, NEAR)
    focal = camera.K[[0, 1], [0, 1]]
    return local[:, :2] / safe[:, None] * focal + camera.K[:2, 2], z


def frusta(views: tuple[Camera, ...], camera: Camera, depth: float) -> list[tuple[int, np.ndarray]]:
    """(view index, [10,2] px stroke) of the frusta wholly in front of the camera and partly in the picture."""
    strokes = []
    step = -(-len(views) // FRUSTUM_LIMIT) if views else 1
    margin = np.array([camera.width, camera.height], dtype=np.float64)
    for index in range(0, len(views), step):
        pixels, z = project(frustum_corners(views[index], depth), camera)
        if z.min() <= NEAR:
            continue
        if (pixels.max(0) < 0).any() or (pixels.min(0) > margin).any() or np.abs(pixels).max() > 20 * margin.max():
            continue
        strokes.append((index, pixels[_STROKE]))
    return strokes


def axes(origin: np.ndarray, length: float, camera: Camera) -> list[np.ndarray | None]:
    """Three [2,2] px segments x, y, z from the origin; None where one reaches behind the camera."""
    ends = np.concatenate([origin[None], origin + length * np.eye(3)])
    pixels, z = project(ends, camera)
    return [np.stack([pixels[0], pixels[i]]) if z[0] > NEAR and z[i] > NEAR else None for i in (1, 2, 3)]


def ellipse(center_conic: np.ndarray, sigmas: float, segments: int = 48) -> np.ndarray | None:
    """[segments,2] px outline where d^T conic d = sigmas^2; None when the conic is not positive definite.

    `center_conic` is (x, y, a, b, c) with conic [[a,b],[b,c]].
    """
    x, y, a, b, c = (float(v) for v in center_conic)
    if not (np.isfinite(center_conic).all() and a > 0 and a * c - b * b > 0):
        return None
    values, vectors = np.linalg.eigh(np.array([[a, b], [b, c]]))
    if values[0] <= 0:
        return None
    angle = np.linspace(0.0, 2.0 * np.pi, segments, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.array([x, y]) + sigmas * (circle / np.sqrt(values)) @ vectors.T


def ellipses(centers_conics: np.ndarray, sigmas: float, segments: int = 28) -> np.ndarray:
    """[K,segments,2] px outlines of many (x, y, a, b, c), as ellipse(); those that cannot be drawn are left out."""
    x, y, a, b, c = np.asarray(centers_conics, np.float64).T
    determinant = a * c - b * b
    good = np.isfinite(centers_conics).all(axis=1) & (a > 0) & (determinant > 0)
    x, y, a, b, c, determinant = (v[good] for v in (x, y, a, b, c, determinant))
    angle = np.linspace(0.0, 2.0 * np.pi, segments, endpoint=False)
    # conic = L L^T, and d = sigmas L^-T u for unit u has d^T conic d = sigmas^2
    l11, l21, l22 = np.sqrt(a), b / np.sqrt(a), np.sqrt(determinant / a)
    dy = sigmas * np.sin(angle) / l22[:, None]
    dx = (sigmas * np.cos(angle) - l21[:, None] * dy) / l11[:, None]
    points = np.stack([x[:, None] + dx, y[:, None] + dy], axis=-1)
    return points[np.abs(points).max(axis=(1, 2), initial=0.0) < 1e5]
