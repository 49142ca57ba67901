"""The picture in the viewport: when it is due, at which detail, and drawing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from app.engine.crop import crop
from app.engine.pacing import LEVELS
from app.messages import Frame, Legend, ViewRequest
from render import interrupt
from render.types import Camera

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.engine.model import Model
    from app.engine.view_modes import Picture

MIN_SIDE = 8
BAND_SECONDS = 0.08
"""What one band of a refinement may cost: a command that arrives meanwhile waits this long at most (U07)."""
BAND_ROWS = 16
"""A band is at least this many rows, the side of a tile."""


@dataclass
class Refinement:
    """A picture that is drawn whole, band by band, because at once it would hold up commands."""

    rgb: np.ndarray          # [H,W,3] float32, filled from the top
    band: int                # rows at a time
    row: int = 0             # the first that is not drawn
    seconds: float = 0.0


class Viewer:
    """Serves the newest ViewRequest. `frame` is the last finished picture."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.request: ViewRequest | None = None
        self.frame: Frame | None = None
        self._seen = 0                      # version of the newest request read
        self._drawn = 0                     # version of the request that was served last
        self._drawn_model: tuple[Any, int] = (0, -1)
        self._sequence = 0
        self._ranges: dict[tuple, tuple[float, float]] = {}   # of the last legends, by what they belong to
        self._photographs = None
        self._refinement: Refinement | None = None
        self._given_up = -1                 # version of a request whose refinement failed

    @property
    def moving(self) -> bool:
        """The user drags in a window that is to be seen."""
        request = self.request
        return request is not None and request.moving and not request.hidden and not self._engine.control.headless

    def poll(self) -> None:
        self._seen, newest = self._engine.view_requests.newer_than(self._seen)
        if newest is not None:
            self.request = newest

    def forget(self) -> None:
        """Another scene: what was drawn does not hold, and neither do photographs and ranges."""
        self.frame = None
        self._drawn, self._drawn_model = -1, (0, -1)
        self._photographs = self._refinement = None
        self._ranges = {}

    # ------------------------------------------------------------------ when

    def due(self) -> float | None:
        """When the next picture should begin; None = the last one still holds, or nothing can be drawn."""
        engine, request = self._engine, self.request
        if request is None or request.hidden or engine.model is None or engine.control.headless:
            return None
        return engine.pace.view_due(changed=self._changed(), model_moved=self._moved(), moving=request.moving,
                                    refine=self._to_refine())

    def _changed(self) -> bool:
        return self._drawn != self._seen

    def _moved(self) -> bool:
        """Whether the model is another than the one drawn, in a mode where that can be seen."""
        key = self._model_key()
        if self._drawn_model == key:
            return False
        return self._drawn_model[0] != key[0] or self.request is None or self.request.mode != "truth"

    def _to_refine(self) -> bool:
        request = self.request
        still = not self._engine.training or not self._shows_now(request)
        return (request is not None and not request.moving and still
                and self.frame is not None and self.frame.detail < 1.0 and self._given_up != self._drawn)

    def _model_key(self) -> tuple[Any, int]:
        return self._engine.timeline.looks.key(self.request)

    def _shows_now(self, request: ViewRequest | None) -> bool:
        """Whether the picture, or one of two, is of the run as it trains."""
        left, right = self._engine.timeline.looks.sides(request)
        return left is None or (request is not None and request.beside is not None and right is None)

    # ------------------------------------------------------------------ drawing

    def draw(self) -> None:
        """Draw what is due. Whatever fails, the request counts as served, so that an error is not repeated.

        Raises interrupt.Interrupted when the picture was given up; it is due again.
        """
        before = self._drawn, self._drawn_model
        try:
            with interrupt.interruptible():
                self._draw()
        except interrupt.Interrupted:
            self._drawn, self._drawn_model = before
            raise

    def _draw(self) -> None:
        engine, request = self._engine, self.request
        assert request is not None and engine.model is not None
        model, _ = engine.timeline.looks.models(request)
        if not self._changed() and not self._moved():
            self._refine(request, model)
            return
        self._drawn, self._drawn_model, self._refinement = self._seen, self._model_key(), None
        camera = request.camera
        level = engine.pace.level(camera.width * camera.height, moving=request.moving)
        small = camera if level == LEVELS[0] else camera.resized(
            max(MIN_SIDE, round(camera.width * level)), max(MIN_SIDE, round(camera.height * level)))
        if request.mode == "candidates":
            model.candidates()   # before the clock starts: what a plan costs is no matter of pixels
        begun = engine.clock()
        picture = self._picture(request, model, small)
        self._finish(request, model, picture, level, engine.clock() - begun)
        engine.pace.viewed(engine.clock(), engine.clock() - begun, small.width * small.height)

    def _refine(self, request: ViewRequest, model: Model) -> None:
        """Draw the next band at full detail, in the colours of the coarse picture; the last one finishes the frame."""
        engine, frame, camera = self._engine, self.frame, request.camera
        from app.engine.view_modes import Picture

        assert frame is not None
        if self._refinement is None:
            bands = max(1.0, engine.pace.cost.seconds(camera.width * camera.height) / BAND_SECONDS)
            rows = max(BAND_ROWS, round(camera.height / bands))
            self._refinement = Refinement(np.zeros((camera.height, camera.width, 3), np.float32), rows)
        work = self._refinement
        right = None if request.beside is None else in_colours_of(right_of(request), frame.legend_beside)
        request = in_colours_of(request, frame.legend)
        begun = engine.clock()
        rows = min(work.band, camera.height - work.row)
        part = crop(camera, 0, work.row, camera.width, rows)
        try:
            work.rgb[work.row:work.row + rows] = self._picture(request, model, part, right).rgb
        except interrupt.Interrupted:
            raise   # this band comes again
        except Exception:
            self._refinement, self._given_up = None, self._drawn   # the coarse picture stays, the error is said once
            raise
        work.row += rows
        spent = engine.clock() - begun
        work.seconds += spent
        engine.pace.viewed(engine.clock(), spent, camera.width * rows)
        if work.row >= camera.height:
            self._refinement = None
            assert self.request is not None
            picture = Picture(work.rgb, frame.legend, frame.note, frame.legend_beside)
            self._finish(self.request, model, picture, 1.0, work.seconds)

    def _picture(self, request: ViewRequest, model: Model, camera: Camera, right: ViewRequest | None = None) -> Picture:
        """One mode, or two beside each other: the left part of the first, the right part of the second, as `right` asks."""
        first = self._one(request, model, camera)
        beside = request.beside
        if beside is None:
            return first
        _, other = self._engine.timeline.looks.models(request)
        second = self._one(right or alike(request, first.legend, right_of(request)), other, camera)
        column = min(max(round(beside.share * camera.width), 0), camera.width)
        rgb = np.array(first.rgb)
        rgb[:, column:] = second.rgb[:, column:]
        return replace(first, rgb=rgb, legend_beside=second.legend, note=first.note or second.note)

    def _one(self, request: ViewRequest, model: Model, camera: Camera) -> Picture:
        from app.engine.drawing import draw
        from app.engine.photographs import Photographs

        self._photographs = self._photographs or Photographs()
        kept = self._ranges.get(_shown(request)) if self._engine.training else None
        return draw(model, request, camera, self._photographs, kept)

    def _finish(self, request: ViewRequest, model: Model, picture: Picture, level: float, seconds: float) -> None:
        from app.engine.drawn import outlines
        from app.engine.view_modes import to_rgba

        rgba = to_rgba(picture.rgb, request.camera.width, request.camera.height)
        rgba.setflags(write=False)
        legends = [(request, picture.legend)]
        if request.beside is not None:
            legends.append((right_of(request), picture.legend_beside))
        self._ranges = {_shown(of): (legend.lo, legend.hi) for of, legend in legends if legend is not None}
        self._sequence += 1
        moment, beside = self._engine.timeline.looks.shown(request)
        lost = "No moment is kept in memory, so this is the run as it is now." if request.moment and not moment else ""
        self.frame = Frame(rgba, request.camera, request.mode, picture.legend, 1e3 * seconds, self._sequence, model.iteration,
                           level, lost or picture.note, request, outlines(model, request), picture.legend_beside, moment,
                           beside)
        self._engine.publisher.frame_ready()


def right_of(request: ViewRequest) -> ViewRequest:
    """What the right part of two shows; its range is automatic."""
    beside = request.beside
    assert beside is not None
    return replace(request, mode=beside.mode, quantity=beside.quantity, value_range=None, log_scale=None, beside=None,
                   moment=beside.moment)


def alike(request: ViewRequest, legend: Legend | None, second: ViewRequest) -> ViewRequest:
    """Two moments in the same mode have the same colours."""
    if legend is None or request.moment == second.moment or _shown(replace(request, log_scale=None)) != _shown(second):
        return second
    return in_colours_of(second, legend)


def in_colours_of(request: ViewRequest, legend: Legend | None) -> ViewRequest:
    """The request with the range of a legend."""
    if legend is None:
        return request
    return replace(request, value_range=(legend.lo, legend.hi), log_scale=legend.log)


def _shown(request: ViewRequest) -> tuple:
    """What a legend's range belongs to."""
    return request.mode, request.quantity if request.mode == "heatmap" else "", request.log_scale

