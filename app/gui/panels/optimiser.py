"""What moves each parameter group, how fast, and how far each step takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.gui import formatting
from app.gui.fields import BY_PATH
from app.gui.panels.plots import log_ticks
from app.gui.theme import Color, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import FieldControls, Ui, button, heading, label, put, show, tooltip
from app.inspection.questions import UpdatesQuestion
from app.inspection.update_results import GroupUpdates, Updates
from app.messages import Answer, SetOptions

GROUPS: dict[str, tuple[str, Color]] = {
    "means": ("mean", (95, 179, 196, 255)), "quats": ("quaternion", (154, 139, 208, 255)),
    "log_scales": ("log scale", (127, 191, 138, 255)), "logit_opacities": ("logit opacity", (224, 164, 88, 255)),
    "sh0": ("base colour", (217, 134, 102, 255)), "shN": ("higher SH", (197, 131, 184, 255))}
NO_POINTS = "Press Train: points appear here, one for each step that is read."
KINDS = (("ratios", "update / parameter"), ("updates", "mean |update|"))


class OptimiserPanel:
    title = "Optimiser"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._answer: Answer | None = None
        self._version = -1
        self._kind = KINDS[0][0]
        self._ticks: tuple = ()

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Size of each step", first=True)
            label(ui, "Mean over all numbers of a group. Read while this page is open; a step in between leaves no point.",
                  Palette.muted, small=True, wrap=0)
            kind = int(dpg.add_radio_button([text for _, text in KINDS], horizontal=True, default_value=KINDS[0][1],
                                            callback=self._on_kind))
            tooltip(ui, kind, "Against the mean size of the parameter, or by itself. A rule of thumb from training networks is "
                              "a ratio near 1e-3; 0 stands still.")
            self._plot()
            self._empty = label(ui, NO_POINTS, Palette.muted, small=True, wrap=0)
            self._table()
            heading(ui, "Rule and factor")
            label(ui, "Each group goes by Adam, by SGD or stands still; the factor multiplies its learning rate of the page "
                      "Options. Changes act in the next step.", Palette.muted, small=True, wrap=0)
            self._rules()
            self._fields = FieldControls(ui)
            for path in ("optimizer.momentum", "optimizer.on_switch", "sparse_adam"):
                self._fields.add(BY_PATH[path])

    def _plot(self) -> None:
        ui = self.ui
        with dpg.plot(height=ui.px(170), width=-1, no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            self._x = int(dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, no_highlight=True, scale=dpg.mvPlotScale_Log10) as y:
                self._series = {}
                for group, (text, color) in GROUPS.items():
                    self._series[group] = int(dpg.add_line_series([], [], label=text))
                    dpg.bind_item_theme(self._series[group], ui.theme.series(color))
            self._y, self._plot_item = int(y), int(plot)
        dpg.bind_item_font(plot, ui.theme.small)

    def _table(self) -> None:
        ui = self.ui
        self._cells: dict[str, tuple[int, ...]] = {}
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True) as table:
            for text in ("group", "rule", "rate", "|update|", "ratio"):
                dpg.add_table_column(label=text)
            for group, (text, color) in GROUPS.items():
                with dpg.table_row():
                    dpg.add_text(text, color=color)
                    self._cells[group] = tuple(int(dpg.add_text(formatting.NONE)) for _ in range(4))
        dpg.bind_item_font(table, ui.theme.small)
        tooltip(ui, int(table), "Of the last step: the rule it went by, the learning rate with its factor, the mean |update| "
                                "and that over the mean |parameter|")

    def _rules(self) -> None:
        ui = self.ui
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            button(ui, "All Adam", self._on_all_adam, "Every group goes by Adam again, with a factor of 1")
            button(ui, "All SGD", self._on_all_sgd, "Every group goes by SGD with momentum; it needs large factors, for its "
                                                    "steps are as large as the gradients")
        plain = replace(ui)
        self._groups = FieldControls(plain)
        for group, (text, _) in GROUPS.items():
            self._groups.add(replace(BY_PATH[f"optimizer.{group}"], label=text))
            self._groups.add(replace(BY_PATH[f"optimizer.{group}_factor"], label="   factor"))

    def questions(self) -> Mapping[str, Any]:
        return {"optimiser": UpdatesQuestion()}

    def update(self) -> None:
        self._fields.update()
        self._groups.update()
        answer = self.ui.model.snapshot.answers.get("optimiser")
        if answer is self._answer:
            return
        self._answer = answer
        found: Updates | None = answer.value if answer is not None else None
        # a line has two points
        known = found is not None and any(len(group.iterations) > 1 for group in found.groups)
        show(self._plot_item, known)
        text = answer.problem if answer is not None and answer.problem else \
            NO_POINTS
        if found is not None and found.pending:
            text, known_now = "The gradients of the next step are known; its update is pending.", False
        else:
            known_now = known
        lost = [GROUPS[group.group][0] for group in found.groups if group.forgotten] if found is not None else []
        if lost and known_now:
            text = (f"How far the update went is not known of {', '.join(lost)}: a densification, a reset or an edit by hand "
                    "has changed since what it is read from.")
        put(self._empty, text)
        show(self._empty, not known_now or bool(lost))
        for group in found.groups if found is not None else ():
            self._show_group(group)
        if found is not None:
            self._fit(found)

    def _show_group(self, group: GroupUpdates) -> None:
        rule, rate, update, ratio = self._cells[group.group]
        none = math.isnan(group.update)
        put(rule, group.rule)
        put(rate, formatting.number(group.rate, 2))
        put(update, formatting.NONE if none else formatting.number(group.update, 2))
        put(ratio, formatting.NONE if none or not group.size > 0 else formatting.number(group.update / group.size, 2))
        values = getattr(group, self._kind)
        good = values > 0   # a log axis has no zero
        dpg.set_value(self._series[group.group], [group.iterations[good], values[good]])

    def _fit(self, found: Updates) -> None:
        values = [v for group in found.groups for v in getattr(group, self._kind).tolist() if v > 0]
        steps = [x for group in found.groups for x in group.iterations.tolist()]
        if values:
            dpg.set_axis_limits(self._x, min(steps) - 1, max(max(steps), min(steps) + 10) * 1.01)
            limits = min(values) / 1.5, max(values) * 1.5
            dpg.set_axis_limits(self._y, *limits)
            ticks = log_ticks(*limits)
            if ticks != self._ticks:   # by itself a log axis labels powers of ten only
                self._ticks = ticks
                dpg.set_axis_ticks(self._y, ticks)

    def _on_kind(self, sender: int, text: str) -> None:
        self._kind = next(name for name, shown in KINDS if shown == text)
        self._answer = None

    def _on_all_adam(self) -> None:
        self._send_all("adam", 1.0)

    def _on_all_sgd(self) -> None:
        self._send_all("sgd", None)

    def _send_all(self, rule: str, factor: float | None) -> None:
        values: dict[str, Any] = {f"optimizer.{group}": rule for group in GROUPS}
        if factor is not None:
            values |= {f"optimizer.{group}_factor": factor for group in GROUPS}
        self.ui.send(SetOptions(values))
