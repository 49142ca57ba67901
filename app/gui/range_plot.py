"""A histogram in which the mouse drags out a range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from app.gui.select_tools import held
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.tools import MARK
from app.gui.widgets import Ui, relabel
from app.inspection.results import Distribution
from app.messages import SelectHow

HEIGHT = 180
FLOOR = 0.5    # a log axis has no zero
NARROWEST = 0.004   # of the axis; a drag that spans less is a click


class RangePlot:
    """Call update() each frame. `dragged` gets (lo, hi, how) in the quantity's unit when the button goes up."""

    def __init__(self, ui: Ui, dragged: Callable[[float, float, SelectHow], None]) -> None:
        self.ui, self._dragged = ui, dragged
        self._log = False
        self._limits = (0.0, 1.0)
        self._top = 10.0
        self._marked: tuple[float, float] | None = None
        self._drag: tuple[float, SelectHow] | None = None   # where the button went down, and what Shift and Ctrl said
        self._down = False
        with dpg.plot(height=ui.px(HEIGHT), width=-ui.px(10), no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            self._x = int(dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, label="Gaussians", no_highlight=True, scale=dpg.mvPlotScale_Log10) as y:
                self._band = int(dpg.add_shade_series([], [], y2=[]))
                self._bars = int(dpg.add_shade_series([], [], y2=[]))
                self._selected = int(dpg.add_shade_series([], [], y2=[]))
        self.item, self._y = int(plot), int(y)
        dpg.bind_item_font(self.item, ui.theme.small)
        for series, color in ((self._band, (*Palette.text[:3], 34)), (self._bars, (*Palette.accent[:3], 130)),
                              (self._selected, (*MARK[:3], 255))):
            dpg.bind_item_theme(series, ui.theme.series(color))

    def show(self, d: Distribution) -> None:
        if d.log is not self._log:
            self._log = d.log
            dpg.configure_item(self._x, scale=dpg.mvPlotScale_Log10 if d.log else dpg.mvPlotScale_Linear)
        edges = np.asarray(d.edges, np.float64)
        x = np.repeat(edges, 2)[1:-1]
        floor = np.full_like(x, FLOOR)
        for series, counts in ((self._bars, d.counts), (self._selected, d.selected)):
            dpg.set_value(series, [x, np.maximum(np.repeat(counts.astype(np.float64), 2), FLOOR), floor, [], []])
        relabel(self._x, d.unit)
        self._limits = float(edges[0]), float(edges[-1])
        self._top = max(10.0, float(d.counts.max(initial=0)) * 1.6)
        dpg.set_axis_limits(self._x, *self._limits)
        dpg.set_axis_limits(self._y, FLOOR, self._top)
        self._draw_band(self._marked)

    def mark(self, span: tuple[float, float] | None) -> None:
        """The range in force."""
        self._marked = span
        self._draw_band(span)

    def _draw_band(self, span: tuple[float, float] | None) -> None:
        if span is None:
            dpg.set_value(self._band, [[], [], [], [], []])
            return
        lo, hi = (min(max(v, self._limits[0]), self._limits[1]) for v in span)
        dpg.set_value(self._band, [[lo, hi], [self._top, self._top], [FLOOR, FLOOR], [], []])

    def update(self) -> None:
        """A press inside begins a range, which the pointer then stretches, beyond the plot's edges to the axis' ends."""
        down = bool(dpg.is_mouse_button_down(dpg.mvMouseButton_Left))
        began, self._down = down and not self._down, down
        if self._drag is None:
            if began and dpg.is_item_hovered(self.item):
                self._drag = self._at(), held()
            return
        begin, how = self._drag
        lo, hi = sorted((begin, self._at()))
        if down:
            self._draw_band((lo, hi))
            return
        self._drag = None
        if self._share(hi) - self._share(lo) < NARROWEST:
            self._draw_band(self._marked)
            return
        # what is beyond the axis' ends counts in the outer bins, so a range that reaches them has no end there
        inner = 1e-3
        self._dragged(lo if self._share(lo) > inner else -np.inf, hi if self._share(hi) < 1.0 - inner else np.inf, how)

    def _at(self) -> float:
        """The value under the pointer."""
        lo, hi = self._limits
        return min(max(float(dpg.get_plot_mouse_pos()[0]), lo), hi)

    def _share(self, value: float) -> float:
        """Where on the axis a value stands, 0 to 1."""
        lo, hi = self._limits
        if self._log:
            lo, hi, value = np.log10(lo), np.log10(hi), np.log10(max(value, lo))
        return float((value - lo) / (hi - lo))
