"""What is selected: by which tool, how many, what can be done to them, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.tools import BRUSH, TOOLS
from app.gui.widgets import Ui, button, heading, label, pressed, put, show, tooltip
from app.inspection.questions import Sight, SummaryQuestion
from app.inspection.results import Moments, Summary
from app.messages import Answer

QUANTITIES = ("opacity", "largest_scale", "anisotropy", "contribution", "age", "views_seen", "mean2d_grad_average",
              "threshold_distance", "means_grad", "log_scales_grad", "logit_opacity_grad", "sh0_grad", "adam_means")
SHORT = {"opacity": "opacity", "largest_scale": "scale", "anisotropy": "anisotropy", "contribution": "Σw here",
         "age": "age", "views_seen": "views", "mean2d_grad_average": "|∂mean2D| av.", "threshold_distance": "to threshold",
         "means_grad": "|∂mean|", "log_scales_grad": "|∂log scale|", "logit_opacity_grad": "∂logit op.",
         "sh0_grad": "|∂SH0|", "adam_means": "Adam mean"}
BUTTON = 68    # px at 100 %: four fit beside each other in the narrowest inspector
CELLS = ("sum", "mean", "min", "max")


class SelectionPanel:
    title = "Select"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._tool = ""
        self._answer: Answer | None = None
        self._uids: dict[int, int] = {}        # of the extremes, by their cells
        self._can: tuple[bool, bool] | None = None   # undo, redo

    def build(self, parent: int) -> None:
        ui, act = self.ui, self.ui.actions
        with dpg.group(parent=parent):
            heading(ui, "Tool", first=True)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                self.tools = {name: button(ui, f"{tool.label} {tool.key}", self._on_tool, f"{tool.help}  ({tool.key})",
                                           user_data=name) for name, tool in TOOLS.items()}
            with dpg.group() as self._brush_row:
                self._brush = int(dpg.add_slider_float(min_value=BRUSH[0], max_value=BRUSH[1], width=-1, no_input=True,
                                                       format="brush %.0f px", callback=self._on_brush))
                tooltip(ui, self._brush, "Radius of the brush; keys , and .")
            label(ui, "Shift adds, Ctrl takes away. Alt+click: the next one behind.", Palette.muted, small=True, wrap=0)
            self._row((("All", self._on_more, "all", "Select all Gaussians  (Ctrl+A)"),
                       ("None", self._on_more, "none", "Select nothing  (Esc)"),
                       ("Invert", self._on_more, "invert", "Select the others instead  (Ctrl+I)"),
                       ("Grow", self._on_more, "grow", "Add the nearest neighbours in space")))
            heading(ui, "Selected")
            self._count = label(ui, "", Palette.text)
            self._marks = label(ui, "", Palette.muted, small=True, wrap=0)
            self._operations()
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                self.undo = button(ui, "Undo", act.undo, "Take back the last change of the selection, or what was done to it  "
                                   "(Ctrl+Z)", width=BUTTON)
                self.redo = button(ui, "Redo", act.redo, "Do again what was taken back  (Ctrl+Y)", width=BUTTON)
            self._history = label(ui, "", Palette.muted, small=True, wrap=0)
            self._card()

    def _row(self, entries: tuple[tuple[str, Any, str, str], ...]) -> None:
        ui = self.ui
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            for text, callback, argument, tip in entries:
                button(ui, text, callback, tip, width=BUTTON, user_data=argument)

    def _operations(self) -> None:
        self._row((("Freeze", self._on_operate, "freeze", "Training leaves them alone: no update, no clone, split or prune"),
                   ("Unfreeze", self._on_operate, "unfreeze", "Training goes on with them"),
                   ("Hide", self._on_operate, "hide", "Draw the picture without them; training does not change"),
                   ("Isolate", self._on_operate, "isolate", "Draw nothing but them; training does not change")))
        with dpg.group(horizontal=True, horizontal_spacing=self.ui.px(4)):
            button(self.ui, "Reset opacity", self._on_operate, "Lower their opacity as a reset of all would; Adam forgets its "
                   "moments", width=0, user_data="reset_opacity")
            button(self.ui, "Delete", self._on_operate, "Remove them from the model  (Del); undo brings them back",
                   width=BUTTON, theme=self.ui.theme.danger, user_data="delete")
        with dpg.group(horizontal=True, horizontal_spacing=self.ui.px(4)):
            self._show_all = button(self.ui, "Show all", self._on_operate, "Nothing is hidden any more", user_data="show_all")
            self._unfreeze_all = button(self.ui, "Unfreeze all", self._on_operate, "Nothing is frozen any more",
                                        user_data="unfreeze_all")

    def _card(self) -> None:
        ui = self.ui
        with dpg.group() as self._body:
            heading(ui, "Together")
            self._lineage = label(ui, "", Palette.muted, small=True, wrap=0)
            with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True,
                           row_background=True) as table:
                dpg.add_table_column(label="", init_width_or_weight=1.7)
                for text in CELLS:
                    dpg.add_table_column(label=text)
                self._rows = {name: self._card_row(name) for name in QUANTITIES}
            dpg.bind_item_font(table, ui.theme.small)
        self._none = label(ui, "Nothing is selected. Click a Gaussian, take a tool and draw around some, or drag a range "
                               "in the histogram of the tab Numbers.", Palette.muted, small=True, wrap=0)

    def _card_row(self, name: str) -> tuple[int, tuple[int, ...]]:
        with dpg.table_row(show=False) as row:
            dpg.add_text(SHORT[name], color=Palette.muted)
            cells = [int(dpg.add_text("")) for _ in CELLS[:2]]
            cells += [int(dpg.add_selectable(label="", callback=self._on_extreme)) for _ in CELLS[2:]]
        return int(row), tuple(cells)

    # ------------------------------------------------------------------------------------------ asked and shown
    def questions(self) -> Mapping[str, Any]:
        frame = self.ui.model.frame
        if not self.ui.model.snapshot.selection.selected:
            return {}
        return {"summary": SummaryQuestion(QUANTITIES, Sight.of(frame.camera) if frame is not None else None)}

    def update(self) -> None:
        ui, view = self.ui, self.ui.view
        if view.tool != self._tool:
            self._tool = view.tool
            for name, item in self.tools.items():
                dpg.bind_item_theme(item, ui.theme.primary if name == view.tool else 0)
        show(self._brush_row, view.tool == "brush")
        dpg.set_value(self._brush, view.brush)
        snapshot = ui.model.snapshot
        state = snapshot.selection
        put(self._count, f"{formatting.count(state.selected)} of {formatting.count(snapshot.gaussians)} Gaussians")
        marks = [f"{formatting.count(n)} {what}" for n, what in ((state.frozen, "frozen"), (state.hidden, "hidden")) if n]
        put(self._marks, "   ".join(marks))
        show(self._marks, bool(marks))
        show(self._show_all, state.hidden > 0)
        show(self._unfreeze_all, state.frozen > 0)
        if (can := (bool(state.undo), bool(state.redo))) != self._can:
            self._can = can
            for item, enabled in zip((self.undo, self.redo), can, strict=True):
                dpg.bind_item_theme(item, 0 if enabled else ui.theme.flat)
        history = [f"{what}: {text}" for what, text in (("undo", state.undo), ("redo", state.redo)) if text]
        put(self._history, "\n".join(history))
        show(self._history, bool(history))
        answer = snapshot.answers.get("summary") if state.selected else None
        show(self._none, not state.selected)
        show(self._body, answer is not None and answer.value is not None)
        if answer is not self._answer and not pressed(cell for _, cells in self._rows.values() for cell in cells[2:]):
            self._answer = answer
            if answer is not None and answer.value is not None:
                self._show_card(answer.value)

    def _show_card(self, summary: Summary) -> None:
        grown = f"descend from {formatting.count(summary.roots)} of the start, {formatting.count(summary.born)} were born since"
        put(self._lineage, grown if summary.born else "all were there from the start")
        rows: dict[str, Moments] = {row.quantity: row for row in summary.rows}
        for name, (item, cells) in self._rows.items():
            row = rows.get(name)
            show(item, row is not None and row.count > 0)
            if row is None or not row.count:
                continue
            for cell, value in zip(cells[:2], (row.sum, row.mean), strict=True):
                put(cell, formatting.number(value))
            for cell, value, uid in zip(cells[2:], (row.low, row.high), (row.low_uid, row.high_uid), strict=True):
                self._uids[cell] = uid
                dpg.configure_item(cell, label=formatting.number(value))

    # ------------------------------------------------------------------------------------------ done
    def _on_tool(self, sender: int, value: Any, name: str) -> None:
        self.ui.actions.set_tool(name)

    def _on_brush(self, sender: int, value: float) -> None:
        self.ui.view.brush = value

    def _on_more(self, sender: int, value: Any, how: str) -> None:
        self.ui.actions.select_more(how)

    def _on_operate(self, sender: int, value: Any, action: str) -> None:
        self.ui.actions.operate(action)

    def _on_extreme(self, sender: int) -> None:
        """The Gaussian with the smallest or the largest value is inspected; the others stay selected."""
        dpg.set_value(sender, False)
        if sender in self._uids:
            self.ui.actions.select_uid(self._uids[sender], "add")
