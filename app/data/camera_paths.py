"""Camera paths as JSON files: versioned, written atomically, and refused in one sentence when they cannot be read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from app.camera_path import CameraPath, Key, Lens
from app.data.atomic import write_atomic
from app.data.regular import regular
from app.data.scene import SceneError

FORMAT, VERSION = "splatscope camera path", 1


def to_dict(path: CameraPath) -> dict[str, Any]:
    """Plain values, as the JSON file has them."""
    keys: list[dict[str, Any]] = []
    for key in path.keys:
        entry = {"time": key.time, "position": key.position.tolist(), "quaternion_wxyz": key.quat.tolist(),
                 "fov_y_degrees": math.degrees(key.fov_y)}
        if key.lens is not None:
            entry["lens"] = {"pixel_aspect": key.lens.pixel_aspect, "shift_x": key.lens.shift_x, "shift_y": key.lens.shift_y}
        keys.append(entry)
    return {"format": FORMAT, "version": VERSION, "closed": path.closed, "constant_speed": path.constant_speed,
            "speed": path.speed, "near": path.near, "keys": keys}


def from_dict(found: Any, source: str) -> CameraPath:
    """The path in what a JSON file held. Raises SceneError naming `source`, what is wrong and what to do."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SceneError(f"{source} is no camera path; save one in the window's tab Camera")
    if found.get("version") != VERSION:
        raise SceneError(f"{source} is a camera path of version {found.get('version')!r}, and this program reads version "
                         f"{VERSION}; save it again with the program that made it, or use a newer Splatscope")
    try:
        keys = tuple(_key(entry, k + 1) for k, entry in enumerate(found["keys"]))
        for name in ("closed", "constant_speed"):
            if not isinstance(found[name], bool):
                raise ValueError(f"{name} is not true or false")
        speed, near = _finite([found["speed"], found["near"]], "speed or near").tolist()
        if near <= 0.0:
            raise ValueError(f"near is {near:g} and must be more than 0")
        return CameraPath(keys, found["closed"], found["constant_speed"], speed, near)
    except KeyError as error:
        raise SceneError(f"{source} is a damaged camera path: {error} is missing; save it again") from error
    except SceneError as error:
        raise SceneError(f"{source}: {error}") from error
    except (ValueError, TypeError) as error:
        raise SceneError(f"{source} is a damaged camera path: {error}; save it again") from error


def save_path(file: str | Path, path: CameraPath) -> None:
    """Atomic, in place of a camera path of before. Raises SceneError where it cannot be written, or where another file is."""
    where = Path(file).expanduser()
    if where.is_file():
        try:
            load_path(where)
        except SceneError as error:
            raise SceneError(f"{str(error).split('; ')[0]}, so it is not overwritten; choose another name, or remove it"
                             ) from error
    text = json.dumps(to_dict(path), indent=1)
    write_atomic(where, lambda stream: stream.write(text.encode("ascii")))


def load_path(file: str | Path) -> CameraPath:
    """Raises SceneError, one sentence, for a file that cannot be read or holds no path."""
    where = Path(file).expanduser()
    try:
        found = json.loads(regular(where).read_text(encoding="utf-8"))
    except OSError as error:
        raise SceneError(f"{file} cannot be read ({(error.strerror or str(error)).lower()}); check the path") from error
    except ValueError as error:
        raise SceneError(f"{file} is not valid JSON ({error}); choose a camera path") from error
    return from_dict(found, str(file))


def _key(entry: Any, number: int) -> Key:
    where = f"of key {number}"
    position = _finite(entry["position"], f"position {where}", 3)
    quat = _finite(entry["quaternion_wxyz"], f"quaternion_wxyz {where}", 4)
    size = float(np.linalg.norm(quat))
    if size < 1e-6:
        raise ValueError(f"quaternion_wxyz {where} is zero")
    fov, time = _finite([entry["fov_y_degrees"], entry["time"]], f"fov_y_degrees or time {where}")
    if not 0.1 <= fov <= 170.0:
        raise ValueError(f"fov_y_degrees {where} is {fov:g} and must be 0.1 to 170")
    lens = entry.get("lens")
    if lens is not None:
        aspect, x, y = _finite([lens["pixel_aspect"], lens["shift_x"], lens["shift_y"]], f"lens {where}")
        if aspect <= 0.0:
            raise ValueError(f"pixel_aspect {where} is {aspect:g} and must be more than 0")
        lens = Lens(float(aspect), float(x), float(y))
    return Key(position, quat / size, math.radians(fov), float(time), lens)


def _finite(values: Any, what: str, count: int | None = None) -> np.ndarray:
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or (count is not None and len(found) != count) or not np.isfinite(found).all():
        raise ValueError(f"{what} is not {'a finite number' if count is None else f'{count} finite numbers'}")
    return found
