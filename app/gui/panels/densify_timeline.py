"""Births and deaths over the iterations, stacked, with the count and the opacity resets."""

from __future__ import annotations

import numpy as np

from app.gui.population import ITERATION, TOTAL
from app.gui.theme import Color, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, heading, label, paint, show, swatch, tooltip
from app.inspection.densification_results import KINDS

HEIGHT = 190


def _color(red: float, green: float, blue: float) -> Color:
    return round(255 * red), round(255 * green), round(255 * blue), 255


_OF = {kind.name: _color(*kind.color) for kind in KINDS}
LAYERS: tuple[tuple[str, str, Color, str], ...] = (   # drawn in this order, the tallest first
    ("relocated", "moved", _OF["dead"], "dead ones moved onto others"),
    ("split", "split", _OF["split"], "replaced by two, which adds one"),
    ("born", "born", _OF["clone"], "clones and copies"),
    ("pruned", "pruned", _OF["prune"], "removed, drawn downwards"))


class Timeline:
    """Part of the densification panel."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1

    def build(self) -> None:
        ui = self.ui
        heading(ui, "Population")
        self._empty = label(ui, "No event yet.", Palette.muted, small=True, wrap=0)
        self._legend()
        with dpg.plot(height=ui.px(HEIGHT), width=-ui.px(10), no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            self._x = int(dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, no_highlight=True, label="an event") as y:
                self._bars = {name: self._series(color) for name, _, color, _ in LAYERS}
                self._resets = int(dpg.add_inf_line_series([]))
                dpg.bind_item_theme(self._resets, ui.theme.series((*Palette.muted[:3], 150), 1.0))
            with dpg.plot_axis(dpg.mvYAxis2, no_highlight=True, opposite=True, label="in all") as total:
                self._total = int(dpg.add_line_series([], []))
                dpg.bind_item_theme(self._total, ui.theme.series(Palette.text, 1.5))
        self.item, self._y, self._y2 = int(plot), int(y), int(total)
        dpg.bind_item_font(self.item, ui.theme.small)

    def _series(self, color: Color) -> int:
        item = int(dpg.add_bar_series([], [], weight=1.0))
        dpg.bind_item_theme(item, self.ui.theme.series(color))
        return item

    def _legend(self) -> None:
        """Below the title: in the plot it would hide the first events."""
        ui = self.ui
        marks = [(text, color, tip) for _, text, color, tip in reversed(LAYERS[:3])] + [LAYERS[3][1:]]
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(9)):
            for text, color, tip in (*marks, ("total", Palette.text, "Gaussians, on the right"),
                                     ("reset", Palette.muted, "opacity reset: a vertical line")):
                with dpg.group(horizontal=True, horizontal_spacing=ui.px(3)) as entry:
                    paint(swatch(ui), [c / 255 for c in color[:3]])
                    label(ui, text, Palette.muted, small=True)
                tooltip(ui, int(entry), tip)

    def update(self) -> None:
        model = self.ui.model
        if model.densified_version == self._version:
            return
        self._version = model.densified_version
        population = model.population
        table, layers = population.table, population.stacked()
        show(self._empty, not len(table))
        show(self.item, bool(len(table)))
        if not len(table):
            return
        x, total = (np.ascontiguousarray(table[:, column]) for column in (ITERATION, TOTAL))   # strided ones are refused
        steps = np.diff(x)
        width = 0.8 * float(np.median(steps)) if len(steps) else 0.05 * float(x[-1])
        for name, item in self._bars.items():
            some = layers[name] != 0
            dpg.configure_item(item, weight=max(width, 1.0))
            dpg.set_value(item, [x[some], layers[name][some]])
        dpg.set_value(self._resets, [[float(i) for i in population.resets]])
        dpg.set_value(self._total, [x, total])
        dpg.set_axis_limits(self._x, float(x[0]) - width, float(x[-1]) + width)
        high, low = float(layers["relocated"].max()), float(layers["pruned"].min())
        room = 0.08 * max(high - low, 1.0)
        dpg.set_axis_limits(self._y, low - room, max(high, 1.0) + room)
        dpg.set_axis_limits(self._y2, 0.0, 1.1 * float(total.max()) or 1.0)
