"""From photographs to Views: intrinsics of the actual file, undistortion, resolution, and the held-out split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from app.data.images import ImageCache, decode, downscale
from app.data.lens import Lens, pinhole_matrix, rectified, undistort
from app.data.photos import Photo, first_names
from app.data.scene import SceneError, View
from render.types import Camera

MAX_DEFAULT_WIDTH = 1600
"""Wider images are downscaled to this unless a resolution is asked for, as graphdeco does."""
FACTORS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Recipe:
    """How the pixels of one view come about; also its key in the image cache."""

    path: Path
    stored: tuple[int, int]  # width and height of the file
    lens: Lens               # undistorted with; the file is averaged down to its size first
    width: int
    height: int


def check_resolution(resolution: int, long_side: int) -> None:
    """SceneError for a -r or long side that means nothing."""
    if resolution != -1 and resolution not in FACTORS and resolution <= 8:
        raise SceneError(f"-r {resolution} means nothing; choose a factor 1, 2, 4 or 8, a width above 8 px, "
                         f"or -1 (at most {MAX_DEFAULT_WIDTH} px wide)")
    if long_side < 0:
        raise SceneError(f"a long side of {long_side} px is impossible; choose a positive number, or 0 for no limit")


def target_size(width: int, height: int, resolution: int, long_side: int) -> tuple[int, int]:
    """(width, height) in px to train at. Never enlarges.

    `resolution` as graphdeco's -r: 1, 2, 4, 8 divide; above 8 it is the width; -1 caps the width at 1600 px.
    `long_side` > 0 decides instead: the longer side gets that many px.
    """
    if long_side > 0:
        scale = min(1.0, long_side / max(width, height))
    elif resolution in FACTORS:
        scale = 1.0 / resolution
    else:
        scale = min(1.0, (MAX_DEFAULT_WIDTH if resolution == -1 else resolution) / width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def build_views(photos: Sequence[Photo], *, resolution: int, long_side: int, cache: ImageCache,
                warnings: list[str], prepared: bool = False) -> list[View]:
    """Views sorted by name, all of them "train"; sentences for the user are appended to `warnings`.

    `prepared` says that the files were downscaled beforehand and that the user asked for exactly that.
    """
    views, capped, distorted = [], Counter(), Counter()
    rescaled: dict[tuple[int, ...], int] = {}
    for photo in sorted(photos, key=lambda photo: photo.name):
        lens = lens_of_file(photo)
        sizes = (photo.lens.width, photo.lens.height, lens.width, lens.height)
        if sizes[:2] != sizes[2:]:
            rescaled[sizes] = rescaled.get(sizes, 0) + 1
        straight = rectified(lens)
        width, height = target_size(straight.width, straight.height, resolution, long_side)
        if resolution == -1 and not long_side and width < straight.width:
            capped[straight.width] += 1
        if not lens.is_pinhole:
            distorted[lens.model] += 1
        working = working_lens(lens, straight.width / width)
        straight = rectified(working)
        camera = Camera(photo.viewmat, pinhole_matrix(straight), straight.width, straight.height)
        recipe = Recipe(photo.path, (lens.width, lens.height), working, width, height)
        views.append(View(photo.name, camera.resized(width, height), partial(_load, cache, recipe)))
    if distorted:
        models = ", ".join(f"{count} {name}" for name, count in sorted(distorted.items()))
        warnings.append(f"Images of distorted cameras ({models}) are undistorted in memory.")
    if capped:
        warnings.append(f"Images up to {max(capped)} px wide are downscaled to {MAX_DEFAULT_WIDTH} px; "
                        "-r 1 keeps them whole.")
    if rescaled and not prepared:
        (width, height, *actual), _ = max(rescaled.items(), key=lambda item: item[1])
        warnings.append(f"{sum(rescaled.values())} images differ in size from their cameras ({actual[0]}x{actual[1]} "
                        f"instead of {width}x{height}); the intrinsics are rescaled to the images.")
    return views


def lens_of_file(photo: Photo) -> Lens:
    """The photo's lens rescaled to the size of its file.

    SceneError where the aspect differs by more than rounding a side to whole pixels explains (D11): that is
    another image, not another resolution.
    """
    lens, header = photo.lens, photo.header
    low = max((header.width - 1) / lens.width, (header.height - 1) / lens.height)
    high = min((header.width + 1) / lens.width, (header.height + 1) / lens.height)
    if low <= high:
        return lens.rescaled(header.width, header.height)
    hint = "use the images that the cameras were solved with"
    if header.turned and (header.width > header.height) != (lens.width > lens.height):
        hint = "EXIF orientation is not applied, as in COLMAP: store it upright, or solve the cameras with this file"
    raise SceneError(f"{photo.path} is {header.width}x{header.height} but {lens.origin} says "
                     f"{lens.width}x{lens.height}, another aspect ratio; {hint}")


def working_lens(lens: Lens, factor: float) -> Lens:
    """The lens at the resolution in which to undistort on the way to a picture `factor` times smaller.

    Undistortion costs a second for 8 megapixels, so that it is done at about twice the final size where the file's
    sides divide by a whole number; otherwise, and for small factors, at full size. Interpolating at the final size
    would blur.
    """
    divisor = 1 if lens.is_pinhole else int(factor / 2.0 + 0.1)  # 7.99 is the factor 8 after rounding
    while divisor > 1 and (lens.width % divisor or lens.height % divisor):
        divisor -= 1
    return lens.rescaled(lens.width // divisor, lens.height // divisor) if divisor > 1 else lens


def assign_splits(views: Sequence[View], photos: Sequence[Photo], eval_every: int, warnings: list[str]) -> list[View]:
    """Hold out test views when eval_every > 0: those that the files name, else every eval_every-th by name.

    graphdeco's rule: views sorted by name, index % eval_every == 0. At least one training view remains.
    """
    if eval_every < 0:
        raise SceneError(f"every {eval_every}th view cannot be held out; choose 8, or 0 for none")
    if eval_every == 0:
        return list(views)
    named = {photo.name: photo.split for photo in photos if photo.split}
    if "test" in named.values():
        held = [named.get(view.name) == "test" for view in views]
    else:
        held = [index % eval_every == 0 for index in range(len(views))]
    if all(held):
        warnings.append(f"No view is held out, because none of {len(views)} would be left to train on.")
        return list(views)
    return [replace(view, split="test") if test else view for view, test in zip(views, held, strict=True)]


def alpha_notice(photos: Sequence[Photo]) -> str | None:
    """The rule for alpha (D07, D08), where there is any."""
    names = [photo.name for photo in photos if photo.header.has_alpha]
    if not names:
        return None
    which = "Images have" if len(names) == len(photos) else f"{len(names)} images ({first_names(names)}) have"
    return f"{which} alpha: the target is colour x alpha + background x (1 - alpha), over the background rendered with."


def _load(cache: ImageCache, recipe: Recipe) -> np.ndarray:
    return cache.get(recipe, partial(_make, recipe))


def _make(recipe: Recipe) -> np.ndarray:
    """Decode, average down to the working size, undistort, average down to the final size."""
    pixels = decode(recipe.path)
    width, height = recipe.stored
    if pixels.shape[:2] != (height, width):
        raise SceneError(f"{recipe.path} changed while it was in use: it is {pixels.shape[1]}x{pixels.shape[0]} now "
                         f"and was {width}x{height}; open the scene again")
    pixels = downscale(pixels, recipe.lens.width, recipe.lens.height)
    return downscale(undistort(recipe.lens, pixels), recipe.width, recipe.height)
