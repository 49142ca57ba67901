"""Any number per Gaussian: its histogram while training, a range of it to select or to draw alone, and who leads by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from app.gui import formatting
from app.gui.panels.ranking import RankingTable
from app.gui.range_plot import RangePlot
from app.gui.select_tools import held
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show, tooltip
from app.inspection.questions import HistogramQuestion, Sight
from app.inspection.results import Distribution
from app.messages import Answer, Keep, Quantity, SelectHow, SelectRange

SCALES = ("automatic", "linear", "log")
COLORMAPS = ("viridis", "turbo")


class QuantitiesPanel:
    title = "Numbers"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._scene = -1
        self._quantities: dict[str, Quantity] = {}
        self._shown: str = ""
        self._answer: Answer | None = None
        self._range: tuple[float, float] | None = None
        self._log: bool | None = None

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            with dpg.group() as self._choices:
                self._build_choices()
            self._problem = label(ui, "", Palette.second, small=True, wrap=0)
            with dpg.group() as self._body:
                self.plot = RangePlot(ui, self._on_drag)
                self._numbers = label(ui, "", Palette.muted, small=True, wrap=0)
                self._build_range()
                heading(ui, "Who leads")
                self.ranking = RankingTable(ui)

    def _build_choices(self) -> None:
        ui = self.ui
        self._combo = int(dpg.add_combo([], width=-1, callback=self._on_quantity, height_mode=dpg.mvComboHeight_Large))
        tooltip(ui, self._combo, "The number per Gaussian that everything here, and the heatmap, shows")
        self._help = label(ui, "", Palette.muted, small=True, wrap=0)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(10)):
            with dpg.group():
                self._heat = int(dpg.add_checkbox(label="Heatmap", callback=self._on_heat))
                tooltip(ui, self._heat, "Colour every Gaussian by it in the picture  (9)")
            with dpg.group():
                self._colors = int(dpg.add_combo(COLORMAPS, default_value=COLORMAPS[0], width=ui.px(86),
                                                 callback=self._on_colors))
                tooltip(ui, self._colors, "Colours of the heatmap; signed quantities are always blue to red around 0")
            with dpg.group():
                self._scale = int(dpg.add_combo(SCALES, default_value=SCALES[0], width=ui.px(100), callback=self._on_scale))
                tooltip(ui, self._scale, "Bins of the histogram: linear, logarithmic, or what suits the quantity")

    def _build_range(self) -> None:
        ui = self.ui
        heading(ui, "Range")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._lo = int(dpg.add_input_text(width=ui.px(78), callback=self._on_typed, on_enter=True))
            label(ui, "to")
            self._hi = int(dpg.add_input_text(width=ui.px(78), callback=self._on_typed, on_enter=True))
            for item, which in ((self._lo, "smallest"), (self._hi, "largest")):
                tooltip(ui, item, f"The {which} value of the range; Enter takes it. Or drag in the histogram")
                ui.typing.append(item)
            button(ui, "Select", self._on_select, "Select the Gaussians whose value lies in the range; a drag in the histogram "
                   "does so by itself. With Shift they are added, with Ctrl taken away")
        with dpg.group(horizontal=True):
            self._filter = int(dpg.add_checkbox(label="Hide outside the range", callback=self._on_filter))
            tooltip(ui, self._filter, "Draw only the Gaussians in the range; training goes on with all of them")

    # ------------------------------------------------------------------------------------------ asked
    def questions(self) -> Mapping[str, Any]:
        view = self.ui.view
        if view.quantity not in self._quantities:
            return {}
        sight = self._sight()
        if self._quantities[view.quantity].of_view and sight is None:
            return {}
        return {"histogram": HistogramQuestion(view.quantity, log=self._log, sight=sight),
                "table": self.ranking.question(view.quantity, sight)}

    def _sight(self) -> Sight | None:
        """Of the picture on the screen, where the quantity belongs to one."""
        frame = self.ui.model.frame
        if frame is None or not self._quantities[self.ui.view.quantity].of_view:
            return None
        return Sight.of(frame.camera)

    # ------------------------------------------------------------------------------------------ shown
    def update(self) -> None:
        ui, view = self.ui, self.ui.view
        if ui.model.scene_version != self._scene:
            self._scene = ui.model.scene_version
            scene = ui.model.scene
            self._quantities = {q.name: q for q in scene.quantities} if scene is not None else {}
            dpg.configure_item(self._combo, items=[q.label for q in self._quantities.values()])
            self._shown, self._answer = "", None
            self._forget_range()
        if view.quantity != self._shown and view.quantity in self._quantities:
            self._show_quantity(self._quantities[view.quantity])
        dpg.set_value(self._heat, view.mode == "heatmap")
        dpg.set_value(self._filter, view.keep is not None)
        answer = ui.model.snapshot.answers.get("histogram")
        if answer is not None and answer is not self._answer and answer.question.quantity == view.quantity:
            self._answer = answer
            self._show_answer(answer)
        if not self._quantities:
            put(self._problem, "Open a scene to see numbers of its Gaussians.")
        show(self._problem, not self._quantities or bool(self._answer is not None and self._answer.problem))
        show(self._choices, bool(self._quantities))
        show(self._body, self._answer is not None and self._answer.value is not None)
        self.plot.update()
        self.ranking.update(ui.model.snapshot.answers.get("table"))

    def _show_quantity(self, quantity: Quantity) -> None:
        if self._shown:
            self._forget_range()   # of another quantity
        self._shown, self._answer = quantity.name, None
        dpg.set_value(self._combo, quantity.label)
        put(self._help, quantity.help)
        dpg.configure_item(self._colors, enabled=not quantity.signed)

    def _show_answer(self, answer: Answer) -> None:
        put(self._problem, answer.problem)
        d: Distribution | None = answer.value
        if d is None:
            return
        self.plot.show(d)
        number = formatting.number
        parts = [f"min {number(d.low)}", f"median {number(d.median)}", f"mean {number(d.mean)}", f"max {number(d.high)}"]
        rest = [f"{formatting.count(d.total - d.unseen)} Gaussians with a value"]
        if d.log and d.zeros:
            rest.append(f"{formatting.count(d.zeros)} of them 0")
        if d.unseen:
            rest.append(f"{formatting.count(d.unseen)} not seen")
        put(self._numbers, "   ".join(parts) + "\n" + "   ".join(rest))

    # ------------------------------------------------------------------------------------------ range
    def _forget_range(self) -> None:
        self._range, self.ui.view.keep = None, None
        self.plot.mark(None)
        put(self._lo, "")
        put(self._hi, "")

    def _set_range(self, lo: float, hi: float) -> None:
        self._range = (lo, hi)
        put(self._lo, _written(lo))
        put(self._hi, _written(hi))
        self.plot.mark(self._range)
        if self.ui.view.keep is not None:
            self.ui.view.keep = Keep(self.ui.view.quantity, lo, hi)

    def _on_drag(self, lo: float, hi: float, how: SelectHow) -> None:
        self._set_range(lo, hi)
        self._select(how)

    def _on_typed(self) -> None:
        """The written numbers, where they are others than what is shown of the range."""
        try:
            lo, hi = float(dpg.get_value(self._lo)), float(dpg.get_value(self._hi))
        except ValueError:
            self.ui.actions.notify("The range takes two numbers, such as 0.001 and 1.", "warning")
            return
        if not lo <= hi:
            self.ui.actions.notify(f"The range {lo:g} to {hi:g} is empty; the first number must not be larger.", "warning")
            return
        self._set_range(lo, hi)

    def _on_select(self) -> None:
        if self._range is None:
            self.ui.actions.notify("There is no range yet: drag in the histogram, or write two numbers and press Enter.",
                                   "warning")
        else:
            self._select(held())

    def _select(self, how: SelectHow) -> None:
        assert self._range is not None
        frame = self.ui.model.frame
        self.ui.send(SelectRange(self.ui.view.quantity, *self._range, how, frame.camera if frame is not None else None))

    def _on_filter(self, sender: int, on: bool) -> None:
        if on and self._range is None and self._answer is not None and self._answer.value is not None:
            d: Distribution = self._answer.value
            self._set_range(d.low, d.high)
        self.ui.view.keep = Keep(self.ui.view.quantity, *self._range) if on and self._range is not None else None

    # ------------------------------------------------------------------------------------------ choices
    def _on_quantity(self, sender: int, text: str) -> None:
        name = next(q.name for q in self._quantities.values() if q.label == text)
        if name != self.ui.view.quantity:
            self.ui.view.quantity = self.ui.preferences.quantity = name
            self.ui.view.value_range = None

    def _on_heat(self, sender: int, on: bool) -> None:
        if on != (self.ui.view.mode == "heatmap"):
            self.ui.actions.set_mode("heatmap" if on else "color")

    def _on_colors(self, sender: int, text: str) -> None:
        self.ui.view.colormap = text

    def _on_scale(self, sender: int, text: str) -> None:
        self._log = {"automatic": None, "linear": False, "log": True}[text]


def _written(value: float) -> str:
    """As float() reads it back; a range may have no end."""
    return f"{value:g}" if math.isinf(value) else formatting.number(value, 4)
