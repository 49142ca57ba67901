"""The events that were, and who took part in the chosen one, why, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.gui import formatting
from app.gui.select_tools import held
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, pressed, put, show, tooltip
from app.inspection.densification_results import EventDetail, EventQuestion
from app.messages import Answer, Densified

EVENTS = 40
COLUMNS = ("iteration", "cloned", "split", "pruned", "moved", "count")
PAGE = 40
ALL = "all"


class EventLog:
    """Part of the densification panel. It asks only while an event is chosen."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1
        self._newest: list[Densified] = []
        self._chosen: Densified | None = None
        self._action, self._first, self._total = "", 0, 0
        self._answer: Answer | None = None
        self._select: list[int] = []

    def build(self) -> None:
        ui = self.ui
        heading(ui, "Events")
        self._none = label(ui, "No event yet.", Palette.muted, small=True, wrap=0)
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchSame, borders_innerH=True, row_background=True,
                       scrollY=True, height=ui.px(170), freeze_rows=1) as table:
            for text in COLUMNS:
                dpg.add_table_column(label=text)
            self._rows = [self._row(index) for index in range(EVENTS)]
        self.table = int(table)
        dpg.bind_item_font(table, ui.theme.small)
        with dpg.group(show=False) as self._detail:
            self._title = label(ui, "", Palette.text, wrap=0)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                self._which = int(dpg.add_combo([ALL], default_value=ALL, width=ui.px(120), callback=self._on_action))
                tooltip(ui, self._which, "Only those to whom this happened")
                button(ui, "‹", lambda: self._turn(-PAGE), "Back", width=26)
                button(ui, "›", lambda: self._turn(PAGE), "Further", width=26)
                self._place = label(ui, "", Palette.muted, small=True)
            self._problem = label(ui, "", Palette.second, small=True, wrap=0)
            show(self._problem, False)
            with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True, row_background=True,
                           scrollY=True, height=ui.px(220), freeze_rows=1) as parts:
                for text, share in (("uid", 0.7), ("what", 0.8), ("why", 2.6), ("became", 1.0)):
                    dpg.add_table_column(label=text, init_width_or_weight=share)
                self._parts = [self._part(index) for index in range(PAGE)]
            self.parts = int(parts)
            dpg.bind_item_font(parts, ui.theme.small)

    def _row(self, index: int) -> tuple[int, int, tuple[int, ...]]:
        with dpg.table_row(show=False) as row:
            with dpg.group(horizontal=True, horizontal_spacing=0):
                pick = int(dpg.add_selectable(label="", span_columns=True, callback=self._on_event, user_data=index))
                first = int(dpg.add_text(""))
            cells = (first, *(int(dpg.add_text("")) for _ in COLUMNS[1:]))
        return int(row), pick, cells

    def _part(self, index: int) -> tuple[int, tuple[int, ...]]:
        with dpg.table_row(show=False) as row:
            with dpg.group(horizontal=True, horizontal_spacing=0):
                dpg.add_selectable(label="", span_columns=True, callback=self._on_part, user_data=index)
                first = int(dpg.add_text(""))
            cells = (first, *(int(dpg.add_text("")) for _ in range(3)))
        return int(row), cells

    # ------------------------------------------------------------------------------------------ asked and shown
    def questions(self) -> Mapping[str, Any]:
        return {} if self._chosen is None else {"event": self._question(self._chosen)}

    def _question(self, chosen: Densified) -> EventQuestion:
        same = [e for e in self.ui.model.densified if e.iteration == chosen.iteration]
        return EventQuestion(chosen.iteration, same.index(chosen) if chosen in same else 0, self._action, self._first, PAGE)

    def update(self) -> None:
        model = self.ui.model
        if model.densified_version != self._version and not pressed(pick for _, pick, _ in self._rows):
            self._version = model.densified_version
            self._show_events(model.densified)
        show(self._detail, self._chosen is not None)
        answer = model.snapshot.answers.get("event")
        if self._chosen is None or answer is None or answer is self._answer or answer.question != self._question(self._chosen):
            return
        self._answer = answer
        put(self._problem, answer.problem)
        show(self._problem, bool(answer.problem))
        self._show_detail(answer.value)

    def _show_events(self, events: list[Densified]) -> None:
        self._newest = events[::-1][:EVENTS]
        if self._chosen is not None and self._chosen not in events:
            self._chosen = None
        show(self._none, not events)
        show(self.table, bool(events))
        for index, (row, pick, cells) in enumerate(self._rows):
            show(row, index < len(self._newest))
            if index >= len(self._newest):
                continue
            e = self._newest[index]
            dpg.set_value(pick, e == self._chosen)
            if e.reset and not (e.cloned or e.split or e.pruned or e.relocated or e.added):
                texts = (formatting.count(e.iteration), "reset", formatting.count(e.reset), "", "", formatting.count(e.count))
            else:
                texts = (formatting.count(e.iteration) + ("*" if e.asked else ""), _signed("+", e.cloned + e.added),
                         _signed("+", e.split), _signed("-", e.pruned), formatting.count(e.relocated),
                         formatting.count(e.count))
            for cell, text in zip(cells, texts, strict=True):
                put(cell, text)

    def _show_detail(self, detail: EventDetail | None) -> None:
        parts = detail.parts if detail is not None else ()
        self._total = detail.total if detail is not None else 0
        self._select = [part.select for part in parts]
        if detail is not None:
            told = ", ".join(f"{formatting.count(n)} {action}" for action, n in detail.counts) or "nobody took part"
            put(self._title, f"Iteration {formatting.count(detail.iteration)}, {detail.strategy}: {told}. A click selects "
                             "what is left of it.")
            dpg.configure_item(self._which, items=[ALL, *(action for action, _ in detail.counts)])
            last = min(self._first + PAGE, self._total)
            put(self._place, f"{min(self._first + 1, last)} to {last} of {formatting.count(self._total)}")
        for index, (row, cells) in enumerate(self._parts):
            show(row, index < len(parts))
            if index < len(parts):
                part = parts[index]
                became = ", ".join(map(str, part.became[:2])) + (" …" if len(part.became) > 2 else "")
                for cell, text in zip(cells, (str(part.uid), part.action, part.reason, became or "gone"
                                              if part.action == "pruned" else became), strict=True):
                    put(cell, text)
                dpg.configure_item(cells[0], color=Palette.text if part.select >= 0 else Palette.faint)

    # ------------------------------------------------------------------------------------------ chosen
    def _on_event(self, sender: int, value: bool, index: int) -> None:
        if index >= len(self._newest):
            return
        event = self._newest[index]
        self._chosen = None if event == self._chosen or (event.reset and not event.count) else event
        self._action, self._first, self._answer = "", 0, None
        dpg.set_value(self._which, ALL)
        self._show_detail(None)
        self._version = -1   # the marks of the rows, not as the click toggled them

    def _on_part(self, sender: int, value: bool, index: int) -> None:
        dpg.set_value(sender, False)
        if index >= len(self._select):
            return
        if self._select[index] >= 0:
            self.ui.actions.select_uid(self._select[index], held())
        else:
            self.ui.actions.notify("Nothing is left of this Gaussian.")

    def _on_action(self, sender: int, text: str) -> None:
        self._action, self._first = "" if text == ALL else text, 0

    def _turn(self, by: int) -> None:
        if 0 <= self._first + by < max(self._total, 1):
            self._first += by


def _signed(sign: str, count: int) -> str:
    return f"{sign}{count}" if count else "0"
