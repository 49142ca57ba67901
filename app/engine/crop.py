"""A part of a picture as a picture of its own, so that looking at one pixel or one band does not cost the whole."""

from __future__ import annotations

from dataclasses import replace

from render.config import RasterConfig
from render.types import Camera


def crop(camera: Camera, left: int, top: int, width: int, height: int, raster: RasterConfig
         ) -> tuple[Camera, RasterConfig]:
    """(camera, rules) that draw the pixels [left, left+width) x [top, top+height) of the whole picture.

    The projection clamps its Jacobian beyond a multiple of the field of view. For the narrower camera the multiple is
    widened by so much that the clamp stays outside the whole picture, where it hardly matters.
    """
    K = camera.K.copy()
    K[0, 2] -= left
    K[1, 2] -= top
    narrower = max(camera.width / width, camera.height / height)
    part = Camera(camera.viewmat, K, width, height, camera.near, camera.far)
    return part, replace(raster, clamp_fov=1.0 + (raster.clamp_fov + 1.0) * narrower)
