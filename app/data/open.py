"""The front door: recognise() says what a path is, open_scene() makes a Scene of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from app.data import gaussians, ply
from app.data.checkpoints import describe, find, is_run, none_whole
from app.data.colmap import list_colmap
from app.data.images import DEFAULT_CACHE_BYTES, IMAGE_SUFFIXES, ImageCache
from app.data.listing import Listing
from app.data.photos import Progress
from app.data.scene import Scene, SceneError
from app.data.transforms import list_transforms
from app.data.views import alpha_notice, assign_splits, build_views, check_resolution

Kind = Literal["colmap", "transforms", "ply", "run", "unknown"]


@dataclass
class Recognised:
    """What a path was recognised as; `splatscope info` prints it, and the engine decides by `kind`."""

    path: str
    kind: Kind
    views: int = 0                       # images with a camera and a readable file
    listed: int = 0                      # images with a camera
    photos: int = 0                      # image files in the folder, registered or not
    missing: list[str] = field(default_factory=list)
    width: int = 0                       # px of the largest image as stored
    height: int = 0
    has_alpha: bool = False
    camera_models: dict[str, int] = field(default_factory=dict)
    points: int = 0
    gaussians: int = 0
    sh_degree: int | None = None         # of Gaussians
    source: str = ""                     # the model folder, JSON or PLY that was read
    images: str = ""                     # the image folder
    iterations: list[int] = field(default_factory=list)  # saved iterations of a run
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)   # ASCII: it goes through pipes of any encoding


def open_scene(path: str | Path, *, resolution: int = -1, long_side: int = 0, eval_every: int = 0,
               images: str | None = None, progress: Progress | None = None,
               cache_bytes: int = DEFAULT_CACHE_BYTES) -> Scene:
    """Open a COLMAP or transforms.json scene; images are decoded when a view first needs them.

    `resolution` is graphdeco's -r, `long_side` > 0 px overrides it (see views.target_size). `eval_every` 8 holds out
    every 8th view by name, or the test split of the files; 0 trains on all. `images` names the image folder.
    `progress(share, text)` is called while files are looked up; an exception raised in it cancels.
    Decoded images are kept up to `cache_bytes` (D17). Raises SceneError: one sentence, what, where, what to do.
    """
    check_resolution(resolution, long_side)
    path = Path(path).expanduser()
    listing = _list(path, images or None, -1 if long_side else resolution, progress)
    if listing is None:
        raise SceneError(_not_a_scene(path))
    warnings = list(listing.warnings)
    cache = ImageCache(cache_bytes)
    views = build_views(listing.photos, resolution=1 if listing.prepared else resolution, long_side=long_side,
                        cache=cache, warnings=warnings, prepared=bool(listing.prepared))
    views = assign_splits(views, listing.photos, eval_every, warnings)
    notice = alpha_notice(listing.photos)
    if notice:
        warnings.append(notice)
    if progress is not None:
        progress(1.0, f"{len(views)} views")
    located = listing.located
    return Scene(str(path), listing.kind, views, listing.points, listing.camera_models(),
                 located.missing + located.unreadable, warnings, notice is not None, image_bytes=lambda: cache.nbytes)


def recognise(path: str | Path) -> Recognised:
    """Say what a path holds without decoding images. Kind "unknown" comes with the reason in warnings.

    A scene that is damaged raises SceneError, as opening it would.
    """
    path = Path(path).expanduser()
    if is_run(path):
        return _recognise_run(path)
    if path.is_file() and path.suffix.lower() != ".json":
        return _recognise_ply(path)
    saved = find_run(path)
    if saved:
        found = _recognise_ply(saved[-1][1])
        found.path, found.kind, found.iterations = str(path), "run", [iteration for iteration, _ in saved]
        return found
    listing = _list(path, None, -1, None)
    if listing is None:
        return Recognised(str(path), "unknown", warnings=[_not_a_scene(path)])
    return _recognise_scene(path, listing)


def find_run(path: Path) -> list[tuple[int, Path]]:
    """(iteration, PLY) of every point cloud that a training run saved in a folder, oldest first."""
    saved = []
    for file in path.glob("point_cloud/iteration_*/point_cloud.ply"):
        number = file.parent.name.removeprefix("iteration_")
        if number.isdigit():
            saved.append((int(number), file))
    return sorted(saved)


def find_gaussians(path: Path) -> Path | None:
    """The splat file that a path stands for: the file itself, or the newest one of a run; None for a scene."""
    if path.is_file() and path.suffix.lower() != ".json":
        return path
    saved = find_run(path)
    return saved[-1][1] if saved else None


def _list(path: Path, images: str | None, resolution: int, progress: Progress | None) -> Listing | None:
    if not path.exists():
        raise SceneError(f"{path} does not exist; check the path")
    if path.is_dir():
        listing = list_colmap(path, images=images, resolution=resolution, progress=progress)
        if listing is not None:
            return listing
    return list_transforms(path, images=images, progress=progress)


def _recognise_scene(path: Path, listing: Listing) -> Recognised:
    warnings = list(listing.warnings)
    views = build_views(listing.photos, resolution=1, long_side=0, cache=ImageCache(0), warnings=warnings)
    if listing.points is None:   # whoever trains says it with how many
        warnings.append("The scene has no 3D points: training starts from random ones.")
    notice = alpha_notice(listing.photos)
    largest = max((photo.header for photo in listing.photos), key=lambda header: header.width * header.height)
    return Recognised(
        str(path), listing.kind, len(views), listing.listed, listing.on_disk,
        listing.located.missing + listing.located.unreadable, largest.width, largest.height, notice is not None,
        listing.camera_models(), len(listing.points.positions) if listing.points else 0,
        source=str(listing.model), images=str(listing.image_folder), warnings=warnings + ([notice] if notice else []))


def _recognise_run(path: Path) -> Recognised:
    """A checkpoint file, or a run that has some; damaged files are among the warnings."""
    if path.is_file():
        saved, complaints = [describe(path)], []
    else:
        saved, complaints = find(path)
    if not saved:
        raise SceneError(none_whole(path, complaints))
    iterations = sorted({checkpoint.iteration for checkpoint in saved} | {number for number, _ in find_run(path)})
    return Recognised(str(path), "run", gaussians=saved[0].gaussians, source=str(saved[0].path), iterations=iterations,
                      warnings=complaints)


def _recognise_ply(path: Path) -> Recognised:
    gaussians.check_format(path)
    vertex = ply.read_header(path).element("vertex")
    names = set(vertex.properties) if vertex else set()
    if {"x", "y", "z"} <= names and not names & {"f_dc_0", "opacity", "scale_0", "rot_0"}:
        cloud = ply.read_points(path)
        warning = "A point cloud without Gaussians: it can start a scene but not be viewed as splats."
        return Recognised(str(path), "ply", points=len(cloud.positions), source=str(path), warnings=[warning])
    loaded = gaussians.read_gaussians(path)
    return Recognised(str(path), "ply", gaussians=len(loaded.gaussians), sh_degree=loaded.gaussians.sh_degree,
                      source=str(path), warnings=list(loaded.notices))


def _not_a_scene(path: Path) -> str:
    """Why a path is no scene, and what to do about it."""
    if not path.is_file() and not path.is_dir():
        return f"{path} is neither a regular file nor a folder; choose the folder of a scene, a run or a PLY"
    if path.is_file():
        if path.suffix.lower() == ".ply":
            return f"{path} is a PLY, not a scene to train on; `splatscope view {path}` shows splats"
        return f"{path} is no scene; choose a folder with a COLMAP model or a transforms.json"
    if find_run(path):
        return f"{path} is the output of a training run; open the scene it was trained on, or `splatscope view {path}`"
    inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    scenes = [entry.name for entry in inside if entry.is_dir() and _looks_like_scene(entry)]
    if scenes:
        return f"{path} is a folder of scenes; open one of {', '.join(scenes[:5])}{' ...' if len(scenes) > 5 else ''}"
    photos = [*inside, *((path / "images").iterdir() if (path / "images").is_dir() else ())]
    if any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in photos):
        return f"{path} has photographs but no cameras; run COLMAP on them first, so that there is a sparse/0"
    return (f"{path} is no scene: it has neither a COLMAP model (sparse/0 with cameras and images, .bin or .txt) nor "
            "transforms.json; choose another folder")


def _looks_like_scene(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("sparse", "transforms.json", "transforms_train.json"))
