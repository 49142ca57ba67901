"""Curves of the run: loss, quality, count. They follow the run until the user zooms; a double click follows again.

Values of single steps scatter from photograph to photograph: they are drawn faint, their running mean strong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.curves import decimate
from app.gui.panels.branch_curves import BranchCurves
from app.gui.theme import Color, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui
from app.messages import Curve

PER_STEP = frozenset({"loss", "train_psnr"})
NARROWEST = 125
SHORT = 0.12  # of the plot: how far down the lines of changed options come, lest they look like a fall of the curve
EVENTS = 150  # the last densifications drawn as lines
POINTS = 600  # G20: drawing cost grows with the points, and no plot here is wider than this many px


def smoothed(y: np.ndarray, share: float = 0.02) -> np.ndarray:
    """Running mean over `share` of the points: photographs differ, so the values of single steps scatter."""
    width = int(len(y) * share) | 1
    if width < 3:
        return y
    padded = np.concatenate([np.full(width // 2, y[0]), y, np.full(width // 2, y[-1])])
    return np.convolve(padded, np.full(width, 1.0 / width), mode="valid")


def log_ticks(lo: float, hi: float) -> tuple[tuple[str, float], ...]:
    """Labelled values 1, 2, 5, 10, 20 ... in [lo, hi]; only the powers of ten where that would be many."""
    decades = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    digits = (1, 2, 5) if math.log10(hi / lo) < 2.5 else (1,)
    values = [digit * 10.0**decade for decade in decades for digit in digits]
    return tuple((f"{value:g}", value) for value in values if lo <= value <= hi)


def short_lines(at: list[float], lo: float, hi: float, *, log: bool) -> list[list[float]]:
    """(x, y) of the ends of vertical segments at `at` that hang from the upper edge of an axis from lo to hi."""
    end = hi * (lo / hi) ** SHORT if log else hi - SHORT * (hi - lo)
    return [[x for x in at for _ in range(2)], [y for _ in at for y in (hi, end)]]


@dataclass
class Series:
    curve: str
    item: int
    raw: int = 0   # the unsmoothed values behind it, for curves of single steps


@dataclass
class PlotView:
    item: int
    x: int
    y: int
    log: bool
    series: list[Series]
    follow: bool = True
    limits: tuple[float, float] = (1e-3, 1.0)   # of y, as they were set last
    branches: BranchCurves | None = None
    ticks: tuple[tuple[str, float], ...] = ()   # set by hand: by itself a log axis labels powers of ten only


class PlotsPanel:
    title = "Plots"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = self._densified = -1
        self._changed: object = None
        self._branches: object = None
        self._plots: list[PlotView] = []

    def build(self, parent: int) -> None:
        with dpg.group(horizontal=True, parent=parent, horizontal_spacing=self.ui.px(4)):
            self._add("Loss", (("loss", "loss", Palette.accent),), log=True)
            self._add("PSNR  [dB]", (("train_psnr", "train", Palette.accent), ("test_psnr", "held-out", Palette.second)),
                      log=False)
            self._add("Gaussians", (("count", "count", Palette.accent),), log=False)
        # densifications and opacity resets on every time axis: a step in a curve is mostly one of them
        self._events = [self._lines(plot, (*Palette.muted[:3], 70 if plot is self._plots[2] else 38)) for plot in self._plots]
        self._resets = [self._lines(plot, (*Palette.second[:3], 150)) for plot in self._plots]
        self._options = [self._marks(plot) for plot in self._plots]   # changed, see tab Control

    def _lines(self, plot: PlotView, color: Color) -> int:
        """Vertical lines at iterations, still none."""
        item = int(dpg.add_inf_line_series([], parent=plot.y))
        dpg.bind_item_theme(item, self.ui.theme.series(color, 1.0))
        return item

    def _marks(self, plot: PlotView) -> int:
        """Short vertical lines from the upper edge, still none."""
        item = int(dpg.add_line_series([], [], parent=plot.y, segments=True))
        dpg.bind_item_theme(item, self.ui.theme.series((*Palette.good[:3], 220), 1.5))
        return item

    def _add(self, title: str, curves: tuple[tuple[str, str, Color], ...], *, log: bool) -> None:
        ui = self.ui
        with dpg.plot(label=title, width=10, height=10, no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            legend = dpg.add_plot_legend(location=dpg.mvPlot_Location_SouthEast, show=len(curves) > 1)
            x = dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True)
            scale = dpg.mvPlotScale_Log10 if log else dpg.mvPlotScale_Linear
            with dpg.plot_axis(dpg.mvYAxis, no_highlight=True, scale=scale) as y:
                series = []
                for curve, text, color in curves:
                    raw = 0
                    if curve in PER_STEP:
                        raw = int(dpg.add_line_series([], []))
                        dpg.bind_item_theme(raw, ui.theme.series((*color[:3], 75), 1.0))
                    item = int(dpg.add_line_series([], [], label=text))
                    dpg.bind_item_theme(item, ui.theme.series(color))
                    series.append(Series(curve, item, raw))
            dpg.set_axis_limits(x, 0.0, 100.0)
            dpg.set_axis_limits(y, *((1e-3, 1.0) if log else (0.0, 1.0)))
        dpg.bind_item_font(plot, ui.theme.small)
        names = tuple(curve for curve, _, _ in reversed(curves))   # of the PSNRs, the held-out one where there is one
        branches = BranchCurves(ui, int(y), names, int(legend), log=log)
        self._plots.append(PlotView(int(plot), int(x), int(y), log, series, branches=branches))

    def layout(self, width: int, height: int) -> None:
        """As many plots as stay readable; in a narrow window the last ones wait."""
        px = self.ui.px
        count = min(len(self._plots), max(1, width // px(NARROWEST)))
        each = (width - 2 * px(6) - (count - 1) * px(4)) // count
        for index, view in enumerate(self._plots):
            dpg.configure_item(view.item, show=index < count, width=max(60, each), height=max(60, height - 2 * px(4)))

    def update(self) -> None:
        model = self.ui.model
        self._update_branches()
        if model.curves_version != self._version:
            self._version = model.curves_version
            for view in self._plots:
                self._show(view, model.curves)
        if model.densified_version != self._densified:
            self._densified = model.densified_version
            for series, of_reset in ((self._events, False), (self._resets, True)):
                at = [float(e.iteration) for e in model.densified if bool(e.reset) is of_reset][-EVENTS:]
                for item in series:
                    dpg.set_value(item, [at])
        if (model.options.version, self._version) != self._changed:   # the limits move with the curves
            self._changed = model.options.version, self._version
            at = sorted({float(change.iteration) for change in model.options.changes})[-EVENTS:]
            for view, item in zip(self._plots, self._options, strict=True):
                dpg.set_value(item, short_lines(at, *view.limits, log=view.log))

    def _update_branches(self) -> None:
        snapshot, wanted = self.ui.model.snapshot, self.ui.preferences.branch_curves
        key = (id(snapshot.branch_curves), id(snapshot.timeline.branches), wanted)
        if key == self._branches:
            return
        self._branches = key
        states = snapshot.timeline.branches
        slots = {branch.name: place for place, branch in enumerate(states)}
        labels = {branch.name: branch.label for branch in states}
        for view in self._plots:
            assert view.branches is not None
            view.branches.update(snapshot.branch_curves if wanted else {}, slots, labels, own_legend=len(view.series) > 1)
        self._version = -1   # the axes show these, too

    def _show(self, view: PlotView, curves: dict[str, Curve]) -> None:
        assert view.branches is not None
        lo, hi, end = view.branches.lo, view.branches.hi, max(1.0, view.branches.end)
        for series in view.series:
            curve = curves.get(series.curve)
            if curve is None or not len(curve.x):
                for item in (series.item, series.raw):
                    if item:
                        dpg.set_value(item, [[], []])
                continue
            good = np.isfinite(curve.y) & (curve.y > 0 if view.log else True)
            steps, values = np.asarray(curve.x, np.float64)[good], np.asarray(curve.y, np.float64)[good]
            drawn = decimate(steps, values, POINTS)
            x, y = drawn.x, drawn.y
            if series.raw:
                dpg.set_value(series.raw, [x, y])
                mean = decimate(steps, smoothed(values), POINTS // 4)
                dpg.set_value(series.item, [mean.x, mean.y])
            else:
                dpg.set_value(series.item, [x, y])
            if len(y):
                lo, hi, end = min(lo, float(y.min())), max(hi, float(y.max())), max(end, float(x[-1]))
        if view.follow and hi >= lo:
            if view.log:
                limits = lo / 1.2, hi * 1.2
                self._set_ticks(view, log_ticks(*limits))
            else:
                pad = 0.06 * (hi - lo) or max(abs(hi) * 0.05, 1.0)
                limits = lo - pad, hi + pad
            dpg.set_axis_limits(view.x, 0.0, end * 1.02)
            dpg.set_axis_limits(view.y, *limits)
            view.limits = limits

    @staticmethod
    def _set_ticks(view: PlotView, ticks: tuple[tuple[str, float], ...]) -> None:
        if ticks == view.ticks:
            return
        view.ticks = ticks
        if ticks:
            dpg.set_axis_ticks(view.y, ticks)
        else:
            dpg.reset_axis_ticks(view.y)

    # ------------------------------------------------------------------------------------------ zoom
    def hovered(self) -> bool:
        return any(dpg.is_item_hovered(v.item) for v in self._plots)

    def take_over(self) -> None:
        """The user wheels or drags in a plot: leave its axes to them."""
        for view in self._plots:
            if view.follow and dpg.is_item_hovered(view.item):
                view.follow = False
                dpg.set_axis_limits_auto(view.x)
                dpg.set_axis_limits_auto(view.y)
                self._set_ticks(view, ())

    def follow_again(self) -> None:
        for view in self._plots:
            if dpg.is_item_hovered(view.item):
                view.follow = True
                self._version = -1
