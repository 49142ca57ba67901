"""The gradient check: finite differences against the gradient that trains, on the selected Gaussians of the user's scene."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show, tooltip
from app.inspection.gradcheck_results import KINKS, GradientReport, ParameterReport, Sweep
from app.messages import CheckGradients
from render.types import PARAM_GROUPS

COUNT = 10      # Gaussians drawn at random where none is selected
COLUMNS: tuple[tuple[str, float, str], ...] = (
    ("parameter", 1.6, "Raw parameter group"), ("checked", 0.9, "Entries without a kink between x - h and x + h, of all"),
    ("kinks", 0.7, "Kinks met on the way from x - h to x + h; there masks and order were held as they are at x"),
    ("max", 1.0, "Largest relative error"), ("median", 1.0, "Median relative error"))
DTYPES = ("float64", "float32")
OWN = "as trained"


class GradientCheckPanel:
    title = "Check"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._report: GradientReport | None = None
        self._selected = -1
        self._wanted: dict[str, bool] = {name: True for name in PARAM_GROUPS}
        self._dtype = DTYPES[0]
        self._backend = ""
        self._backends: tuple[str, ...] = ()
        self._curve: str | None = None

    # ------------------------------------------------------------------------------------------ building
    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Gradient check", first=True)
            label(ui, "Each number is moved by ±h and the loss of this view computed anew in float64; the difference must be "
                      "what the backward pass says.", Palette.muted, small=True, wrap=0)
            self._who = label(ui, "", Palette.text, wrap=0)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(8)):
                for place, name in enumerate(PARAM_GROUPS[:3]):
                    self._box(name, place)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(8)):
                for place, name in enumerate(PARAM_GROUPS[3:]):
                    self._box(name, place)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                dtype = int(dpg.add_combo(DTYPES, default_value=self._dtype, width=ui.px(82), callback=self._on_dtype))
                tooltip(ui, dtype, "Precision of the backward pass under test; finite differences are float64 always")
                self._backend_item = int(dpg.add_combo([OWN], default_value=OWN, width=ui.px(98), callback=self._on_backend))
                tooltip(ui, self._backend_item, "Whose backward pass is tested")
                self.check = button(ui, "Check", self._on_check, "Training waits meanwhile; × beside Job stops it", width=96)
            self._working = label(ui, "", Palette.accent, small=True, wrap=0)
            self._empty = label(ui, "Nothing is checked yet.", Palette.muted, small=True, wrap=0)
            with dpg.group(show=False) as results:
                self._results()
            self._group = int(results)

    def _box(self, name: str, place: int) -> None:
        box = int(dpg.add_checkbox(label=name, default_value=True, callback=self._on_box, user_data=name))
        dpg.bind_item_font(box, self.ui.theme.small)

    def _results(self) -> None:
        ui = self.ui
        heading(ui, "Result")
        self._verdict = label(ui, "", Palette.good, wrap=0)
        self._about = label(ui, "", Palette.muted, small=True, wrap=0)
        self._rows: list[tuple[int, int, tuple[int, ...]]] = []
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True,
                       row_background=True) as table:
            for text, share, _ in COLUMNS:
                dpg.add_table_column(label=text, init_width_or_weight=share)
            for _ in PARAM_GROUPS:
                with dpg.table_row(show=False) as row:
                    with dpg.group(horizontal=True, horizontal_spacing=0):   # its own text would stand higher than the others
                        name = int(dpg.add_selectable(label="", span_columns=True, callback=self._on_row))
                        first = int(dpg.add_text(""))
                    self._rows.append((int(row), name, (first, *(int(dpg.add_text("")) for _ in COLUMNS[1:]))))
        dpg.bind_item_font(table, ui.theme.small)
        self._notes = label(ui, "", Palette.muted, small=True, wrap=0)
        with dpg.group(show=False) as curve:
            heading(ui, "Error by step")
            self._plot()
            self._slopes = label(ui, "", Palette.muted, small=True, wrap=0)
        self._curve_group = int(curve)

    def _plot(self) -> None:
        ui = self.ui
        with dpg.plot(height=ui.px(190), width=-1, no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            dpg.add_plot_legend(location=dpg.mvPlot_Location_North)
            self._x = int(dpg.add_plot_axis(dpg.mvXAxis, label="h", no_highlight=True, scale=dpg.mvPlotScale_Log10))
            with dpg.plot_axis(dpg.mvYAxis, label="relative error", no_highlight=True, scale=dpg.mvPlotScale_Log10) as y:
                self._raw = int(dpg.add_line_series([], [], label="as rendered"))
                self._frozen = int(dpg.add_line_series([], [], label="masks held"))
                self._default = int(dpg.add_inf_line_series([], label="h used"))
            self._y = int(y)
        for series, color in ((self._raw, (*Palette.muted[:3], 170)), (self._frozen, Palette.accent),
                              (self._default, Palette.second)):
            dpg.bind_item_theme(series, ui.theme.series(color))
        dpg.bind_item_font(plot, ui.theme.small)

    # ------------------------------------------------------------------------------------------ showing
    def update(self) -> None:
        model = self.ui.model
        count = model.snapshot.selection.selected or int(model.snapshot.selected is not None)
        if count != self._selected:
            self._selected = count
            put(self._who, f"{formatting.count(count)} selected" if count else
                f"None is selected: {COUNT} that this view shows are drawn at random.")
        backends = tuple(name for name in model.snapshot.backends if name != "auto")
        if backends != self._backends:
            self._backends = backends
            dpg.configure_item(self._backend_item, items=[OWN, *backends])
        working = model.job_text("check")
        put(self._working, working)
        show(self._working, bool(working))
        report = model.checked.report if model.checked is not None else None
        if report is not self._report:
            self._report = report
            show(self._empty, report is None)
            show(self._group, report is not None)
            if report is not None:
                self._show(report)

    def _show(self, report: GradientReport) -> None:
        bad = [p for p in report.parameters if not p.ok]
        put(self._verdict, "Every gradient is right." if report.ok else f"Not right: {', '.join(p.parameter for p in bad)}")
        dpg.configure_item(self._verdict, color=Palette.good if report.ok else Palette.bad)
        loss = "random cotangent" if report.loss == "cotangent" else report.loss
        put(self._about, f"{len(report.gaussians)} Gaussians in {report.view} ({report.width}×{report.height}), {loss}, "
                         f"backend {report.backend}, {report.dtype}, {report.alpha_gradient.replace('_', ' ')}, "
                         f"{formatting.duration(report.seconds)}")
        for (row, name, cells), parameter in zip(self._rows, [*report.parameters, *[None] * len(PARAM_GROUPS)], strict=False):
            show(row, parameter is not None)
            if parameter is not None:
                sign = "✓" if parameter.ok else "✗"
                dpg.configure_item(name, user_data=parameter.parameter)
                for cell, text in zip(cells, (f"{sign} {parameter.parameter}", *_cells(parameter)), strict=True):
                    put(cell, text)
        put(self._notes, "\n".join(_sentences(report)))
        curves = [sweep.parameter for sweep in report.sweeps]
        self._curve = self._curve if self._curve in curves else curves[0] if curves else None
        self._show_curve()

    def _show_curve(self) -> None:
        sweep = next((s for s in self._report.sweeps if s.parameter == self._curve), None) if self._report is not None else None
        show(self._curve_group, sweep is not None)
        if sweep is None:
            return
        for _, name, _ in self._rows:
            dpg.set_value(name, dpg.get_item_user_data(name) == sweep.parameter)
        steps = np.asarray(sweep.steps, dtype=np.float64)
        errors = [np.maximum(np.nan_to_num(np.asarray(e, dtype=np.float64), nan=1e-17, posinf=1e3), 1e-17)
                  for e in (sweep.errors, sweep.frozen)]
        for series, values in zip((self._raw, self._frozen), errors):
            dpg.set_value(series, [steps, values])
        dpg.set_value(self._default, [[sweep.default_step]])
        dpg.set_axis_limits(self._x, float(steps.min()) * 0.7, float(steps.max()) * 1.4)
        both = np.concatenate(errors)
        dpg.set_axis_limits(self._y, float(both.min()) * 0.4, float(both.max()) * 30.0)
        put(self._slopes, _slopes(sweep))

    # ------------------------------------------------------------------------------------------ the user
    def _on_box(self, sender: int, on: bool, name: str) -> None:
        self._wanted[name] = on

    def _on_dtype(self, sender: int, text: str) -> None:
        self._dtype = text

    def _on_backend(self, sender: int, text: str) -> None:
        self._backend = "" if text == OWN else text

    def _on_row(self, sender: int, on: bool, parameter: Any) -> None:
        self._curve = str(parameter)
        self._show_curve()

    def _on_check(self) -> None:
        wanted = tuple(name for name, on in self._wanted.items() if on)
        if not wanted:
            self.ui.actions.notify("Choose at least one parameter to check.", "warning")
            return
        view = self.ui.view
        bare = view.view_index is None and not view.views   # a PLY has no photographs: a random cotangent at this camera
        request = view.whole_request() if bare else None
        self.ui.send(CheckGradients(view_index=view.view_index, camera=request.camera if request is not None else None,
                                    parameters=wanted, backend=self._backend, count=COUNT,
                                    dtype="float32" if self._dtype == "float32" else "float64"))


def _cells(parameter: ParameterReport) -> tuple[str, ...]:
    kinked = sum(parameter.kinks.values())
    return (f"{parameter.checked}/{parameter.entries}", str(kinked) if kinked else formatting.NONE,
            formatting.number(parameter.max_error, 2), formatting.number(parameter.median_error, 2))


def _sentences(report: GradientReport) -> list[str]:
    """What the table does not say: failures, kinks by name, what is unseen."""
    found = [f"{p.parameter}: {p.problem}." for p in report.parameters if p.problem]
    kinks: dict[str, int] = {}
    for parameter in report.parameters:
        for name, count in parameter.kinks.items():
            kinks[name] = kinks.get(name, 0) + count
    found += [f"{count} × {name.replace('_', ' ')}: {KINKS[name]}." for name, count in kinks.items() if count]
    if report.unseen:
        found.append(f"{len(report.unseen)} of the Gaussians asked for are not in this view, or gone.")
    return found + list(report.notes)


def _slopes(sweep: Sweep) -> str:
    def slope(value: float) -> str:
        return formatting.NONE if math.isnan(value) else f"{value:+.1f}"

    return (f"{sweep.parameter}[{sweep.component}] of Gaussian {sweep.uid}: slope {slope(sweep.truncation_slope)} where "
            f"truncation rules (+2 expected), {slope(sweep.rounding_slope)} where rounding does (−1); h used "
            f"{formatting.number(sweep.default_step)}, best {formatting.number(sweep.best_step)}.")
