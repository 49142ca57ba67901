"""Pictures on the GPU, within Dear PyGui's limits.

A raw texture is uploaded in every drawn frame at its full size, and re-creating one leaks. So each picture owns a short
ladder of textures, each made at most once and never deleted (G05, G10); a frame goes into the smallest that holds it and
is cropped with uv_max. A texture rests outside the registry, where Dear PyGui does not upload it (G09), as soon as the
driver has what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.gui.resolution import MAX_HEIGHT, MAX_WIDTH
from app.gui.toolkit import dpg

SIDE_LIMIT = 8192  # G12
RUNGS = ((512, 384), (768, 576), (1152, 864), (MAX_WIDTH, MAX_HEIGHT))
READY_FRAMES = 3   # the second frame of a new texture is blank (G08)
SETTLE_FRAMES = 4  # uploads that surely bring a write to the screen


def checked(rgba: np.ndarray) -> np.ndarray:
    """The array itself when Dear PyGui can take it. G06, G25

    Raises ValueError naming what was got: a wrong dtype, layout or size crashes the process inside the driver.
    """
    if rgba.ndim != 3 or rgba.shape[2] != 4:
        raise ValueError(f"picture: expected shape [H,W,4], got {list(rgba.shape)}")
    if rgba.dtype != np.float32:
        raise ValueError(f"picture: expected float32, got {rgba.dtype}")
    if not rgba.flags.c_contiguous:
        raise ValueError("picture: expected a C-contiguous array, got strided memory; pass np.ascontiguousarray(...)")
    height, width = rgba.shape[:2]
    if not (0 < width <= SIDE_LIMIT and 0 < height <= SIDE_LIMIT):
        raise ValueError(f"picture: {width}x{height} px is outside 1..{SIDE_LIMIT}")
    return rgba


@dataclass
class _Rung:
    width: int
    height: int
    pixels: np.ndarray   # [height,width,4] float32, what the texture reads
    texture: int
    awake: int = 0       # frames drawn since it was last woken; 0 = resting
    countdown: int = 0   # frames to draw until it may rest


class Picture:
    """One picture shown by a draw_image item."""

    def __init__(self, registry: int, stage: int, image: int) -> None:
        self._registry, self._stage, self._image = registry, stage, image
        self._rungs: list[_Rung | None] = [None] * len(RUNGS)
        self._shown: _Rung | None = None
        self._next: tuple[_Rung, tuple[float, float]] | None = None  # what the image item is to show, and its crop
        self.size = (0, 0)

    def show(self, rgba: np.ndarray) -> None:
        """Copy a finished frame [H,W,4] into the ladder; on screen within SETTLE_FRAMES drawn frames."""
        height, width = checked(rgba).shape[:2]
        rung = self._rung(width, height)
        rung.pixels[:height, :width] = rgba
        # Linear filtering reaches half a pixel over the crop: repeat the border there.
        if width < rung.width:
            rung.pixels[:height, width] = rgba[:, -1]
        if height < rung.height:
            rung.pixels[height, :width] = rgba[-1]
        if not rung.countdown:
            dpg.move_item(rung.texture, parent=self._registry)
            rung.awake = 0
        rung.countdown = SETTLE_FRAMES
        self._next = (rung, (width / rung.width, height / rung.height))
        self.size = (width, height)

    def after_frame(self) -> None:
        """Call once after each drawn frame: brings in what is ready, lets idle textures rest."""
        for rung in self._rungs:
            if rung is None or not rung.countdown:
                continue
            rung.awake += 1
            rung.countdown -= 1
            if not rung.countdown:
                dpg.move_item(rung.texture, parent=self._stage)
        if self._next is None:
            return
        rung, uv_max = self._next
        # A write reaches the screen one frame late, so its crop does too; a texture that just woke shows old pixels
        # or none at all until then, and the one before it stays on the screen meanwhile.
        if rung is self._shown or rung.awake >= READY_FRAMES:
            dpg.configure_item(self._image, texture_tag=rung.texture, uv_max=uv_max, show=True)
            self._shown, self._next = rung, None

    @property
    def settling(self) -> bool:
        """Something written is not yet surely on the screen: keep drawing."""
        return any(r is not None and r.countdown for r in self._rungs)

    def hide(self) -> None:
        self._next = None
        dpg.configure_item(self._image, show=False)
        self._shown = None

    def _rung(self, width: int, height: int) -> _Rung:
        for index, (w, h) in enumerate(RUNGS):
            if width <= w and height <= h:
                rung = self._rungs[index]
                if rung is None:
                    rung = self._rungs[index] = self._make(w, h)
                return rung
        raise ValueError(f"picture: {width}x{height} px is larger than the largest texture "
                         f"{RUNGS[-1][0]}x{RUNGS[-1][1]}; ask for fewer pixels")

    def _make(self, width: int, height: int) -> _Rung:
        pixels = np.zeros((height, width, 4), np.float32)
        texture = dpg.add_raw_texture(width, height, pixels, format=dpg.mvFormat_Float_rgba, parent=self._stage)
        return _Rung(width, height, pixels, int(texture))
