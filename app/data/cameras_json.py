"""cameras.json beside a trained scene, in graphdeco's layout, which viewers read to place their cameras."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.data.atomic import write_atomic
from app.data.regular import regular
from app.data.scene import SceneError, View
from render.types import Camera


def write_cameras_json(path: str | Path, views: Sequence[View]) -> None:
    """Write one entry per view, test views first as graphdeco does: position and rotation are camera to world.

    Sizes and focal lengths are those of the training resolution; cx and cy, which graphdeco leaves out,
    keep off-centre principal points.
    """
    ordered = [*(v for v in views if v.split == "test"), *(v for v in views if v.split == "train")]
    entries = []
    for index, view in enumerate(ordered):
        camera = view.camera
        entries.append({
            "id": index, "img_name": view.name, "width": camera.width, "height": camera.height,
            "position": camera.center.tolist(), "rotation": camera.viewmat[:3, :3].T.tolist(),
            "fx": float(camera.K[0, 0]), "fy": float(camera.K[1, 1]),
            "cx": float(camera.K[0, 2]), "cy": float(camera.K[1, 2]),
        })
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    write_atomic(path, lambda stream: stream.write(text.encode("utf-8")))


def read_cameras_json(path: str | Path) -> list[tuple[str, Camera]]:
    """(image name, camera) of every entry, in the file's order; without cx and cy the principal point is the centre.

    Raises SceneError, one sentence, for a file that cannot be read or is of another layout.
    """
    try:
        entries = json.loads(regular(Path(path)).read_text(encoding="utf-8"))
        return [(str(entry["img_name"]), _camera(entry)) for entry in entries]
    except OSError as error:
        raise SceneError(f"{path} cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SceneError(f"{path} is not the cameras.json of a training run ({type(error).__name__}: {error}); "
                         "save the run again") from error


def _camera(entry: dict) -> Camera:
    width, height = int(entry["width"]), int(entry["height"])
    to_world, position = np.array(entry["rotation"], float), np.array(entry["position"], float)
    if to_world.shape != (3, 3) or position.shape != (3,) or width < 1 or height < 1:
        raise ValueError(f"camera {entry.get('img_name')!r} has not the shapes of a camera")
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = to_world.T, -to_world.T @ position
    K = np.array([[entry["fx"], 0.0, entry.get("cx", width / 2)], [0.0, entry["fy"], entry.get("cy", height / 2)],
                  [0.0, 0.0, 1.0]], float)
    return Camera(viewmat, K, width, height)
