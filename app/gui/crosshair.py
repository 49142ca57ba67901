"""The pinned pixel, marked in the picture by a cross that leaves the pixel itself free."""

from __future__ import annotations

from app.gui.camera_controls import Fit
from app.gui.pixel_probe import place
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui
from app.messages import Frame

INNER, OUTER = 4, 13   # px from the pixel, at 100 %


class Crosshair:
    def __init__(self, ui: Ui, canvas: int) -> None:
        self._ui, self._key = ui, None
        self._layer = int(dpg.add_draw_layer(parent=canvas))

    def update(self, frame: Frame | None, fit: Fit | None) -> None:
        pinned = self._ui.view.probe.pinned
        at = place(pinned, frame.camera) if pinned is not None and frame is not None else None
        key = (at, fit) if at is not None and fit is not None else None
        if key == self._key:
            return
        self._key = key
        dpg.delete_item(self._layer, children_only=True)
        if at is None or fit is None:
            return
        x = fit.x + at[0] * fit.shown_width / fit.width
        y = fit.y + at[1] * fit.shown_height / fit.height
        inner, outer = self._ui.px(INNER), self._ui.px(OUTER)
        # A dark line underneath keeps it legible on any picture.
        for color, thickness in (((0, 0, 0, 190), 4.0), (Palette.second, 1.6)):
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                dpg.draw_line((x + dx * inner, y + dy * inner), (x + dx * outer, y + dy * outer), color=color,
                              thickness=thickness * self._ui.theme.scale, parent=self._layer)
