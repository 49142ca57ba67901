"""The alpha-rule laboratory: one view's gradients under two rules, and two lanes of the run trained on under them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.gui import formatting
from app.gui.fields import BY_PATH
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show, tooltip
from app.inspection.rules import MODES, Comparison, Lanes, OneRule, Rule
from app.messages import CompareRules, RunLanes

QUANTITIES = {"mean2d": "|∂L/∂mean2D|", "opacity": "∂L/∂opacity", "means": "|∂L/∂mean|"}
CHOICES = {"alpha_max": "α max", "alpha_gradient": "gradient", "smooth_cutoff": "smooth"}
SHORT = dict(zip(MODES, ("exact", "straight", "straight, cl."), strict=True))
LARGEST = 12
LANE_STEPS = 100
FIGURES: tuple[tuple[str, str], ...] = (
    ("loss", "Of this view, before any update"), ("PSNR", "Of this view"),
    ("clamped pixels", "Share of the pixels in which a blended Gaussian has opacity G above alpha_max"),
    ("clamped pairs", "The same of all (Gaussian, pixel) pairs that are blended"))


class LaboratoryPanel:
    title = "Lab"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._rules = [Rule(), Rule(alpha_gradient="straight_through")]
        self._quantity = "mean2d"
        self._steps = LANE_STEPS
        self._shown: Comparison | None = None
        self._lanes: Lanes | None = None

    # ------------------------------------------------------------------------------------------ building
    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Two alpha rules", first=True)
            self._choices()
            button(ui, "Compare on this view", self._on_compare,
                   "Gradients of one photograph's loss under both rules: of the view the camera stands at, else that of the "
                   "last step. Training does not move.", width=-1)
            self._working = label(ui, "", Palette.accent, small=True, wrap=0)
            self._empty = label(ui, "Nothing is compared yet. Where opacity · G exceeds alpha_max the rules send different "
                                    "gradients back; here you see to whom, and how many pixels are concerned.",
                                Palette.muted, small=True, wrap=0)
            with dpg.group(show=False) as results:
                self._results_table()
            self._results = int(results)
            heading(ui, "Two lanes from here")
            self._lane_controls()

    def _choices(self) -> None:
        ui = self.ui
        self._inputs: list[dict[str, int]] = [{}, {}]
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True):
            for text, share in (("", 0.7), ("A", 1.2), ("B", 1.2)):
                dpg.add_table_column(label=text, init_width_or_weight=share)
            for name in ("alpha_max", "alpha_gradient", "smooth_cutoff"):
                with dpg.table_row():
                    with dpg.group():
                        text = int(dpg.add_text(CHOICES[name], color=Palette.muted))
                        tooltip(ui, text, f"raster.{name}\n{BY_PATH[f'raster.{name}'].tooltip}")
                    for lane in range(2):
                        self._inputs[lane][name] = self._choice(name, lane)

    def _choice(self, name: str, lane: int) -> int:
        value, data = getattr(self._rules[lane], name), (name, lane)
        if name == "alpha_gradient":
            return int(dpg.add_combo(list(SHORT.values()), default_value=SHORT[value], width=-1, callback=self._on_mode,
                                     user_data=data))
        if name == "smooth_cutoff":
            return int(dpg.add_checkbox(default_value=value, callback=self._on_choice, user_data=data))
        item = int(dpg.add_input_text(default_value=f"{value:g}", width=-1, callback=self._on_typed, on_enter=True,
                                      user_data=data))
        self.ui.typing.append(item)
        return item

    def _results_table(self) -> None:
        ui = self.ui
        self._title = label(ui, "", Palette.muted, small=True, wrap=0)
        self._cells: dict[tuple[str, int], int] = {}
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True):
            for text, share in (("", 1.3), ("A", 1.0), ("B", 1.0)):
                dpg.add_table_column(label=text, init_width_or_weight=share)
            for name, tip in FIGURES:
                with dpg.table_row():
                    with dpg.group():
                        tooltip(ui, int(dpg.add_text(name, color=Palette.muted)), tip)
                    for lane in range(2):
                        self._cells[name, lane] = int(dpg.add_text(formatting.NONE))
                        dpg.bind_item_font(self._cells[name, lane], ui.theme.mono)
        self._image = label(ui, "", Palette.muted, small=True, wrap=0)
        heading(ui, "Largest differences")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
            dpg.add_combo(list(QUANTITIES.values()), default_value=QUANTITIES[self._quantity], width=ui.px(150),
                          callback=self._on_quantity)
            button(ui, "As heatmap", self._on_heatmap, "B − A of this quantity, each Gaussian in its colour")
        self._rows: list[tuple[int, int, tuple[int, ...]]] = []
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True,
                       row_background=True) as table:
            for text, share in (("uid", 1.0), ("A", 1.1), ("B", 1.1), ("B − A", 1.1)):
                dpg.add_table_column(label=text, init_width_or_weight=share)
            for _ in range(LARGEST):
                with dpg.table_row(show=False) as row:
                    with dpg.group(horizontal=True, horizontal_spacing=0):   # its own text would stand higher than the others
                        uid = int(dpg.add_selectable(label="", span_columns=True, callback=self._on_uid))
                        first = int(dpg.add_text(""))
                    cells = (first, *(int(dpg.add_text("")) for _ in range(3)))
                    self._rows.append((int(row), uid, cells))
        dpg.bind_item_font(table, ui.theme.small)

    def _lane_controls(self) -> None:
        ui = self.ui
        label(ui, "Two copies of the run train on from this moment, on the same views in the same order; the run itself waits.",
              Palette.muted, small=True, wrap=0)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
            steps = int(dpg.add_input_text(default_value=str(self._steps), width=ui.px(64), on_enter=True, decimal=True,
                                           callback=self._on_steps))
            ui.typing.append(steps)
            self._steps_item = steps
            dpg.add_text("steps", color=Palette.muted)
            button(ui, "Run both", self._on_lanes, "Costs as much as twice so many training steps, and memory for two copies")
        self._progress = label(ui, "", Palette.muted, small=True, wrap=0)
        self._plots: list[tuple[int, int, list[int]]] = []
        with dpg.group(show=False) as group:
            for title in ("Loss", "PSNR  [dB]"):
                self._plots.append(self._plot(title))
        self._plots_group = int(group)

    def _plot(self, title: str) -> tuple[int, int, list[int]]:
        ui = self.ui
        with dpg.plot(label=title, height=ui.px(150), width=-1, no_menus=True, no_mouse_pos=True, no_box_select=True) as plot:
            dpg.add_plot_legend(location=dpg.mvPlot_Location_NorthEast)
            x = int(dpg.add_plot_axis(dpg.mvXAxis, no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, no_highlight=True) as y:
                series = []
                for name, color in (("A", Palette.accent), ("B", Palette.second)):
                    item = int(dpg.add_line_series([], [], label=name))
                    dpg.bind_item_theme(item, ui.theme.series(color))
                    series.append(item)
        dpg.bind_item_font(plot, ui.theme.small)
        return x, int(y), series

    # ------------------------------------------------------------------------------------------ showing
    def update(self) -> None:
        model = self.ui.model
        working = model.job_text("compare") or model.job_text("lanes")
        put(self._working, working)
        show(self._working, bool(working))
        if model.comparison is not self._shown:
            self._shown = model.comparison
            show(self._empty, self._shown is None)
            show(self._results, self._shown is not None)
            self._show_comparison()
        if model.lanes is not self._lanes:
            self._lanes = model.lanes
            show(self._plots_group, self._lanes is not None)
            if self._lanes is not None:
                self._show_lanes(self._lanes)
            else:
                put(self._progress, "")

    def _show_comparison(self) -> None:
        found = self._shown
        if found is None:
            return
        put(self._title, f"View {found.view}, iteration {formatting.count(found.iteration)}\nA: {found.a.rule.text}\n"
                         f"B: {found.b.rule.text}")
        for lane, one in enumerate((found.a, found.b)):
            for name, text in _figures(one).items():
                put(self._cells[name, lane], text)
        same = "The pictures are the same to the bit." if found.image_difference == 0 else \
            f"The pictures differ by up to {formatting.number(found.image_difference)} of full scale."
        put(self._image, same)
        self._show_largest(found)

    def _show_largest(self, found: Comparison) -> None:
        a, b = found.values[self._quantity]
        tops = found.tops[self._quantity]
        for place, (row, uid, cells) in enumerate(self._rows):
            there = place < len(tops) and bool(a[tops[place]] != b[tops[place]])
            show(row, there)
            if not there:
                continue
            at = int(tops[place])
            dpg.configure_item(uid, user_data=int(found.uids[at]))
            put(cells[0], str(int(found.uids[at])))
            for cell, value in zip(cells[1:], (a[at], b[at], b[at] - a[at])):
                put(cell, formatting.number(float(value)))

    def _show_lanes(self, lanes: Lanes) -> None:
        both = (lanes.a, lanes.b)
        held = "" if any(math.isnan(lane.held_out) for lane in both) else \
            f"\nHeld-out PSNR  A {lanes.a.held_out:.2f}  B {lanes.b.held_out:.2f} dB"
        put(self._progress, f"From iteration {formatting.count(lanes.start)}: {lanes.done} of {lanes.steps} steps.  Gaussians "
                            f"A {formatting.count(lanes.a.gaussians)}  B {formatting.count(lanes.b.gaussians)}{held}")
        x = np.arange(1, lanes.done + 1, dtype=np.float64) + lanes.start
        for (x_axis, y_axis, series), curves in zip(self._plots, ([_mean(lane.loss) for lane in both],
                                                                  [_mean(lane.psnr) for lane in both])):
            for item, curve in zip(series, curves):
                dpg.set_value(item, [x, curve])
            if lanes.done:
                lo, hi = float(min(c.min() for c in curves)), float(max(c.max() for c in curves))
                dpg.set_axis_limits(x_axis, lanes.start, lanes.start + lanes.steps)
                dpg.set_axis_limits(y_axis, lo - 0.05 * (hi - lo) - 1e-6, hi + 0.15 * (hi - lo) + 1e-6)

    # ------------------------------------------------------------------------------------------ the user
    def _on_mode(self, sender: int, text: str, data: tuple[str, int]) -> None:
        self._on_choice(sender, next(mode for mode, short in SHORT.items() if short == text), data)

    def _on_choice(self, sender: int, value: Any, data: tuple[str, int]) -> None:
        name, lane = data
        values = {field: getattr(self._rules[lane], field) for field in ("alpha_max", "alpha_gradient", "smooth_cutoff")}
        self._rules[lane] = Rule(**{**values, name: value})

    def _on_typed(self, sender: int, text: str, data: tuple[str, int]) -> None:
        name, lane = data
        try:
            value = float(BY_PATH[f"raster.{name}"].parse(text))
        except ValueError as error:
            self.ui.actions.notify(str(error), "warning")
            value = getattr(self._rules[lane], name)
        dpg.set_value(sender, f"{value:g}")
        self._on_choice(sender, value, data)

    def _take_typed(self) -> None:
        """What stands in the fields, entered or not."""
        for lane in range(2):
            item = self._inputs[lane]["alpha_max"]
            self._on_typed(item, dpg.get_value(item), ("alpha_max", lane))
        self._on_steps(self._steps_item, dpg.get_value(self._steps_item))

    def _on_compare(self) -> None:
        self._take_typed()
        self.ui.send(CompareRules(self._rules[0], self._rules[1], self.ui.view.view_index))

    def _on_quantity(self, sender: int, text: str) -> None:
        self._quantity = next(name for name, shown in QUANTITIES.items() if shown == text)
        self._show_comparison()

    def _on_heatmap(self) -> None:
        self.ui.view.quantity = f"lab_{self._quantity}"
        self.ui.actions.set_mode("heatmap")

    def _on_uid(self, sender: int) -> None:
        dpg.set_value(sender, False)
        self.ui.actions.select_uid(int(dpg.get_item_user_data(sender) or 0))

    def _on_steps(self, sender: int, text: str) -> None:
        try:
            self._steps = int(max(1.0, min(float(text), 5000.0)))
        except (ValueError, OverflowError):
            self.ui.actions.notify(f"{text!r} is no number of steps; type one from 1 to 5000.", "warning")
        dpg.set_value(sender, str(self._steps))

    def _on_lanes(self) -> None:
        self._take_typed()
        self.ui.send(RunLanes(self._rules[0], self._rules[1], self._steps))


def _figures(one: OneRule) -> dict[str, str]:
    return {"loss": formatting.number(one.loss, 4), "PSNR": formatting.decibel(one.psnr),
            "clamped pixels": f"{one.clamped_pixels:.2%}", "clamped pairs": f"{one.clamped_pairs:.2%}"}


def _mean(values: np.ndarray) -> np.ndarray:
    """Photographs differ, so single steps scatter: a running mean over the last tenth."""
    width = max(1, len(values) // 10)
    total = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return (total[ends] - total[starts]) / (ends - starts)


