"""The table of the Gaussians that lead by a quantity. A click on a row selects."""

from __future__ import annotations

from app.gui import formatting
from app.gui.select_tools import held
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.tools import MARK
from app.gui.widgets import Ui, label, pressed, put, show, tooltip
from app.inspection.questions import Sight, TableQuestion
from app.inspection.results import Ranking
from app.messages import Answer

ROWS = 40
ORDERS = ("largest", "smallest", "largest absolute")
BESIDE = ("opacity", "largest_scale")
SHORT = {"opacity": "opacity", "largest_scale": "scale"}


class RankingTable:
    """Part of a panel; asks by question(), shows by update()."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._order, self._only = ORDERS[0], False
        self._answer: Answer | None = None
        self._uids: list[int] = []
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(10)):
            with dpg.group():
                self.order = int(dpg.add_combo(ORDERS, default_value=ORDERS[0], width=ui.px(132), callback=self._on_order))
                tooltip(ui, self.order, "Which end of the quantity comes first")
            with dpg.group():
                only = int(dpg.add_checkbox(label="selected only", callback=self._on_only))
                tooltip(ui, only, "Rank only the Gaussians that are selected")
        self._note = label(ui, "", Palette.muted, small=True, wrap=0)
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True, row_background=True,
                       scrollY=True, height=ui.px(230), freeze_rows=1) as table:
            self._columns = [int(dpg.add_table_column(label=text)) for text in ("uid", "value", *SHORT.values())]
            self._rows = [self._row(index) for index in range(ROWS)]
        self.table = int(table)
        dpg.bind_item_font(table, ui.theme.small)

    def _row(self, index: int) -> tuple[int, int, tuple[int, ...]]:
        with dpg.table_row(show=False) as row:
            with dpg.group(horizontal=True, horizontal_spacing=0):
                uid = int(dpg.add_selectable(label="", span_columns=True, callback=self._on_row, user_data=index))
                first = int(dpg.add_text(""))
            cells = (first, *(int(dpg.add_text("")) for _ in self._columns[1:]))
        return int(row), uid, cells

    def question(self, quantity: str, sight: Sight | None) -> TableQuestion:
        return TableQuestion(quantity, BESIDE, self._order, ROWS, self._only, sight)

    def update(self, answer: Answer | None) -> None:
        if answer is self._answer or pressed(uid for _, uid, _ in self._rows):
            return
        self._answer = answer
        ranking: Ranking | None = answer.value if answer is not None else None
        count = len(ranking.uids) if ranking is not None else 0
        if ranking is not None:
            put(self._note, f"{count} of {formatting.count(ranking.total)}. A click selects; Shift adds, Ctrl takes away.")
        else:
            put(self._note, answer.problem if answer is not None else "")
        self._uids = ranking.uids.tolist() if ranking is not None else []
        for index, (row, uid, cells) in enumerate(self._rows):
            show(row, index < count)
            if ranking is None or index >= count:
                continue
            selected = bool(ranking.selected[index])
            dpg.set_value(uid, selected)
            first, values = ranking.columns[0].values[index], {c.quantity: c.values[index] for c in ranking.columns}
            numbers = (first, *(values.get(name, float("nan")) for name in BESIDE))
            texts = str(ranking.uids[index]), *(formatting.number(float(v)) for v in numbers)
            for cell, text in zip(cells, texts, strict=True):
                put(cell, text)
            dpg.configure_item(cells[0], color=MARK if selected else Palette.text)

    def _on_row(self, sender: int, value: bool, index: int) -> None:
        if index < len(self._uids):
            self.ui.actions.select_uid(self._uids[index], held())
            self._answer = None   # the marks of the rows as they are, not as the click toggled them

    def _on_order(self, sender: int, text: str) -> None:
        self._order = text

    def _on_only(self, sender: int, on: bool) -> None:
        self._only = on
