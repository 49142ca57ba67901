"""Sparklines: how numbers of one Gaussian went while its card was open."""

from __future__ import annotations

import numpy as np

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, heading, label, put, show
from app.inspection.results import Trail

ROWS = 5
LEAST = 2   # points that make a line


class Trails:
    def __init__(self, ui: Ui) -> None:
        self._rows: list[tuple[int, int, int, int]] = []   # row, label, plot, value
        with dpg.group(show=False) as self._body:
            heading(ui, "While this card was open")
            self._span = label(ui, "", Palette.muted, small=True)
            for _ in range(ROWS):
                with dpg.group(horizontal=True, xoffset=ui.px(138)) as row:
                    name = label(ui, "", Palette.muted, small=True)
                    with dpg.group(horizontal=True):
                        plot = int(dpg.add_simple_plot(width=ui.px(96), height=ui.px(22)))
                        value = int(dpg.add_text(""))
                        dpg.bind_item_font(value, ui.theme.mono)
                self._rows.append((int(row), name, plot, value))
        with dpg.theme() as theme, dpg.theme_component(dpg.mvSimplePlot):
            dpg.add_theme_color(dpg.mvThemeCol_PlotLines, Palette.accent, category=dpg.mvThemeCat_Core)
        for _, _, plot, _ in self._rows:
            dpg.bind_item_theme(plot, theme)

    def show(self, trails: tuple[Trail, ...]) -> None:
        known = bool(trails) and len(trails[0].iterations) >= LEAST
        show(self._body, known)
        if not known:
            return
        first, last = trails[0].iterations[[0, -1]].astype(int).tolist()
        put(self._span, f"iterations {formatting.count(first)} to {formatting.count(last)}")
        for index, (row, name, plot, value) in enumerate(self._rows):
            show(row, index < len(trails))
            if index < len(trails):
                trail = trails[index]
                put(name, trail.label)
                dpg.set_value(plot, np.nan_to_num(trail.values).tolist())
                put(value, f"{formatting.number(float(trail.values[-1])):>8}")
