"""A COLMAP model's three files, text or binary, read strictly: cameras, images and points3D.

pycolmap's own reader is not used: it cuts text names at the first blank, takes truncated files without a word or
for minutes, and builds every track. Rigs and frames need no code: COLMAP also writes each image's own pose.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.data.lens import Lens, check_lens, model_name, param_count, unknown_model
from app.data.scene import FARTHEST, PointCloud, SceneError

_CAMERA = struct.Struct("<IiQQ")   # id, model, width, height; then the parameters as doubles
_POSE = struct.Struct("<I7dI")     # id, qw qx qy qz, tx ty tz, camera id; then the name, ended by a zero byte
_POINT = struct.Struct("<Q3d3BdQ")  # id, x y z, r g b, error, track length; then 8 bytes per track element
_COUNT = struct.Struct("<Q")
_POINT2D_BYTES = 24
_TRACK_BYTES = 8


@dataclass(frozen=True)
class Pose:
    """One registered image."""

    name: str
    camera_id: int
    quat: tuple[float, float, float, float]  # wxyz, world -> camera
    translation: tuple[float, float, float]

    def viewmat(self) -> np.ndarray:
        """[4,4] float64 world -> camera, OpenCV axes."""
        w, x, y, z = np.array(self.quat) / math.hypot(*self.quat)
        viewmat = np.eye(4)
        viewmat[:3, :3] = [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                           [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                           [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]]
        viewmat[:3, 3] = self.translation
        return viewmat


def model_files(folder: Path) -> tuple[Path, Path] | None:
    """(cameras, images) of a model folder, binary before text; None where there is no model."""
    for suffix in (".bin", ".txt"):
        cameras, images = folder / f"cameras{suffix}", folder / f"images{suffix}"
        if cameras.is_file() and images.is_file():
            return cameras, images
    return None


def read_cameras(path: Path) -> dict[int, Lens]:
    """Cameras by id, of any model that the installed pycolmap knows; they are not judged yet (check_lens does)."""
    return _read(path, _cameras_from_bytes, _cameras_from_lines)


def read_poses(path: Path) -> list[Pose]:
    """Registered images in the file's order."""
    poses = _read(path, _poses_from_bytes, _poses_from_lines)
    for pose in poses:
        # math.hypot neither overflows nor underflows on the way
        if not 0.0 < math.hypot(*pose.quat) < math.inf or not math.hypot(*pose.translation) < FARTHEST:
            raise SceneError(f"{path}: the pose of {pose.name} is not a finite rotation and a translation below "
                             f"{FARTHEST:g}; export the model again")
    return poses


def read_points(folder: Path) -> PointCloud | None:
    """The model's points, or None where the file is missing or empty."""
    for name in ("points3D.bin", "points3D.txt"):
        if (folder / name).is_file():
            points = _read(folder / name, _points_from_bytes, _points_from_lines)
            return points if len(points.positions) else None
    return None


def count_poses(path: Path) -> int:
    """Registered images, from the first bytes of a binary file; text has to be read."""
    if path.suffix == ".bin":
        with open(path, "rb") as stream:
            head = stream.read(_COUNT.size)
        return _COUNT.unpack(head)[0] if len(head) == _COUNT.size else 0
    return len(read_poses(path))


def used_lenses(cameras: dict[int, Lens], poses: list[Pose], path: Path) -> dict[int, Lens]:
    """The cameras that registered images refer to, each checked; SceneError for a camera that is missing."""
    used: dict[int, Lens] = {}
    for pose in poses:
        if pose.camera_id in used:
            continue
        if pose.camera_id not in cameras:
            raise SceneError(f"{path} has no camera {pose.camera_id}, which image {pose.name} refers to; "
                             "export the model again")
        check_lens(cameras[pose.camera_id])
        used[pose.camera_id] = cameras[pose.camera_id]
    return used


def _read(path: Path, from_bytes: Callable, from_lines: Callable):
    """Dispatch on the suffix; whatever a damaged file provokes becomes one sentence."""
    try:
        if path.suffix == ".bin":
            if path.stat().st_size < _COUNT.size:
                raise IndexError("no count")
            # Mapped, because the observations of thousands of images are gigabytes that nothing here looks at.
            with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return from_bytes(data, path)
        return from_lines(path.read_text(encoding="utf-8").split("\n"), path)
    except (struct.error, IndexError, OverflowError, MemoryError) as error:
        raise SceneError(f"{path} is cut short or damaged; copy or export the model again") from error
    except UnicodeDecodeError as error:
        raise SceneError(f"{path} holds names that are not UTF-8; export the model again") from error
    except OSError as error:
        raise SceneError(f"{path} cannot be read ({error.strerror or error})") from error


def _cameras_from_bytes(data: mmap.mmap, path: Path) -> dict[int, Lens]:
    cameras, at = {}, _COUNT.size
    for _ in range(_checked_count(data, _CAMERA.size)):
        camera_id, model_id, width, height = _CAMERA.unpack_from(data, at)
        origin = f"camera {camera_id} in {path}"
        model = model_name(model_id)
        if model is None:
            # The number of parameters is unknown too, so that nothing behind this camera can be read.
            raise unknown_model(f"number {model_id}", origin)
        count = param_count(model) or 0
        params = struct.unpack_from(f"<{count}d", data, at + _CAMERA.size)
        at += _CAMERA.size + 8 * count
        cameras[camera_id] = Lens(model, width, height, params, origin)
    return cameras


def _poses_from_bytes(data: mmap.mmap, path: Path) -> list[Pose]:
    poses, at = [], _COUNT.size
    for _ in range(_checked_count(data, _POSE.size)):
        _, qw, qx, qy, qz, tx, ty, tz, camera_id = _POSE.unpack_from(data, at)
        at += _POSE.size
        end = data.find(b"\0", at)
        if end < 0:
            raise IndexError("name without an end")
        name = data[at:end].decode("utf-8")
        (points,) = _COUNT.unpack_from(data, end + 1)
        at = end + 1 + _COUNT.size + _POINT2D_BYTES * points
        if at > len(data):
            raise IndexError("observations missing")
        poses.append(Pose(name, camera_id, (qw, qx, qy, qz), (tx, ty, tz)))
    return poses


def _points_from_bytes(data: mmap.mmap, path: Path) -> PointCloud:
    count, at = _checked_count(data, _POINT.size), _COUNT.size
    positions, colors = np.empty((count, 3), np.float64), np.empty((count, 3), np.uint8)
    for row in range(count):
        _, x, y, z, r, g, b, _, track = _POINT.unpack_from(data, at)
        positions[row], colors[row] = (x, y, z), (r, g, b)
        at += _POINT.size + _TRACK_BYTES * track
    if at > len(data):
        raise IndexError("track missing")
    return PointCloud(_single(positions), colors)


def _checked_count(data: mmap.mmap, least: int) -> int:
    """The file's leading count, refused before anything is allocated when the file is too small for it."""
    (count,) = _COUNT.unpack_from(data, 0)
    if _COUNT.size + count * least > len(data):
        raise IndexError("fewer records than announced")
    return count


def _cameras_from_lines(lines: list[str], path: Path) -> dict[int, Lens]:
    cameras = {}
    for number, line in _records(lines):
        fields = line.split()
        try:
            camera_id, width, height = int(fields[0]), int(fields[2]), int(fields[3])
            params = tuple(map(float, fields[4:]))
        except (ValueError, IndexError):
            raise _bad_line(path, number, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS") from None
        cameras[camera_id] = Lens(fields[1], width, height, params, f"camera {camera_id} in {path}")
    return cameras


def _poses_from_lines(lines: list[str], path: Path) -> list[Pose]:
    """Two lines an image; the second, its observations, may be empty, so that blank lines count there."""
    poses, observations = [], False
    for number, line in enumerate(lines, 1):
        if observations:
            observations = False
            continue
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.strip("\r").split(maxsplit=9)
        try:
            qw, qx, qy, qz, tx, ty, tz = map(float, fields[1:8])
            poses.append(Pose(fields[9].rstrip(), int(fields[8]), (qw, qx, qy, qz), (tx, ty, tz)))
        except (ValueError, IndexError):
            raise _bad_line(path, number, "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME") from None
        observations = True
    return poses


def _points_from_lines(lines: list[str], path: Path) -> PointCloud:
    positions, colors = [], []
    for number, line in _records(lines):
        fields = line.split(maxsplit=7)
        try:
            positions.append([float(value) for value in fields[1:4]])
            colors.append([min(max(int(value), 0), 255) for value in fields[4:7]])
            if len(positions[-1]) + len(colors[-1]) != 6:
                raise ValueError
        except ValueError:
            raise _bad_line(path, number, "POINT3D_ID X Y Z R G B ERROR TRACK[]") from None
    return PointCloud(_single(np.array(positions, np.float64).reshape(-1, 3)), np.array(colors, np.uint8).reshape(-1, 3))


def _single(positions: np.ndarray) -> np.ndarray:
    """float32; what does not fit becomes infinite and is left out with the other points that are not finite."""
    with np.errstate(over="ignore"):
        return positions.astype(np.float32)


def _records(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line number, text) without comments and blank lines."""
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#"))


def _bad_line(path: Path, number: int, layout: str) -> SceneError:
    return SceneError(f"line {number} of {path} does not read as {layout}; export the model again")
