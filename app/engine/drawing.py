"""Pictures that are not the viewport's: whole ones of any size, drawn a rectangle at a time, and the colours of a film."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.engine.crop import crop
from app.engine.drawn import tinted
from app.engine.model import Model
from app.engine.photographs import Photographs
from app.engine.view import in_colours_of
from app.engine.view_modes import MODES, Picture, Sight
from app.messages import Legend, ViewRequest
from render import interrupt
from render.types import Camera

BITE_SECONDS = 0.03
"""What drawing one rectangle should cost."""
TILE = 16
FIRST_PIXELS = 1 << 16
COARSE = 240          # px of the longer side of the pictures that automatic colours are taken from
SAMPLED = 8           # of a film's frames


def draw(model: Model, request: ViewRequest, camera: Camera, photographs: Photographs,
         last_range: tuple[float, float] | None = None) -> Picture:
    """One mode at a camera that sees the request's picture, smaller, or a part of it; the selected are marked."""
    sight = Sight(model, request, camera, photographs, last_range)
    picture = MODES[request.mode](sight)
    if request.mode != "truth":
        picture.rgb = tinted(model, picture.rgb, sight.drawn, camera, numbers_shown=picture.legend is not None)
        picture.note = picture.note or sight.drawn.note
    return picture


def to_bytes(rgb: np.ndarray) -> np.ndarray:
    """[H,W,3] in [0,1] as uint8; what is no number is black."""
    return np.clip(np.nan_to_num(rgb) * 255.0 + 0.5, 0, 255).astype(np.uint8)


# ---------------------------------------------------------------- colours


@dataclass(frozen=True)
class Coloured:
    """What the colours of several pictures stand for; no legend where they are no numbers."""

    legend: Legend | None
    note: str = ""      # why the pictures are not what was asked for

    def of(self, request: ViewRequest) -> ViewRequest:
        """The request in these colours."""
        return in_colours_of(request, self.legend)


def spread(count: int) -> list[int]:
    """At most SAMPLED of the numbers below `count`, evenly, the first and the last among them."""
    return sorted({round(k) for k in np.linspace(0, count - 1, SAMPLED)})


def coloured(model: Model, requests: Sequence[ViewRequest], photographs: Photographs
             ) -> Generator[tuple[float, str] | None, None, Coloured]:
    """One range for all requests, from small pictures of a few. Part of a job."""
    legends: list[Legend] = []
    note = ""
    for k in spread(len(requests)):
        request, camera = replace(requests[k], beside=None), requests[k].camera
        by = min(1.0, COARSE / max(camera.width, camera.height))
        small = camera.resized(max(TILE, round(camera.width * by)), max(TILE, round(camera.height * by)))
        picture = yield from _patient(model, request, small, photographs)
        note = note or picture.note
        if picture.legend is None:
            return Coloured(None, note)
        legends.append(picture.legend)
        if request.value_range is not None:
            break
        yield 0.0, "choosing the colours"
    lo, hi = min(legend.lo for legend in legends), max(legend.hi for legend in legends)
    return Coloured(replace(legends[0], lo=lo, hi=hi), note)


# ---------------------------------------------------------------- in bites


def _patient(model: Model, request: ViewRequest, camera: Camera, photographs: Photographs) -> Generator[None, None, Picture]:
    """draw(), given up and begun anew in a later turn as often as somebody waits for the thread."""
    while True:
        try:
            with interrupt.interruptible():
                return draw(model, request, camera, photographs)
        except interrupt.Interrupted:
            yield


class Bites:
    """How many pixels to draw at once, from what they have cost."""

    def __init__(self) -> None:
        self.pixels = FIRST_PIXELS

    def rectangles(self, left: int, width: int, height: int) -> Generator[tuple[int, int, int, int], None, None]:
        """(left, top, width, height) that fill the columns [left, left + width) from the top, each of the size of now."""
        top = 0
        while top < height:
            rows = min(max(TILE, self.pixels // max(width, 1) // TILE * TILE), height - top)
            start = 0
            while start < width:
                columns = width if self.pixels >= TILE * width else max(4 * TILE, self.pixels // TILE // TILE * TILE)
                columns = min(columns, width - start)
                yield left + start, top, columns, rows
                start += columns
            top += rows

    def spent(self, seconds: float, pixels: int) -> None:
        """The next is larger or smaller; growing only as far as what a full bite says."""
        by = min(max(BITE_SECONDS / max(seconds, 1e-6), 0.25), 4.0)
        if by < 1.0 or 2 * pixels >= self.pixels:
            self.pixels = int(min(max(self.pixels * by, 4 * TILE * TILE), 1 << 26))

    def interrupted(self) -> None:
        self.pixels = max(self.pixels // 2, 4 * TILE * TILE)


def in_bites(model: Model, parts: Sequence[tuple[ViewRequest, int, int]], camera: Camera, photographs: Photographs,
             bites: Bites, out: np.ndarray) -> Generator[float | None, None, None]:
    """Fill out [H,W,3] uint8 with the picture at a camera. Each part (request, left, width) takes its columns; requests
    have fixed ranges. Yields the share that is done, None where a bite was given up for somebody who waits."""
    done, whole = 0, camera.width * camera.height
    for request, left, width in parts:
        asked = replace(request, camera=camera, beside=None)
        for x, y, w, h in bites.rectangles(left, width, camera.height):
            while True:
                begun = time.monotonic()
                try:
                    with interrupt.interruptible():
                        picture = draw(model, asked, crop(camera, x, y, w, h), photographs)
                    break
                except interrupt.Interrupted:
                    bites.interrupted()
                    yield None
            out[y:y + h, x:x + w] = to_bytes(picture.rgb)
            bites.spent(time.monotonic() - begun, w * h)
            done += w * h
            yield done / whole
