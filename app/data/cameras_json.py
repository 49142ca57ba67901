"""cameras.json beside a trained scene, in graphdeco's layout, which viewers read to place their cameras."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from app.data.atomic import write_atomic
from app.data.scene import View


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
