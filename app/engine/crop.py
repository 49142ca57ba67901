"""A part of a picture as a picture of its own, so that looking at one pixel or one band does not cost the whole."""

from __future__ import annotations

from render.types import Camera


def crop(camera: Camera, left: int, top: int, width: int, height: int) -> Camera:
    """The camera of the pixels [left, left+width) x [top, top+height), which come out as in the whole picture."""
    return camera.cropped(left, top, width, height)
