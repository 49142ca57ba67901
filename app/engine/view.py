"""The picture in the viewport: when it is due, at which detail, and drawing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.messages import Frame, ViewRequest

if TYPE_CHECKING:
    from app.engine.loop import Engine

MIN_SIDE = 8


class Viewer:
    """Serves the newest ViewRequest. `frame` is the last finished picture."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.request: ViewRequest | None = None
        self.frame: Frame | None = None
        self._seen = 0                      # version of the newest request read
        self._drawn = 0                     # version of the request that was served last
        self._drawn_model: tuple[int, int] = (0, -1)
        self._sequence = 0
        self._range: tuple[tuple[str, str, bool | None], tuple[float, float]] | None = None
        self._photographs = None

    @property
    def moving(self) -> bool:
        """The user drags in a window that is to be seen."""
        return self.request is not None and self.request.moving and not self.request.hidden

    def poll(self) -> None:
        self._seen, newest = self._engine.view_requests.newer_than(self._seen)
        if newest is not None:
            self.request = newest

    def forget(self) -> None:
        """Another scene: what was drawn does not hold, and neither do photographs and ranges."""
        self.frame = None
        self._drawn, self._drawn_model = -1, (0, -1)
        self._photographs = self._range = None

    def _model_key(self) -> tuple[int, int]:
        model = self._engine.model
        return id(model), model.version if model is not None else -1

    def due(self) -> float | None:
        """When the next picture should begin; None = the last one still holds, or nothing can be drawn."""
        engine, request = self._engine, self.request
        if request is None or request.hidden or engine.model is None:
            return None
        moved = self._drawn_model != self._model_key()
        if moved and self._drawn == self._seen and request.mode == "truth" and self._drawn_model[0] == id(engine.model):
            moved = False
        still = not engine.training and not request.moving
        return engine.pace.view_due(
            changed=self._drawn != self._seen, model_moved=moved, moving=request.moving,
            refine=still and self.frame is not None and self.frame.detail < 1.0)

    def draw(self) -> None:
        """Draw the newest request. Whatever happens, the request counts as served, so that an error is not repeated."""
        from app.engine.photographs import Photographs
        from app.engine.view_modes import MODES, Sight, to_rgba

        engine, request, model = self._engine, self.request, self._engine.model
        assert request is not None and model is not None
        camera = request.camera
        changed = self._drawn != self._seen
        still = not engine.training and not changed
        pixels = camera.width * camera.height
        level = engine.pace.level(pixels, moving=request.moving, still=still)
        self._drawn, self._drawn_model = self._seen, self._model_key()
        self._photographs = self._photographs or Photographs()

        begun = engine.clock()
        small = camera if level == 1.0 else camera.resized(
            max(MIN_SIDE, round(camera.width * level)), max(MIN_SIDE, round(camera.height * level)))
        quantity = (request.mode, request.quantity if request.mode == "heatmap" else "", request.log_scale)
        kept = self._range[1] if self._range is not None and self._range[0] == quantity and engine.training else None
        picture = MODES[request.mode](Sight(model, request, small, self._photographs, kept))
        rgba = to_rgba(picture.rgb, camera.width, camera.height)
        rgba.setflags(write=False)
        end = engine.clock()
        engine.pace.viewed(end, end - begun, small.width * small.height)
        if picture.legend is not None:
            self._range = quantity, (picture.legend.lo, picture.legend.hi)
        self._sequence += 1
        self.frame = Frame(rgba, camera, request.mode, picture.legend, 1e3 * (end - begun), self._sequence,
                           model.iteration, level, picture.note, request)
        engine.publisher.frame_ready()
