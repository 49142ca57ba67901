"""Small scenes written to a temporary folder, so that every rule can be tested without real data."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

W, H = 64, 48
PINHOLE = ("PINHOLE", 1, (60.0, 61.0, 33.0, 22.0))
OPENCV = ("OPENCV", 4, (60.0, 61.0, 33.0, 22.0, 0.05, 0.01, 0.001, -0.002))
NAMES = tuple(f"{index:03d}.png" for index in range(10))


def picture(width: int = W, height: int = H, channels: int = 3, seed: int = 0) -> np.ndarray:
    """A smooth uint8 picture."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127.0 + 120.0 * np.sin(x / (5.0 + c) + seed) * np.cos(y / (7.0 + c)) for c in range(channels)]
    return np.stack(waves, axis=2).astype(np.uint8)


def write_images(folder: Path, names: Sequence[str], width: int = W, height: int = H, channels: int = 3) -> None:
    for index, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(width, height, channels, index)).save(path)


def pose(index: int, count: int = 10) -> tuple[list[float], list[float]]:
    """(quaternion wxyz, translation), world to camera: on a circle of radius 4 around the origin, looking at it."""
    half = math.pi * index / count
    return [math.cos(half), 0.0, math.sin(half), 0.0], [0.0, 0.0, 4.0]


def write_model(folder: Path, names: Sequence[str] = NAMES, *, text: bool = False, camera=PINHOLE,
                size: tuple[int, int] = (W, H), points: int = 50) -> np.ndarray:
    """Write a COLMAP model with one camera; returns the points [P,3]."""
    folder.mkdir(parents=True, exist_ok=True)
    positions = np.random.default_rng(0).uniform(-0.5, 0.5, (points, 3))
    (_text if text else _binary)(folder, names, camera, size, positions)
    return positions


def _text(folder: Path, names: Sequence[str], camera, size: tuple[int, int], positions: np.ndarray) -> None:
    model, _, params = camera
    (folder / "cameras.txt").write_text(
        f"# Camera list\n7 {model} {size[0]} {size[1]} {' '.join(map(str, params))}\n", encoding="utf-8")
    lines = ["# Image list"]
    for index, name in enumerate(names):
        quat, translation = pose(index, len(names))
        lines += [f"{index + 1} {' '.join(map(str, [*quat, *translation]))} 7 {name}", "" if index % 2 else "1.5 2.5 1"]
    (folder / "images.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [f"{row + 1} {x} {y} {z} {row % 256} 20 30 0.5 1 0 2 0" for row, (x, y, z) in enumerate(positions)]
    (folder / "points3D.txt").write_text("\n".join(["# points", *rows]) + "\n", encoding="utf-8")


def _binary(folder: Path, names: Sequence[str], camera, size: tuple[int, int], positions: np.ndarray) -> None:
    _, model_id, params = camera
    (folder / "cameras.bin").write_bytes(
        struct.pack("<QIiQQ", 1, 7, model_id, *size) + struct.pack(f"<{len(params)}d", *params))
    data = struct.pack("<Q", len(names))
    for index, name in enumerate(names):
        quat, translation = pose(index, len(names))
        observations = index % 3
        data += struct.pack("<I7dI", index + 1, *quat, *translation, 7) + name.encode() + b"\0"
        data += struct.pack("<Q", observations) + struct.pack("<ddq", 1.5, 2.5, 1) * observations
    (folder / "images.bin").write_bytes(data)
    data = struct.pack("<Q", len(positions))
    for row, position in enumerate(positions):
        data += struct.pack("<Q3d3BdQ", row + 1, *position, row % 256, 20, 30, 0.5, 2) + struct.pack("<4I", 1, 0, 2, 0)
    (folder / "points3D.bin").write_bytes(data)


def colmap_scene(root: Path, names: Sequence[str] = NAMES, *, channels: int = 3, size: tuple[int, int] = (W, H),
                 image_size: tuple[int, int] | None = None, model: str = "sparse/0", **named) -> Path:
    """A complete COLMAP scene below `root`; returns `root`."""
    write_images(root / "images", names, *(image_size or size), channels)
    write_model(root / model, names, size=size, **named)
    return root


def camera_to_world(index: int, count: int = 10) -> list[list[float]]:
    """[4][4] with OpenGL axes, of the same camera as pose()."""
    (w, _, y, _), translation = pose(index, count)
    angle = 2.0 * math.atan2(y, w)
    rotation = np.array([[math.cos(angle), 0.0, math.sin(angle)], [0.0, 1.0, 0.0], [-math.sin(angle), 0.0, math.cos(angle)]])
    matrix = np.eye(4)
    matrix[:3, :3] = rotation.T * [1.0, -1.0, -1.0]
    matrix[:3, 3] = -rotation.T @ np.array(translation)
    return matrix.tolist()


def frames(paths: Sequence[str]) -> list[dict]:
    return [{"file_path": path, "transform_matrix": camera_to_world(index, len(paths))}
            for index, path in enumerate(paths)]


def transforms_scene(root: Path, names: Sequence[str] = NAMES, *, paths: Sequence[str] | None = None,
                     file: str = "transforms.json", channels: int = 3, **keys) -> Path:
    """Images in images/ and a JSON that lists `paths` (by default images/NAME); `keys` go into the JSON."""
    write_images(root / "images", names, channels=channels)
    meta = {"w": W, "h": H, "fl_x": 60.0, "fl_y": 61.0, "cx": 33.0, "cy": 22.0}
    meta = {**meta, **keys, "frames": frames(paths or [f"images/{name}" for name in names])}
    (root / file).write_text(json.dumps({key: value for key, value in meta.items() if value is not None}))
    return root
