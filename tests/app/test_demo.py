"""The bundled demo: complete, small, and its cameras, pictures and points belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from plyfile import PlyData

from app.commands.window import demo_path
from app.data.open import open_scene


def split(name: str) -> dict[str, Any]:
    return json.loads((demo_path() / f"transforms_{name}.json").read_text(encoding="utf-8"))


def picture(frame: dict[str, Any]) -> np.ndarray:
    with Image.open(demo_path() / frame["file_path"]) as image:
        return np.asarray(image.convert("RGB"), float)


def cloud() -> tuple[np.ndarray, np.ndarray]:
    vertex = PlyData.read(str(demo_path() / "points.ply"))["vertex"]
    return np.stack([vertex[c] for c in "xyz"], 1), np.stack([vertex[c] for c in ("red", "green", "blue")], 1).astype(
        float
    )


def agreement(mirror: float) -> float:
    """Share of the points whose colour at least five training views show where the camera says it should be."""
    points, colors = cloud()
    data = split("train")
    hits = np.zeros(len(points))
    for frame in data["frames"][::3]:
        pose = np.asarray(frame["transform_matrix"])
        local = (points - pose[:3, 3]) @ pose[:3, :3] * [mirror, 1, 1]
        depth = np.maximum(-local[:, 2], 1e-6)
        x, y = data["fl_x"] * local[:, 0] / depth + data["cx"], -data["fl_y"] * local[:, 1] / depth + data["cy"]
        inside = (local[:, 2] < 0) & (x >= 0) & (x < data["w"]) & (y >= 0) & (y < data["h"])
        shown = picture(frame)[y[inside].astype(int), x[inside].astype(int)]
        hits[np.flatnonzero(inside)] += np.abs(shown - colors[inside]).max(-1) < 40
    return float((hits >= 5).mean())


def test_it_is_complete_and_small() -> None:
    train, test = split("train"), split("test")
    assert (len(train["frames"]), len(test["frames"])) == (60, 8)
    size = sum(p.stat().st_size for p in demo_path().rglob("*") if p.is_file())
    assert size < 6e6
    assert 2000 <= len(cloud()[0]) <= 8000
    names = [f["file_path"] for f in train["frames"] + test["frames"]]
    assert len(set(names)) == len(names)
    for frame in (*train["frames"][:3], *test["frames"][:3]):
        assert picture(frame).shape == (train["h"], train["w"], 3)


def test_points_fall_where_the_pictures_show_their_colour() -> None:
    right, mirrored = agreement(1.0), agreement(-1.0)
    assert right > 0.75, right
    assert mirrored < right - 0.3, mirrored


def test_held_out_views_lie_between_the_training_views() -> None:
    eyes = {
        name: np.asarray([f["transform_matrix"] for f in split(name)["frames"]])[:, :3, 3] for name in ("train", "test")
    }
    for eye in eyes["test"]:
        distance = np.sort(np.linalg.norm(eyes["train"] - eye, axis=1))
        assert 0.05 < distance[0] < 2.0


def test_the_loader_opens_it_without_a_warning() -> None:
    scene = open_scene(str(demo_path()), eval_every=8)
    assert (len(scene.train), len(scene.test)) == (60, 8)
    assert scene.warnings == [] and scene.missing == [] and not scene.has_alpha
    assert scene.points is not None and len(scene.points.positions) == len(cloud()[0])
    view = scene.train[0]
    assert view.load().dtype == np.uint8 and view.load().shape == (view.camera.height, view.camera.width, 3)


@pytest.mark.parametrize(("name", "size"), [("icon.png", (256, 256)), ("icon.ico", (256, 256))])
def test_the_icon_is_there(name: str, size: tuple[int, int]) -> None:
    with Image.open(Path(demo_path().parent) / name) as image:
        assert image.size == size
        corner = np.asarray(image.convert("RGBA"))[0, 0]
        assert corner[3] == 0, "the tile's corners are rounded"
