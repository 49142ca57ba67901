"""Which cameras `splatscope render` draws from: a path, a turntable, or those of the photographs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.camera_path import framed, turntable
from app.commands.errors import UsageError
from app.data.camera_paths import load_path
from app.data.cameras_json import read_cameras_json
from app.data.checkpoints import find, header
from app.data.films import frame_names, is_video
from app.data.open import open_scene
from app.data.orient import scene_center, scene_extent, scene_up
from app.data.regular import regular
from app.data.scene import Scene, SceneError, View
from app.demo import demo_folder
from app.records.place import CONFIG
from render.types import Camera

if TYPE_CHECKING:
    from app.commands.render import RenderArgs

SIZE = (1280, 720)
NEAR_EXTENTS = 0.02
"""As the window's free camera: a Gaussian beside the eye would lie over the picture as fog."""
OUTSIDE = 2.5
"""A model without photographs is turned at so many times the radius that holds most of it, from a little above."""
ABOVE = 0.35


@dataclass(frozen=True)
class Shots:
    """What to draw: a camera and the name of a PNG for each; `indices` are those of scene views."""

    cameras: list[Camera]
    names: list[str]
    indices: list[int] | None = None


@dataclass(frozen=True)
class Surroundings:
    """What the photographs' cameras say, or the Gaussians where there are none."""

    center: np.ndarray
    up: np.ndarray
    extent: float
    radius: float      # of a turntable
    above: float       # its height


def surroundings(views: list[View], scene: Scene | None, means: np.ndarray, up: tuple[float, ...]) -> Surroundings:
    """means [N,3]; `up` overrides the direction."""
    if views:
        center, extent = scene_center(views, scene.points if scene is not None else None), float(scene_extent(views)) or 1.0
        direction = np.array(up) if up else scene_up(views)
        direction = direction / np.linalg.norm(direction)
        away = np.array([view.camera.center for view in views]) - center
        above = float(np.median(away @ direction))
        radius = float(np.median(np.linalg.norm(away - np.outer(away @ direction, direction), axis=1)))
        return Surroundings(center, direction, extent, max(radius, 0.05 * extent), above)
    center = np.median(means, axis=0).astype(np.float64)
    extent = float(np.quantile(np.linalg.norm(means - center, axis=1), 0.9)) or 1.0
    direction = np.array(up) if up else np.array([0.0, -1.0, 0.0])   # most reconstructions keep the first camera's axes
    return Surroundings(center, direction, extent, OUTSIDE * extent, ABOVE * OUTSIDE * extent)


def views_of(model: Path, scene: Scene | None) -> tuple[list[View], str]:
    """(views, why there are none): the scene's, or stand-ins for the cameras that a run left beside its Gaussians, or those of
    the scene that the run names."""
    if scene is not None:
        return scene.views, ""
    for folder in (model, *model.parents[:3]) if model.exists() else ():
        file = folder / "cameras.json"
        if folder.is_dir() and file.is_file():
            return [View(name, camera, _no_image) for name, camera in read_cameras_json(file)], ""
    how = _named_scene(model)
    path = str(demo_folder()) if how.get("kind") == "demo" else str(how.get("path") or "")
    if not path:
        return [], "no cameras are known"
    try:
        found = open_scene(path, resolution=int(how.get("resolution", -1)), long_side=int(how.get("long_side", 0)),
                           images=str(how.get("images") or "") or None, eval_every=int(how.get("eval_every", 0)))
    except (SceneError, TypeError, ValueError):
        return [], f"the scene of the run, {path}, cannot be opened"
    return found.views, ""


def _named_scene(model: Path) -> Mapping[str, Any]:
    """How a run's scene was opened, as its record says, or its newest checkpoint; empty where neither does."""
    for folder in model.parents[:3] if model.is_file() else (model,):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(regular(folder / CONFIG).read_text(encoding="utf-8"))["scene"]
            if isinstance(told, dict):
                return told
    with contextlib.suppress(OSError, SceneError, ValueError, KeyError, TypeError, AttributeError):
        found = [model] if model.is_file() else [saved.path for saved in find(model)[0]]
        told = json.loads(header(found[0])["extra"])["scene"] if found else {}
        return told if isinstance(told, dict) else {}
    return {}


def guess(args: RenderArgs, views: list[View], why: str) -> str:
    """What is said where up is guessed; empty where it is known, or not asked for."""
    if views or args.up or not args.turntable:
        return ""
    return f"{why}, so up is guessed to be the direction -y: name the scene with --scene, or say --up X Y Z"


def _no_image() -> np.ndarray:
    raise UsageError("the photographs are with the scene; name it with --scene")


def shots(args: RenderArgs, views: list[View], around: Surroundings) -> Shots:
    """Raises UsageError or SceneError where they cannot be."""
    if args.views:
        return _at_views(args, views)
    width, height = _size(args.width, args.height, SIZE)
    if args.path:
        cameras = load_path(args.path).sample(args.fps, width, height)
    else:
        count = max(3, round(args.seconds * args.fps))
        above = around.above if args.above is None else args.above
        path = turntable(around.center, around.up, args.radius or around.radius, above, count, seconds=args.seconds,
                         near=max(0.01, NEAR_EXTENTS * around.extent))
        cameras = path.cameras_at(path.key_times[:-1], width, height)
    return Shots(cameras, frame_names(len(cameras)))


def _at_views(args: RenderArgs, views: list[View]) -> Shots:
    if not views:
        raise UsageError(f"{args.model} has no cameras.json beside it; name the scene with --scene, or use --turntable")
    cameras = []
    for view in views:
        own = view.camera
        if args.width or args.height or is_video(args.out):
            first = cameras[0] if cameras and is_video(args.out) else own   # the frames of a video are of one size
            own = framed(own, *_size(args.width, args.height, (first.width, first.height)))
        cameras.append(own)
    names: list[str] = []
    for view in views:
        stem = re.sub(r"[^\w.-]+", "_", view.name.rpartition(".")[0] or view.name)
        name, number = f"{stem}.png", 2
        while name in names:
            name, number = f"{stem}_{number}.png", number + 1
        names.append(name)
    return Shots(cameras, names, list(range(len(views))))


def _size(width: int, height: int, own: tuple[int, int]) -> tuple[int, int]:
    """What is not given follows from the shape of `own`."""
    if width and height:
        return width, height
    if width:
        return width, max(1, round(width * own[1] / own[0]))
    if height:
        return max(1, round(height * own[0] / own[1])), height
    return own
