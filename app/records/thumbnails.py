"""A render and its photograph side by side, small."""

from __future__ import annotations

import io
import re

import numpy as np
from PIL import Image

WIDTH = 320
"""px of one of the two pictures, at most."""
GAP = 4


def file_name(view: str) -> str:
    """The file of a view's thumbnail: its name with what a file name cannot have replaced."""
    stem = re.sub(r"\.[A-Za-z]{2,4}$", "", view)
    return (re.sub(r'[\\/:*?"<>|\x00-\x1f]+', "_", stem).strip(" .") or "view") + ".png"


def spread(names: list[str], count: int) -> set[str]:
    """`count` of the names, evenly over the list; the same ones each time."""
    if len(names) <= count:
        return set(names)
    return {names[round(i * (len(names) - 1) / max(count - 1, 1))] for i in range(count)}


def side_by_side(render: np.ndarray, photograph: np.ndarray, background: tuple[float, float, float]) -> bytes:
    """PNG of a render [H,W,3] uint8 and, right of it, its photograph [H,W,3 or 4] uint8, alpha over `background` 0..1."""
    if photograph.shape[2] == 4:
        alpha = photograph[:, :, 3:].astype(np.float32) / 255.0
        over = photograph[:, :, :3] * alpha + 255.0 * np.asarray(background, np.float32) * (1.0 - alpha)
        photograph = np.clip(over + 0.5, 0.0, 255.0).astype(np.uint8)
    left, right = (_small(picture) for picture in (render, photograph))
    both = Image.new("RGB", (left.width + GAP + right.width, max(left.height, right.height)), (32, 32, 32))
    both.paste(left, (0, 0))
    both.paste(right, (left.width + GAP, 0))
    stream = io.BytesIO()
    both.save(stream, "PNG")
    return stream.getvalue()


def _small(picture: np.ndarray) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture[:, :, :3]))
    if image.width <= WIDTH:
        return image
    return image.resize((WIDTH, max(1, round(image.height * WIDTH / image.width))), Image.Resampling.BOX)
