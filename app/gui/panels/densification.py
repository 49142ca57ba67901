"""Densification, seen and steered: the strategy, the statistic with its threshold, what comes next, and what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gui import formatting
from app.gui.fields import BY_PATH
from app.gui.panels.densify_events import EventLog
from app.gui.panels.densify_preview import Preview
from app.gui.panels.densify_strategy import StrategyChoice
from app.gui.panels.densify_timeline import Timeline
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, heading, label, put, show
from app.messages import Densified, Histogram

ACTIONS = ("cloned", "split", "pruned", "relocated", "added")


class DensificationPanel:
    title = "Densify"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1
        self._histogram: Histogram | None = None
        self._log = False
        self.strategy, self.preview, self.timeline, self.events = StrategyChoice(ui), Preview(ui), Timeline(ui), EventLog(ui)

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            self.strategy.build()
            heading(ui, "Statistic that decides")
            self._label = label(ui, "", Palette.muted, small=True, wrap=0)
            self._of = label(ui, "", Palette.muted, small=True, wrap=0)
            self._plot()
            self._share = label(ui, "", Palette.muted, small=True, wrap=0)
            self._empty = label(ui, "No statistic yet: it gathers while training runs, between two densifications.",
                                Palette.muted, small=True, wrap=0)
            self.preview.build()
            self.timeline.build()
            heading(ui, "Born and died")
            self._summary()
            self.events.build()

    def questions(self) -> Mapping[str, Any]:
        return {**self.preview.questions(), **self.events.questions()}

    def leave(self) -> None:
        self.preview.leave()

    def _plot(self) -> None:
        ui = self.ui
        with dpg.plot(height=ui.px(190), width=-1, no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            self._x = int(dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, label="Gaussians", no_highlight=True, scale=dpg.mvPlotScale_Log10) as y:
                self._below = int(dpg.add_shade_series([], [], y2=[]))
                self._above = int(dpg.add_shade_series([], [], y2=[]))
            self._y = int(y)
            self._line = int(dpg.add_drag_line(color=Palette.second, thickness=1.5 * ui.theme.scale, vertical=True,
                                               show_label=False, callback=self._on_threshold, no_fit=True))
        self._plot_item = int(plot)
        dpg.bind_item_theme(self._below, ui.theme.series((*Palette.accent[:3], 120)))
        dpg.bind_item_theme(self._above, ui.theme.series((*Palette.second[:3], 180)))

    def _summary(self) -> None:
        ui = self.ui
        self._cells: dict[tuple[str, str], int] = {}
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchSame, borders_innerH=True) as table:
            for text in ("", *ACTIONS[:3], "moved", "added"):
                dpg.add_table_column(label=text)
            for row in ("last", "total"):
                with dpg.table_row():
                    dpg.add_text(row, color=Palette.muted)
                    for name in ACTIONS:
                        self._cells[row, name] = int(dpg.add_text(formatting.NONE))
        dpg.bind_item_font(table, ui.theme.small)
        self._reset = label(ui, "", Palette.muted, small=True, wrap=0)

    def update(self) -> None:
        model = self.ui.model
        if model.histogram is not self._histogram:
            self._histogram = model.histogram
            if model.histogram is not None:
                self._show_histogram(model.histogram)
        known = self._histogram is not None
        show(self._empty, not known)
        show(self._plot_item, known)
        if model.densified_version != self._version:
            self._version = model.densified_version
            self._show_totals(model.densified)
        show(self._of, known)
        for part in (self.strategy, self.preview, self.timeline, self.events):
            part.update()

    def _show_histogram(self, h: Histogram) -> None:
        edges = np.asarray(h.edges, dtype=np.float64)
        counts = np.asarray(h.counts, dtype=np.float64)
        log = bool(len(edges) > 2 and edges[0] > 0 and edges[-1] / edges[0] > 50)
        if log is not self._log:
            self._log = log
            dpg.configure_item(self._x, scale=dpg.mvPlotScale_Log10 if log else dpg.mvPlotScale_Linear)
        x = np.repeat(edges, 2)[1:-1]
        y = np.maximum(np.repeat(counts, 2), 0.5)  # a log axis has no zero
        low, high = x <= h.threshold, x >= h.threshold
        for series, keep in ((self._below, high if h.below else low), (self._above, low if h.below else high)):
            shown = np.where(keep, y, 0.5)
            dpg.set_value(series, [x, shown, np.full_like(x, 0.5), [], []])
        lo, hi = float(edges[0]), float(edges[-1])
        if h.threshold > 0:
            lo, hi = (min(lo, h.threshold / 2), max(hi, h.threshold * 2)) if log else (lo, max(hi, h.threshold * 1.3))
        dpg.set_axis_limits(self._x, lo, hi)
        dpg.set_axis_limits(self._y, 0.5, max(10.0, float(counts.max(initial=0.0)) * 1.6))
        if not dpg.is_mouse_button_down(dpg.mvMouseButton_Left):
            dpg.set_value(self._line, h.threshold)
        put(self._label, h.label)
        put(self._of, of_when(h))   # a line that is always there: nothing below it moves
        dpg.configure_item(self._of, color=Palette.muted if h.found is None else Palette.second)
        put(self._share, share_text(h))

    def _show_totals(self, events: list[Densified]) -> None:
        totals = self.ui.model.totals
        last = next((e for e in reversed(events) if not e.reset or e.cloned or e.split or e.pruned), None)
        for name in ACTIONS:
            put(self._cells["last", name], formatting.NONE if last is None else formatting.count(getattr(last, name)))
            put(self._cells["total", name], formatting.count(getattr(totals, name)))
        reset = next((e for e in reversed(events) if e.reset), None)
        if reset is None:
            put(self._reset, "No opacity reset yet.")
        else:
            number = formatting.count
            put(self._reset, f"{number(reset.reset)} opacities lowered at iteration {number(reset.iteration)}; "
                             f"{totals.resets} reset{'s' if totals.resets != 1 else ''} in all.")

    def _on_threshold(self, sender: int) -> None:
        path = self.ui.model.threshold_path()
        spec = BY_PATH[path]
        assert spec.lo is not None and spec.hi is not None
        value = min(max(float(dpg.get_value(self._line)), spec.lo), spec.hi)
        self.preview.held()
        self.ui.set_option(path, float(f"{value:.4g}"))


def of_when(h: Histogram) -> str:
    """Which moment a histogram is of: shortly after an event it is what that event decided by, not what the next one will."""
    return "as it is now" if h.found is None else f"as the event at iteration {formatting.count(h.found)} found it"


def share_text(h: Histogram) -> str:
    """How many are beyond the threshold, or were."""
    edges, counts = np.asarray(h.edges, np.float64), np.asarray(h.counts, np.float64)
    total, then = max(int(counts.sum()), 1), h.found is not None
    beyond = int(counts[edges[1:] <= h.threshold].sum() if h.below else counts[edges[:-1] >= h.threshold].sum())
    text = (f"threshold {formatting.number(h.threshold)}   {'below' if h.below else 'above'} it {'were ' if then else ''}"
            f"{formatting.count(beyond)} ({beyond / total:.1%})")
    unseen = "" if h.below else f"\nnever seen {'until then' if then else 'since the last densification'} {h.never_seen:.1%}"
    return text + unseen
