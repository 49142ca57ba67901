"""The weights of a pixel as one bar, front on the left, the background last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui
from app.inspection.results import XRay

HEIGHT, MARK, NARROWEST = 22, 5, 0.6   # px at 100 %; thinner segments are drawn together
SEGMENTS = 400


class WeightBar:
    def __init__(self, ui: Ui, on_click: Callable[[int], None]) -> None:
        self._ui, self._on_click = ui, on_click
        self._x: XRay | None = None
        self._edges = np.zeros(1)
        self._width, self._at = 0, -1
        self._canvas = int(dpg.add_drawlist(16, ui.px(HEIGHT + MARK)))
        self._parts, self._marks = (int(dpg.add_draw_layer(parent=self._canvas)) for _ in range(2))
        with dpg.item_handler_registry() as registry:
            dpg.add_item_clicked_handler(callback=self._clicked)
        dpg.bind_item_handler_registry(self._canvas, registry)

    def show(self, x: XRay) -> None:
        self._x = x
        width = int(dpg.get_available_content_region(dpg.get_item_parent(self._canvas))[0]) or self._ui.px(300)
        if width != self._width:
            self._width = width
            dpg.configure_item(self._canvas, width=width)
        self._edges = np.concatenate([[0.0], np.cumsum(x.weights)])
        self._draw(x)
        self.mark(self._at)

    def _draw(self, x: XRay) -> None:
        height, scale = self._ui.px(HEIGHT), float(self._width)
        dpg.delete_item(self._parts, children_only=True)
        colors = np.concatenate([x.colors, x.background[None]])
        edges = np.concatenate([self._edges, [1.0]]) * scale
        begun = 0.0
        for k in range(len(colors)):
            if edges[k + 1] - begun < NARROWEST and k + 1 < len(colors):
                continue
            fill = (*(255 * np.clip(colors[k], 0, 1)).astype(int).tolist(), 255)
            dpg.draw_rectangle((begun, 0), (edges[k + 1], height), fill=fill, color=Palette.clear, thickness=0,
                               parent=self._parts)
            if edges[k + 1] - begun > 3:
                dpg.draw_line((edges[k + 1], 0), (edges[k + 1], height), color=(0, 0, 0, 110), parent=self._parts)
            begun = edges[k + 1]
        dpg.draw_rectangle((0, 0), (scale, height), color=Palette.active, parent=self._parts)
        if x.transmittance * scale > 2:   # the background is hatched, so that it is no contributor
            left = self._edges[-1] * scale
            for offset in np.arange(left, scale, self._ui.px(6)):
                dpg.draw_line((offset, height), (min(offset + height / 2, scale), max(0.0, height - 2 * (scale - offset))),
                              color=(140, 149, 164, 120), parent=self._parts)

    def mark(self, contributor: int) -> None:
        """A tick under contributor k; k = n is the background, -1 nothing."""
        self._at = contributor
        dpg.delete_item(self._marks, children_only=True)
        if self._x is None or contributor < 0:
            return
        edges = np.concatenate([self._edges, [1.0]]) * self._width
        k, top = min(contributor, len(edges) - 2), self._ui.px(HEIGHT + 1)
        middle = 0.5 * (edges[k] + edges[k + 1])
        half = max(self._ui.px(3), 0.5 * (edges[k + 1] - edges[k]))
        dpg.draw_rectangle((max(middle - half, 0), top), (min(middle + half, self._width), top + self._ui.px(3)),
                           fill=Palette.second, color=Palette.clear, parent=self._marks)

    def _clicked(self) -> None:
        if self._x is None or not len(self._x.uids):
            return
        share = (dpg.get_mouse_pos(local=False)[0] - dpg.get_item_rect_min(self._canvas)[0]) / max(self._width, 1)
        self._on_click(int(np.searchsorted(self._edges[1:], share)))
