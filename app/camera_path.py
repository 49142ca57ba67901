"""A camera's way through a scene: key cameras, the smooth curve through them, and the cameras along it.

Pure numpy, so that the window, the engine and the command line share it. Angles in radians, times in seconds, lengths in
world units; quaternions are wxyz and turn camera axes (+x right, +y down, +z forward) into the world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from app import splines
from app.data.scene import SceneError
from render.types import Camera

STEP_SECONDS = 2.0
"""From one key to the next where nothing else is said."""
FINE = (1 - np.cos(np.linspace(0.0, np.pi, 129))) / 2
"""Where inside a segment its length is measured: closer at the ends, where the curve may come to rest."""
STILL = 1e-9
"""A segment this short against the whole path is a stop; the camera turns on the spot there, if at all."""


@dataclass(frozen=True)
class Lens:
    """What a picture's height and field of view leave open. Square pixels and a centred principal point by default."""

    pixel_aspect: float = 1.0   # fx / fy
    shift_x: float = 0.0        # principal point from the middle, in heights of the picture
    shift_y: float = 0.0


@dataclass(frozen=True)
class Key:
    position: np.ndarray        # [3]
    quat: np.ndarray            # [4] camera to world, unit
    fov_y: float                # 2 atan(height / (2 fy))
    time: float = 0.0
    lens: Lens | None = None    # None = unknown

    @staticmethod
    def of(camera: Camera, time: float = 0.0) -> Key:
        """The key that stands where a camera stands and sees what it sees in its height."""
        fx, fy, height = float(camera.K[0, 0]), float(camera.K[1, 1]), camera.height
        lens = Lens(fx / fy, (float(camera.K[0, 2]) - camera.width / 2) / height, (float(camera.K[1, 2]) - height / 2) / height)
        return Key(camera.center, splines.quat_of(camera.viewmat[:3, :3].T), 2 * math.atan(0.5 * height / fy), time, lens)

    def camera(self, width: int, height: int, near: float = 0.01) -> Camera:
        return _camera(self.position, splines.rotation_of(self.quat[None])[0], self.fov_y, self.lens or Lens(), width, height,
                       near)


@dataclass(frozen=True)
class Poses:
    """The curve at S times."""

    positions: np.ndarray       # [S,3]
    quats: np.ndarray           # [S,4] unit
    fovs: np.ndarray            # [S]
    lenses: np.ndarray          # [S,3] as Lens


@dataclass(frozen=True)
class CameraPath:
    """Keys at rising times. With `constant_speed` the camera moves evenly and the keys' times only set the duration and how
    long it turns where it stands still; without, it passes each key at its time. `speed` divides all times."""

    keys: tuple[Key, ...] = ()
    closed: bool = False        # from the last key back to the first, in the mean time between keys
    constant_speed: bool = True
    speed: float = 1.0
    near: float = field(default=0.01)   # of the cameras along the path

    def __post_init__(self) -> None:
        times = [key.time for key in self.keys]
        for k in range(1, len(times)):
            if not times[k] > times[k - 1]:
                raise SceneError(f"key {k + 1} of the camera path is at {times[k]:g} s, not after key {k} at "
                                 f"{times[k - 1]:g} s; give it a later time")
        if not (math.isfinite(self.speed) and self.speed > 0.0):
            raise SceneError(f"the speed of the camera path is {self.speed:g}; it must be more than 0")

    # ------------------------------------------------------------------ time

    @property
    def duration(self) -> float:
        """Seconds from the first key to the last, or around."""
        return self._ends / self.speed

    @property
    def _ends(self) -> float:
        if len(self.keys) < 2:
            return 0.0
        span = self.keys[-1].time - self.keys[0].time
        return span + (span / (len(self.keys) - 1) if self.closed else 0.0)

    @property
    def key_times(self) -> np.ndarray:
        """[n] when the camera passes the keys, as at() counts; with `closed` [n+1], the first key again at the end."""
        if len(self.keys) < 2:
            return np.zeros(len(self.keys))
        return self._curve.passed / self.speed

    @property
    def length(self) -> float:
        """World units along the curve."""
        return float(self._curve.lengths.sum()) if len(self.keys) > 1 else 0.0

    # ------------------------------------------------------------------ the curve

    @cached_property
    def _curve(self) -> _Curve:
        return _Curve(self)

    def at(self, times: np.ndarray | Sequence[float]) -> Poses:
        """The curve at times [S] in 0..duration; outside it stays at its ends, or goes around. Raises SceneError without
        keys."""
        times = np.asarray(times, np.float64).reshape(-1)
        if not self.keys:
            raise SceneError("the camera path has no keys; add a view to it")
        if len(self.keys) == 1:
            key = self.keys[0]
            values = np.broadcast_to(_numbers(key), (len(times), 4))
            positions, quats = (np.tile(row, (len(times), 1)) for row in (key.position, key.quat))
            return Poses(positions, quats, values[:, 0], values[:, 1:])
        return self._curve.at(times * self.speed)

    def cameras_at(self, times: np.ndarray | Sequence[float], width: int, height: int) -> list[Camera]:
        """Cameras of pictures of any size; their lenses are the keys' where every key has one."""
        poses = self.at(times)
        known = all(key.lens is not None for key in self.keys)
        return [_camera(position, rotation, float(fov), Lens(*lens.tolist()) if known else Lens(), width, height, self.near)
                for position, rotation, fov, lens in zip(poses.positions, splines.rotation_of(poses.quats), poses.fovs,
                                                         poses.lenses, strict=True)]

    def frame_times(self, fps: float) -> np.ndarray:
        """[F] times of a film: evenly from the first key to the last, or around without the first key twice."""
        if not self.duration:
            return np.zeros(1)
        count = max(1, round(self.duration * fps))
        return np.arange(count) * (self.duration / count) if self.closed else np.linspace(0.0, self.duration, count + 1)

    def sample(self, fps: float, width: int, height: int) -> list[Camera]:
        """A camera for each frame of a film."""
        return self.cameras_at(self.frame_times(fps), width, height)

    # ------------------------------------------------------------------ changes

    def with_key(self, key: Key, step: float = STEP_SECONDS) -> CameraPath:
        """With another key at the end, `step` seconds after the last."""
        time = self.keys[-1].time + step if self.keys else 0.0
        return replace(self, keys=(*self.keys, replace(key, time=time)))

    def with_keys(self, keys: Sequence[Key]) -> CameraPath:
        """With these keys in this order; the times stay in place where their number does, and lose the last otherwise."""
        times = [key.time for key in self.keys][:len(keys)]
        times += [(times[-1] if times else -STEP_SECONDS) + STEP_SECONDS * (k + 1) for k in range(len(keys) - len(times))]
        return replace(self, keys=tuple(replace(key, time=time) for key, time in zip(keys, times, strict=True)))

    def lasting(self, seconds: float) -> CameraPath:
        """With the times stretched so that the path takes so long."""
        if not self.duration or not (math.isfinite(seconds) and seconds > 0.0):
            return self
        by = seconds / self.duration
        return replace(self, keys=tuple(replace(key, time=key.time * by) for key in self.keys))


class _Curve:
    """The keys of a path with two or more, extended by their neighbours, and when each is passed."""

    def __init__(self, path: CameraPath) -> None:
        keys, n = path.keys, len(path.keys)
        self.closed = path.closed
        self.count = n if path.closed else n - 1                      # segments
        order = [k % n for k in range(-2, n + 3)] if path.closed else list(range(n))
        points = np.array([keys[k].position for k in order], np.float64)
        if not path.closed:   # mirrored, so that the ends are left and reached straight
            points = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
        self._first = 2 if path.closed else 0                         # where key 0 stands in what is not mirrored
        shift = self._first if path.closed else 1
        steps = splines.knot_steps(points)
        self._four = np.stack([points[shift + i - 1:shift + i + 3] for i in range(self.count)])
        self._steps = np.stack([steps[shift + i - 1:shift + i + 2] for i in range(self.count)])
        self.lengths, self._fine = self._measure()
        nominal = np.diff([key.time for key in keys])
        if path.closed:
            nominal = np.append(nominal, nominal.mean())
        self.even = path.constant_speed
        shares = self._shares(nominal) if path.constant_speed else nominal
        self.passed = np.concatenate([[0.0], np.cumsum(shares)])      # [count+1] times at speed 1
        self._quats, self._times = self._turns(keys, order)
        self._leaving, self._arriving = splines.quadrangle(self._quats, self._times)
        self._values = np.array([_numbers(keys[k]) for k in order])
        self._slopes = splines.monotone_slopes(self._times, self._values)
        self._knots = self._knots_of(keys, steps, shift)
        self._knot_slopes = splines.monotone_slopes(self._times, self._knots)

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """([count] lengths, [count,129] length from the start of the segment to FINE)."""
        which = np.repeat(np.arange(self.count), len(FINE))
        points = splines.catmull_rom(self._four[which], self._steps[which], np.tile(FINE, self.count))
        points = points.reshape(self.count, len(FINE), 3)
        grown = np.cumsum(np.linalg.norm(np.diff(points, axis=1), axis=2), axis=1)
        fine = np.concatenate([np.zeros((self.count, 1)), grown], axis=1)
        fine[self._steps[:, 1] == 0.0] = 0.0   # two keys in one place: what is left is rounding
        return fine[:, -1], fine

    def _shares(self, nominal: np.ndarray) -> np.ndarray:
        """[count] seconds of the segments at constant speed; a stop keeps its own."""
        moves = self.lengths > STILL * max(self.lengths.sum(), np.finfo(float).tiny)
        if not moves.any():
            return nominal
        spare = nominal[moves].sum()
        return np.where(moves, spare * self.lengths / self.lengths[moves].sum(), nominal)

    def _turns(self, keys: tuple[Key, ...], order: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Aligned quaternions and passing times of the extended keys."""
        quats = splines.aligned(np.array([keys[k].quat for k in order], np.float64))
        if not self.closed:
            return quats, self.passed
        n, total = len(keys), float(self.passed[-1])
        return quats, np.array([self.passed[k % n] + total * (k // n) for k in range(-2, n + 3)])

    def _knots_of(self, keys: tuple[Key, ...], steps: np.ndarray, shift: int) -> np.ndarray:
        """Knots of the positions at the extended keys, rising from one to the next."""
        inner = steps[shift - self._first:shift - self._first + len(self._times) - 1]
        return np.concatenate([[0.0], np.cumsum(inner)])

    def at(self, times: np.ndarray) -> Poses:
        total = float(self.passed[-1])
        times = np.mod(times, total) if self.closed else np.clip(times, 0.0, total)
        i = np.clip(np.searchsorted(self.passed, times, side="right") - 1, 0, self.count - 1)
        u = np.clip((times - self.passed[i]) / (self.passed[i + 1] - self.passed[i]), 0.0, 1.0)
        j = i + self._first
        quats = splines.squad(self._quats, self._leaving, self._arriving, j, u)
        values = splines.monotone_cubic(self._times, self._values, j, u, self._slopes)
        positions = splines.catmull_rom(self._four[i], self._steps[i], self._along(i, j, u))
        return Poses(positions, quats, values[:, 0], values[:, 1:])

    def _along(self, i: np.ndarray, j: np.ndarray, u: np.ndarray) -> np.ndarray:
        """[S] where in their segments' knots the camera is when the share u of their times has passed."""
        if self.even:
            out = np.array(u)
            for k in np.unique(i):
                mine = i == k
                if self.lengths[k] > 0.0:
                    out[mine] = np.interp(u[mine] * self.lengths[k], self._fine[k], FINE)
            return out
        width = self._knots[j + 1] - self._knots[j]
        here = splines.monotone_cubic(self._times, self._knots, j, u, self._knot_slopes)
        return np.clip(np.where(width > 0.0, (here - self._knots[j]) / np.where(width > 0.0, width, 1.0), u), 0.0, 1.0)


def _numbers(key: Key) -> np.ndarray:
    """[4] field of view and lens."""
    lens = key.lens or Lens()
    return np.array([key.fov_y, lens.pixel_aspect, lens.shift_x, lens.shift_y])


def _camera(position: np.ndarray, rotation: np.ndarray, fov_y: float, lens: Lens, width: int, height: int, near: float
            ) -> Camera:
    """rotation [3,3] is camera to world."""
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation.T, -rotation.T @ position
    fy = 0.5 * height / math.tan(0.5 * fov_y)
    x, y = width / 2 + lens.shift_x * height, height / 2 + lens.shift_y * height
    K = np.array([[fy * lens.pixel_aspect, 0.0, x], [0.0, fy, y], [0.0, 0.0, 1.0]])
    return Camera(viewmat, K, int(width), int(height), near)


def framed(camera: Camera, width: int, height: int) -> Camera:
    """The same camera with a picture of another size and shape: what the height shows stays, nothing is stretched, and more
    or less is seen to the sides."""
    by = height / camera.height
    K = camera.K.astype(np.float64) * np.array([[by], [by], [1.0]])
    K[0, 2] = (camera.K[0, 2] - camera.width / 2) * by + width / 2
    return Camera(camera.viewmat, K, int(width), int(height), camera.near, camera.far)


# ---------------------------------------------------------------- turntable


def turntable(center: np.ndarray, up: np.ndarray, radius: float, height: float, frames: int, *, seconds: float = 8.0,
              fov_y: float = math.radians(50.0), near: float = 0.01) -> CameraPath:
    """A circle around `up` through `center` [3], `height` above it, looking at it: `frames` keys in even steps, closed.

    Raises SceneError for a circle that cannot be.
    """
    center, up = np.asarray(center, np.float64), np.asarray(up, np.float64)
    size = float(np.linalg.norm(up))
    if not (np.isfinite(center).all() and math.isfinite(size) and size > 1e-9):
        raise SceneError("the turntable has no axis; give a centre and an up direction of finite length")
    if not (math.isfinite(radius) and radius > 0.0 and math.isfinite(height)):
        raise SceneError(f"a turntable of radius {radius:g} and height {height:g} cannot be; the radius must be more than 0")
    if frames < 3:
        raise SceneError(f"a turntable of {frames} keys does not go around; it needs 3 or more")
    up = up / size
    first = np.cross(up, np.eye(3)[int(np.argmin(np.abs(up)))])
    first /= np.linalg.norm(first)
    second = np.cross(up, first)
    keys = []
    for k in range(frames):
        angle = 2 * math.pi * k / frames
        out = math.cos(angle) * first + math.sin(angle) * second
        keys.append(Key(center + radius * out + height * up, looking(-radius * out - height * up, up), fov_y,
                        seconds * k / frames))
    return CameraPath(tuple(keys), closed=True, near=near)


def looking(along: np.ndarray, up: np.ndarray) -> np.ndarray:
    """[4] the orientation that looks along a direction [3] with `up` [3] upwards in the picture."""
    forward = along / np.linalg.norm(along)
    right = np.cross(forward, up)
    if np.linalg.norm(right) < 1e-9:   # straight up or down: any side is as good
        right = np.cross(forward, np.eye(3)[int(np.argmin(np.abs(forward)))])
    right = right / np.linalg.norm(right)
    return splines.quat_of(np.stack([right, np.cross(forward, right), forward], axis=1))
