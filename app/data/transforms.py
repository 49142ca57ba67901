"""transforms.json scenes: instant-ngp, nerfstudio and Blender's transforms_{train,test}.json.

Poses are camera-to-world with OpenGL axes (+x right, +y up, -z forward). nerfstudio's applied_transform needs no code:
it is already in the frames' matrices and in the points of ply_file_path alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from app.data.images import ImageHeader
from app.data.lens import Lens, check_lens
from app.data.listing import Listing
from app.data.photos import Located, Photo, Progress, count_images, first_names, follow_link, locate
from app.data.ply import read_points
from app.data.scene import FARTHEST, PointCloud, SceneError

SPLIT_FILES = (("transforms_train.json", "train"), ("transforms_test.json", "test"))
IMAGE_FOLDERS = (".", "images", "train", "test")
POINT_FILES = ("init.ply", "sparse_pc.ply")
"""Initial points that tools write beside the JSON without naming them in it (brush, nerfstudio)."""
FISHEYES = ("OPENCV_FISHEYE", "FISHEYE")
PERSPECTIVES = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "FULL_OPENCV", "PERSPECTIVE")
MAX_SKEW = 1e-3
"""How far a rotation may be from orthonormal before it is said aloud; JSON writers round to 6 digits or so."""


@dataclass(frozen=True)
class Frame:
    """One entry of "frames" with what it inherits from the file."""

    values: Mapping[str, Any]   # the frame's own keys over the file's
    name: str                   # file_path as written
    matrix: np.ndarray          # [4,4] camera to world, OpenGL axes
    source: Path
    split: str | None


def find_transforms(path: Path) -> list[tuple[Path, str | None]]:
    """JSON files of a scene with the split that each stands for; empty where there is none."""
    if path.is_file() and path.suffix.lower() == ".json":
        if path.name not in (name for name, _ in SPLIT_FILES):
            return [(path, None)]
        path = path.parent
    if (path / "transforms.json").is_file():
        return [(path / "transforms.json", None)]
    files = [(path / name, split) for name, split in SPLIT_FILES if (path / name).is_file()]
    return [(files[0][0], None)] if len(files) == 1 else list(files)


def list_transforms(path: Path, *, images: str | None = None, progress: Progress | None = None) -> Listing | None:
    """Read the scene's JSON files; None where there are none. Nothing is decoded.

    Raises SceneError for JSON that cannot be understood, cameras that no pinhole can represent, and when every image
    is missing.
    """
    files = find_transforms(path)
    if not files:
        return None
    root = files[0][0].parent
    warnings: list[str] = []
    frames: list[Frame] = []
    metas: list[dict[str, Any]] = []
    for file, split in files:
        meta = _parse(file)
        metas.append(meta)
        frames += _frames(meta, file, split)
    folders = [root / folder for folder in IMAGE_FOLDERS]
    if images is not None:
        if not follow_link(root / images):
            raise SceneError(f"{root / images} is not a folder; choose one inside {root}")
        # Names usually start with their folder, "images/0001.jpg", which is not the folder asked for.
        folders = [root / images]
        located = _relocated(locate([PurePosixPath(f.name.replace("\\", "/")).name for f in frames], folders, progress),
                             frames)
    else:
        located = locate([frame.name for frame in frames], folders, progress)
    if not located.files:
        raise SceneError(f"none of the {len(frames)} images that {files[0][0]} lists is there "
                         f"({first_names([frame.name for frame in frames])}); put them where file_path says")
    photos = [_photo(frame, located, warnings) for frame in frames if frame.name in located.files]
    warnings += located.warnings() + _unused(frames)
    points = _points(root, metas, warnings)
    image_folder = photos[0].path.parent
    return Listing(root, "transforms", photos, located, points, len(frames),
                   max(count_images(image_folder), len(photos)), image_folder, files[0][0], 0, _merged(warnings))


def _parse(file: Path) -> dict[str, Any]:
    try:
        meta = json.loads(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise SceneError(f"{file} is not valid JSON (line {error.lineno}: {error.msg}); export it again") from error
    except RecursionError:
        raise SceneError(f"{file} nests its lists too deeply to be cameras; export it again") from None
    except UnicodeDecodeError as error:
        raise SceneError(f"{file} is not UTF-8 text; export it again") from error
    except OSError as error:
        raise SceneError(f"{file} cannot be read ({error.strerror or error})") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("frames"), list) or not meta["frames"]:
        raise SceneError(f'{file} has no list "frames" with cameras in it; export it from instant-ngp, nerfstudio '
                         "or Blender")
    return meta


def _frames(meta: dict[str, Any], file: Path, split: str | None) -> list[Frame]:
    held_out = {_clean(str(name)) for key in ("test_filenames", "val_filenames") for name in meta.get(key) or ()}
    frames = []
    for index, own in enumerate(meta["frames"]):
        where = f"frame {index} of {file}"
        if not isinstance(own, dict) or not isinstance(own.get("file_path"), str) or not own["file_path"]:
            raise SceneError(f"{where} has no file_path; export it again")
        try:
            matrix = np.array(own["transform_matrix"], np.float64)
        except (KeyError, ValueError, TypeError):
            raise SceneError(f"{where} ({own['file_path']}) has no transform_matrix of numbers; "
                             "export it again") from None
        if matrix.shape not in ((4, 4), (3, 4)) or not (np.abs(matrix) < FARTHEST).all():
            raise SceneError(f"{where} ({own['file_path']}) has a transform_matrix of shape {list(matrix.shape)}; "
                             f"it must be 4x4 or 3x4, finite and below {FARTHEST:g}: export it again")
        matrix = np.vstack([matrix[:3], [0.0, 0.0, 0.0, 1.0]])
        name = own["file_path"]
        frame_split = split or (("test" if _clean(name) in held_out else "train") if held_out else None)
        frames.append(Frame({**meta, **own}, name, matrix, file, frame_split))
    return frames


def _photo(frame: Frame, located: Located, warnings: list[str]) -> Photo:
    found = located.files[frame.name]
    lens = _lens(frame, found.header)
    check_lens(lens)
    return Photo(_clean(frame.name), found.path, found.header, lens, _viewmat(frame, warnings), frame.split)


def _lens(frame: Frame, header: ImageHeader) -> Lens:
    """Intrinsics from the frame or the file; what is absent follows from the image (size, centre)."""
    where = f"{frame.name} in {frame.source}"
    w, h = frame.values.get("w"), frame.values.get("h")
    # The pair in the JSON decides, together or not at all (D11).
    sized = w is not None and h is not None
    width, height = (_number(frame, "w"), _number(frame, "h")) if sized else (header.width, header.height)
    fx, fy = _focal(frame, width, height, where)
    center = _number(frame, "cx", 0.5 * width), _number(frame, "cy", 0.5 * height)
    model = str(frame.values.get("camera_model", "OPENCV")).upper()
    k1, k2, k3, k4 = (_number(frame, key, 0.0) for key in ("k1", "k2", "k3", "k4"))
    p1, p2 = _number(frame, "p1", 0.0), _number(frame, "p2", 0.0)
    size = (round(width), round(height))
    if model in FISHEYES or frame.values.get("is_fisheye"):
        return Lens("OPENCV_FISHEYE", *size, (fx, fy, *center, k1, k2, k3, k4), where)
    if frame.values.get("equirectangular") or model == "EQUIRECTANGULAR":
        return Lens("EQUIRECTANGULAR", *size, size, where)
    if model not in PERSPECTIVES or any(key in frame.values for key in ("ftheta_p0", "latlong")):
        name = "f-theta or latlong" if model in PERSPECTIVES else model
        raise SceneError(f"{where} uses the camera model {name}, which is not read from transforms.json; "
                         "undistort the images to PINHOLE first")
    if k4:
        raise SceneError(f"{where} has k4 = {k4:g} with the camera model {model}, where its meaning differs between "
                         "tools; set camera_model to OPENCV_FISHEYE, or undistort the images first")
    if k3:
        return Lens("FULL_OPENCV", *size, (fx, fy, *center, k1, k2, p1, p2, k3, 0.0, 0.0, 0.0), where)
    if k1 or k2 or p1 or p2:
        return Lens("OPENCV", *size, (fx, fy, *center, k1, k2, p1, p2), where)
    return Lens("PINHOLE", *size, (fx, fy, *center), where)


def _focal(frame: Frame, width: float, height: float, where: str) -> tuple[float, float]:
    """fl_x and fl_y in px; each from the other or from a field of view where it is absent (square pixels)."""
    known = frame.values
    fx = _number(frame, "fl_x") if "fl_x" in known else None
    fy = _number(frame, "fl_y") if "fl_y" in known else None
    if fx is None and "camera_angle_x" in known:
        fx = _from_angle(frame, "camera_angle_x", width)
    elif fy is None and "camera_angle_y" in known:
        fy = _from_angle(frame, "camera_angle_y", height)
    fx = fy if fx is None else fx
    if fx is None:
        raise SceneError(f"{where} has neither fl_x nor camera_angle_x, so that its focal length is unknown; "
                         "export it again")
    return fx, fx if fy is None else fy


def _from_angle(frame: Frame, key: str, side: float) -> float:
    angle = _number(frame, key)
    if not 0.0 < angle < math.pi:
        raise SceneError(f"{key} of {frame.name} in {frame.source} is {angle:g}; it must lie between 0 and pi: "
                         "give it in radians")
    return 0.5 * side / math.tan(0.5 * angle)


def _viewmat(frame: Frame, warnings: list[str]) -> np.ndarray:
    """[4,4] world to camera with OpenCV axes."""
    rotation = frame.matrix[:3, :3]
    u, scales, vt = np.linalg.svd(rotation)
    if scales[2] <= 1e-6 * max(scales[0], 1e-30) or np.linalg.det(rotation) <= 0.0:
        raise SceneError(f"the transform_matrix of {frame.name} in {frame.source} is singular or mirrored; "
                         "export it as a rotation and a position")
    if np.abs(scales - 1.0).max() > MAX_SKEW:
        warnings.append("{} transform matrices are not pure rotations; the nearest rotations are used.")
        rotation = u @ vt
    rotation = rotation * np.array([1.0, -1.0, -1.0])  # OpenGL's y and z axes point the other way
    viewmat = np.eye(4)
    viewmat[:3, :3] = np.linalg.inv(rotation)
    viewmat[:3, 3] = -viewmat[:3, :3] @ frame.matrix[:3, 3]
    return viewmat


def _points(root: Path, metas: list[dict[str, Any]], warnings: list[str]) -> PointCloud | None:
    named = next((str(meta["ply_file_path"]) for meta in metas if meta.get("ply_file_path")), None)
    if named:
        file = root / named.replace("\\", "/")
        if file.is_file():
            return _non_empty(read_points(file), file, warnings)
        warnings.append(f"ply_file_path names {named}, which is not there.")
        return None
    for name in POINT_FILES:
        if (root / name).is_file():
            warnings.append(f"Initial points are taken from {name}.")
            return _non_empty(read_points(root / name), root / name, warnings)
    return None


def _non_empty(points: PointCloud, file: Path, warnings: list[str]) -> PointCloud | None:
    if len(points.positions):
        return points
    warnings.append(f"{file.name} has no usable points.")
    return None


def _unused(frames: list[Frame]) -> list[str]:
    """Sentences for what the JSON offers and nothing here reads."""
    result = []
    masks = sum(1 for frame in frames if frame.values.get("mask_path"))
    depths = sum(1 for frame in frames if frame.values.get("depth_file_path") or frame.values.get("depth_path"))
    if masks:
        result.append(f"The masks of {masks} images are not used: what they hide is trained like the rest.")
    if depths:
        result.append(f"The depth maps of {depths} images are not used.")
    return result


def _relocated(located: Located, frames: list[Frame]) -> Located:
    """Results for bare names, under the frames' full names."""
    bare = {frame.name: PurePosixPath(frame.name.replace("\\", "/")).name for frame in frames}
    return Located({name: located.files[short] for name, short in bare.items() if short in located.files},
                   [name for name, short in bare.items() if short in located.missing],
                   [name for name, short in bare.items() if short in located.unreadable], located.links)


def _merged(warnings: list[str]) -> list[str]:
    """Sentences said once, with a count where they leave a place for it."""
    return [text.format(warnings.count(text)) if text.startswith("{}") else text for text in dict.fromkeys(warnings)]


def _number(frame: Frame, key: str, default: float | None = None) -> float:
    value = frame.values.get(key, default)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise SceneError(f"{key} of {frame.name} in {frame.source} is {value!r}, not a number; export it again")
    return number


def _clean(name: str) -> str:
    """The name to show and to sort by: no leading "./", no backslashes."""
    return PurePosixPath(name.replace("\\", "/")).as_posix()
