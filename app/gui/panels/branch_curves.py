"""Curves of the branches that do not train, dashed behind those of the one that does."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from app.gui.theme import BRANCHES
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, relabel, show
from app.messages import Curve

OPACITY = 170


class BranchCurves:
    """Of one plot: a line for each colour that branches have."""

    def __init__(self, ui: Ui, y: int, names: tuple[str, ...], legend: int, *, log: bool) -> None:
        """`names`: of the curves, the first one that a branch has is drawn."""
        self._names, self._legend, self._log = names, legend, log
        self._location = dpg.mvPlot_Location_NorthEast if log else dpg.mvPlot_Location_SouthEast   # where few curves run
        self._lines = []
        self.lo, self.hi, self.end = math.inf, -math.inf, 0.0   # what the axes have to show
        for color in BRANCHES:
            item = int(dpg.add_line_series([], [], parent=y, segments=True, show=False, label=" "))
            dpg.bind_item_theme(item, ui.theme.series((*color[:3], OPACITY), 1.3))
            self._lines.append(item)

    def update(self, curves: Mapping[str, Mapping[str, Curve]], slots: Mapping[str, int], labels: Mapping[str, str], *,
               own_legend: bool) -> None:
        """`own_legend`: the plot has one without branches, too."""
        self.lo, self.hi, self.end = math.inf, -math.inf, 0.0
        drawn: dict[int, tuple[str, Curve]] = {}
        for name, of in curves.items():   # the newest of those that share a colour
            curve = next((of[wanted] for wanted in self._names if wanted in of and len(of[wanted].x) > 1), None)
            if curve is not None and name in slots:
                drawn[slots[name] % len(self._lines)] = labels.get(name, name), curve
        for place, item in enumerate(self._lines):
            show(item, place in drawn)
            if place in drawn:
                label, curve = drawn[place]
                relabel(item, label)
                x, y = dashes(curve, log=self._log)
                dpg.set_value(item, [x, y])
                if y:
                    self.end, self.lo, self.hi = max(self.end, x[-1]), min(self.lo, *y), max(self.hi, *y)
        show(self._legend, bool(drawn) or own_legend)
        dpg.configure_item(self._legend, location=self._location)   # one that was hidden has forgotten it


def dashes(curve: Curve, *, log: bool = False, count: int = 60) -> list[list[float]]:
    """(x, y) of the ends of line segments with gaps as long as themselves between them."""
    good = np.isfinite(curve.y) & ((curve.y > 0) if log else True)
    x, y = np.asarray(curve.x, np.float64)[good], np.asarray(curve.y, np.float64)[good]
    if len(x) < 2:
        return [[], []]
    width = max(1, len(x) // 40)
    if width > 1:   # values of single steps scatter
        padded = np.concatenate([np.full(width // 2, y[0]), y, np.full(width - 1 - width // 2, y[-1])])
        y = np.convolve(padded, np.full(width, 1.0 / width), mode="valid")
    at = np.linspace(x[0], x[-1], 2 * count)
    return [at.tolist(), np.interp(at, x, y).tolist()]
