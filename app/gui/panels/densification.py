"""Adaptive density control, seen: the statistic with its threshold, and who was cloned, split and pruned."""

from __future__ import annotations

import numpy as np

from app.gui import formatting
from app.gui.fields import BY_PATH
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, heading, label, put, show
from app.messages import Densified, Histogram

ROWS = 40
COLUMNS = ("iteration", "cloned", "split", "pruned", "count")


class DensificationPanel:
    title = "Densify"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1
        self._histogram: Histogram | None = None
        self._log = False

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Densification statistic", first=True)
            self._label = label(ui, "", Palette.muted, small=True, wrap=0)
            self._plot()
            self._share = label(ui, "", Palette.muted, small=True, wrap=0)
            self._empty = label(ui, "No statistic yet: it gathers while training runs, between two densifications.",
                                Palette.muted, small=True, wrap=0)
            heading(ui, "Born and died")
            self._summary()
            heading(ui, "Events")
            self._events()

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
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchSame, borders_innerH=True):
            for text in ("", "cloned", "split", "pruned"):
                dpg.add_table_column(label=text)
            for row in ("last", "total"):
                with dpg.table_row():
                    dpg.add_text(row, color=Palette.muted)
                    for name in ("cloned", "split", "pruned"):
                        self._cells[row, name] = int(dpg.add_text(formatting.NONE))
        self._reset = label(ui, "", Palette.muted, small=True, wrap=0)

    def _events(self) -> None:
        ui = self.ui
        self._table_rows: list[tuple[int, tuple[int, ...]]] = []
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchSame, borders_innerH=True, row_background=True,
                       scrollY=True, height=ui.px(190), freeze_rows=1) as table:
            for text in COLUMNS:
                dpg.add_table_column(label=text)
            for _ in range(ROWS):
                with dpg.table_row(show=False) as row:
                    self._table_rows.append((int(row), tuple(int(dpg.add_text("")) for _ in COLUMNS)))
        self._table = int(table)
        dpg.bind_item_font(table, ui.theme.small)

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
            self._show_events(model.densified)

    def _show_histogram(self, h: Histogram) -> None:
        edges = np.asarray(h.edges, dtype=np.float64)
        counts = np.asarray(h.counts, dtype=np.float64)
        log = bool(len(edges) > 2 and edges[0] > 0 and edges[-1] / edges[0] > 50)
        if log is not self._log:
            self._log = log
            dpg.configure_item(self._x, scale=dpg.mvPlotScale_Log10 if log else dpg.mvPlotScale_Linear)
        x = np.repeat(edges, 2)[1:-1]
        y = np.maximum(np.repeat(counts, 2), 0.5)  # a log axis has no zero
        for series, keep in ((self._below, x <= h.threshold), (self._above, x >= h.threshold)):
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
        total = max(int(counts.sum()), 1)
        above = int(counts[edges[:-1] >= h.threshold].sum())
        put(self._share, f"threshold {formatting.number(h.threshold)}   above it {formatting.count(above)} "
                         f"({above / total:.1%})\nnever seen since the last densification {h.never_seen:.1%}")

    def _show_events(self, events: list[Densified]) -> None:
        totals = self.ui.model.totals
        last = next((e for e in reversed(events) if not e.reset), None)
        for name in ("cloned", "split", "pruned"):
            put(self._cells["last", name], formatting.NONE if last is None else formatting.count(getattr(last, name)))
            put(self._cells["total", name], formatting.count(getattr(totals, name)))
        reset = next((e for e in reversed(events) if e.reset), None)
        if reset is None:
            put(self._reset, "No opacity reset yet.")
        else:
            number = formatting.count
            put(self._reset, f"{number(reset.reset)} opacities lowered at iteration {number(reset.iteration)}; "
                             f"{totals.resets} reset{'s' if totals.resets != 1 else ''} in all.")
        newest = events[::-1][:ROWS]
        for index, (row, cells) in enumerate(self._table_rows):
            shown = index < len(newest)
            show(row, shown)
            if not shown:
                continue
            e = newest[index]
            texts = (formatting.count(e.iteration), "reset" if e.reset else _signed("+", e.cloned),
                     f"{formatting.count(e.reset)}" if e.reset else _signed("+", e.split), _signed("-", e.pruned),
                     formatting.count(e.count))
            for cell, text in zip(cells, texts):
                put(cell, text)

    def _on_threshold(self, sender: int) -> None:
        path = self.ui.model.threshold_path()
        spec = BY_PATH[path]
        assert spec.lo is not None and spec.hi is not None
        value = min(max(float(dpg.get_value(self._line)), spec.lo), spec.hi)
        self.ui.set_option(path, float(f"{value:.4g}"))


def _signed(sign: str, count: int) -> str:
    return f"{sign}{count}" if count else "0"
