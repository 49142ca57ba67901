"""COLMAP scenes: which model and which image folder, and everything about them that deserves a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.data.colmap_model import count_poses, model_files, read_cameras, read_points, read_poses, used_lenses
from app.data.listing import Listing
from app.data.photos import Located, Photo, Progress, count_images, first_names, follow_link, locate
from app.data.scene import PointCloud, SceneError

IMAGE_FOLDERS = ("images", "input", "images_2", "images_4", "images_8", ".")
PROBE = 50
"""Names that are looked for before an image folder is chosen."""


@dataclass(frozen=True)
class Model:
    folder: Path
    registered: int
    workspace: Path  # the folder that images/ belongs to


def find_models(root: Path) -> list[Model]:
    """Models of the first place that has any: sparse/0..n and sparse, then COLMAP's and nerfstudio's other layouts."""
    if model_files(root):
        # The model folder itself was given: images/ lies beside sparse/ or beside the model.
        workspace = next((up for up in root.parents[:2] if follow_link(up / "images")), root.parent)
        return [Model(root, count_poses(model_files(root)[1]), workspace)]  # type: ignore[index]
    for workspace in (root, root / "colmap", root / "dense", root / "dense" / "0", root / "distorted"):
        sparse = workspace / "sparse"
        if not sparse.is_dir():
            continue
        folders = [*sorted((f for f in sparse.iterdir() if f.is_dir()), key=_natural), sparse]
        models = [Model(folder, count_poses(files[1]), workspace)
                  for folder in folders if (files := model_files(folder))]
        if models:
            return models
    return []


def list_colmap(root: Path, *, images: str | None = None, resolution: int = -1,
                progress: Progress | None = None) -> Listing | None:
    """Read the best model under `root`; None where there is none. Nothing is decoded.

    `images` names the image folder, relative to the scene or absolute. With -r 2, 4 or 8 a complete images_2, _4 or _8
    is used as it is. Raises SceneError for damaged files, camera models without a pinhole and when no image is found.
    """
    models = find_models(root)
    if not models:
        return None
    best = max(models, key=lambda model: model.registered)
    camera_file, image_file = model_files(best.folder)  # type: ignore[misc]
    poses = read_poses(image_file)
    if not poses:
        raise SceneError(f"{best.folder} has no registered image; run COLMAP's mapper again or open another model")
    lenses = used_lenses(read_cameras(camera_file), poses, camera_file)
    points = read_points(best.folder)
    warnings: list[str] = []

    names = [pose.name for pose in poses]
    folder, prepared = _image_folder(root, best, names, images, resolution)
    located = locate(names, [folder], progress)
    if not located.files:
        raise SceneError(f"none of the {len(names)} images of {best.folder} is in {folder} "
                         f"({first_names(names)}); put them there or name their folder with --images")
    photos = [Photo(pose.name, located.files[pose.name].path, located.files[pose.name].header,
                    lenses[pose.camera_id], pose.viewmat()) for pose in poses if pose.name in located.files]
    on_disk = max(count_images(follow_link(folder) or folder), len(photos))
    points = _finite_points(points, best.folder, warnings)
    warnings += _warnings(root, best, models, located, on_disk)
    if prepared:
        warnings.append(f"The prepared {folder.name} is used for -r {prepared}.")
    elif images is None and folder.name.startswith("images_"):
        warnings.append(f"There is no images folder; {folder.name} is used.")
    if any(not lens.is_pinhole for lens in lenses.values()):
        warnings += _undistorted_offer(root, best)
    return Listing(root, "colmap", photos, located, points, len(poses), on_disk, folder, best.folder, prepared,
                   warnings)


def _image_folder(root: Path, model: Model, names: list[str], images: str | None,
                  resolution: int) -> tuple[Path, int]:
    """(folder, N where a prepared images_N is used for -r N, else 0)."""
    if images is not None:
        for base in (model.workspace, root):
            if follow_link(base / images):
                return base / images, 0
        there = sorted(f.name for f in model.workspace.iterdir() if f.is_dir())
        raise SceneError(f"{model.workspace / images} is not a folder; choose one of {', '.join(there) or 'none'}")
    if resolution in (2, 4, 8):
        prepared = model.workspace / f"images_{resolution}"
        if follow_link(prepared) and len(locate(names, [prepared]).files) == len(names):
            return prepared, resolution
    for base in dict.fromkeys((model.workspace, root)):
        for name in IMAGE_FOLDERS:
            folder = base / name if name != "." else base
            if follow_link(folder) and locate(names[:PROBE], [folder]).files:
                return folder, 0
    return model.workspace / "images", 0


def _warnings(root: Path, best: Model, models: list[Model], located: Located, on_disk: int) -> list[str]:
    result = []
    if len(models) > 1:
        others = ", ".join(f"{model.folder.name} has {model.registered}" for model in models if model is not best)
        result.append(f"{len(models)} models: {best.folder.relative_to(root).as_posix()} with the most registered "
                      f"images is used ({others}).")
    if len(models) > 1 or best.registered < on_disk:
        result.append(f"Registered {best.registered} of {on_disk} images.")
    result += located.warnings()
    if (best.workspace / "masks").is_dir():
        result.append("The masks folder is not used: what the masks hide is trained like the rest.")
    return result


def _finite_points(points: PointCloud | None, folder: Path, warnings: list[str]) -> PointCloud | None:
    if points is None:
        return None
    finite = np.isfinite(points.positions).all(axis=1)
    lost = len(points.positions) - int(finite.sum())
    if lost == 0:
        return points
    warnings.append(f"{lost:,} of {len(points.positions):,} 3D points are not finite and are left out.")
    return PointCloud(points.positions[finite], points.colors[finite]) if finite.any() else None


def _undistorted_offer(root: Path, model: Model) -> list[str]:
    """A sentence when an undistorted PINHOLE version of a distorted model lies beside it (D02)."""
    for workspace in (root / "dense", root / "dense" / "0", root / "undistorted", root):
        for folder in (workspace / "sparse", workspace / "sparse" / "0"):
            files = model_files(folder)
            if files is None or folder == model.folder:
                continue
            try:
                pinhole = all(lens.is_pinhole for lens in read_cameras(files[0]).values())
            except SceneError:
                continue
            if pinhole:
                target = workspace if workspace != root else folder
                return [f"An undistorted PINHOLE model lies in {folder.relative_to(root).as_posix()}; "
                        f"open {target} to use it instead."]
    return []


def _natural(path: Path) -> tuple[int, int, str]:
    return (0, int(path.name), "") if path.name.isdigit() else (1, 0, path.name)
