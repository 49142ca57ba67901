"""The photograph as another camera of the same pose would show it: ground truth of any size and crop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from app.data.scene import View
from app.training.arrays import host
from app.training.views import load_target
from render.types import Camera

POSE_TOLERANCE = 1e-6
"""Two viewmats are one pose when no entry differs by more, relative to the largest entry."""


def same_pose(a: Camera, b: Camera) -> bool:
    return bool(np.allclose(a.viewmat, b.viewmat, rtol=0.0, atol=POSE_TOLERANCE * max(1.0, np.abs(b.viewmat).max())))


def reduce_by(image: np.ndarray, fx: int, fy: int) -> np.ndarray:
    """Box average over fx x fy pixels; rows and columns that fill no box are dropped."""
    height, width = image.shape[0] // fy, image.shape[1] // fx
    return image[: height * fy, : width * fx].reshape(height, fy, width, fx, -1).mean((1, 3), dtype=np.float32)


def resample(image: np.ndarray, source: Camera, target: Camera) -> tuple[np.ndarray, np.ndarray]:
    """(picture float32 [h,w,3], inside bool [h,w]) of `image` [H,W,3], taken by `source`, on the pixels of `target`.

    Both cameras have the same pose, so that the map between their pixels is u = fx (u' - cx') / fx' + cx per axis.
    Shrinking averages over whole boxes first, so that it does not alias; the rest is bilinear.
    """
    kx, ky = source.K[0, 0] / target.K[0, 0], source.K[1, 1] / target.K[1, 1]
    fx, fy = max(1, int(kx + 0.25)), max(1, int(ky + 0.25))
    if fx > 1 or fy > 1:
        image = reduce_by(image, fx, fy)
    u = ((np.arange(target.width) + 0.5 - target.K[0, 2]) * kx + source.K[0, 2]) / fx
    v = ((np.arange(target.height) + 0.5 - target.K[1, 2]) * ky + source.K[1, 2]) / fy
    inside = ((v >= 0) & (v <= image.shape[0]))[:, None] & ((u >= 0) & (u <= image.shape[1]))[None, :]
    rows = _lerp(image, v - 0.5, axis=0)
    return _lerp(rows, u - 0.5, axis=1), inside


def _lerp(image: np.ndarray, at: np.ndarray, axis: int) -> np.ndarray:
    """Linear interpolation along one axis at fractional indices, edges repeated."""
    last = image.shape[axis] - 1
    at = np.clip(at, 0.0, last)
    low = np.minimum(at.astype(np.intp), max(last - 1, 0))
    shape = [1, 1, 1]
    shape[axis] = len(at)
    t = (at - low).astype(np.float32).reshape(shape)
    a, b = image.take(low, axis), image.take(np.minimum(low + 1, last), axis)
    return a + t * (b - a)


@dataclass
class Photographs:
    """Keeps the photograph shown last, resampled, so that an error map of a training scene costs one render only."""

    _key: tuple | None = None
    _value: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, view: View, camera: Camera, background: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """(picture float32 [h,w,3], inside bool [h,w]); the arrays are shared, do not write into them."""
        key = (view.name, id(view), camera.width, camera.height, camera.K.tobytes(), tuple(background.tolist()))
        if key != self._key or self._value is None:
            self._value = resample(host(load_target(view, background)), view.camera, camera)
            self._key = key
        return self._value

    def clear(self) -> None:
        self._key = self._value = None
