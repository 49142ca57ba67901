"""Tabs in as many rows as their names need: a tab bar of Dear PyGui hides what does not fit behind arrows."""

from __future__ import annotations

from app.gui.theme import SMALL
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, show, text_width

PADDING, SPACE, ROWS = 7, 2, 4   # px at 100 % beside a name and between two; rows at most


class Tabs:
    """`value` is an item that holds the id of the tab in front."""

    def __init__(self, ui: Ui, parent: int) -> None:
        self._ui = ui
        self._bodies: dict[int, int] = {}
        self._titles: dict[int, str] = {}
        self._shown = 0
        self._placed: object = None
        with dpg.value_registry():
            self.value = int(dpg.add_int_value())
        with dpg.group(parent=parent) as strip:
            self._rows = [int(dpg.add_group(horizontal=True, horizontal_spacing=ui.px(SPACE))) for _ in range(ROWS)]
        dpg.bind_item_theme(strip, ui.theme.tight)
        dpg.add_separator(parent=parent)
        self._parent = parent

    def add(self, title: str) -> tuple[int, int]:
        """(tab, the window that its panel goes into). The first tab is in front until another is."""
        tab = int(dpg.add_button(label=title, callback=self._on_press, parent=self._rows[0]))
        dpg.bind_item_font(tab, self._ui.theme.small)
        body = int(dpg.add_child_window(border=False, parent=self._parent, show=False))
        self._bodies[tab], self._titles[tab] = body, title
        if len(self._bodies) == 1:
            dpg.set_value(self.value, tab)
        return tab, body

    def _on_press(self, tab: int) -> None:
        dpg.set_value(self.value, tab)

    def update(self, width: float) -> int:
        """Each frame, with the px that there are; the tab in front."""
        current = int(dpg.get_value(self.value))
        if current != self._shown:
            self._shown = current
            for tab, body in self._bodies.items():
                show(body, tab == current)
                dpg.bind_item_theme(tab, 0 if tab == current else self._ui.theme.flat)
        self._place(width)
        return current

    def _place(self, width: float) -> None:
        """Fill row after row."""
        px = self._ui.px
        key = (width, text_width(next(iter(self._titles.values())), px(SMALL)))   # a text is measured once fonts are loaded
        if key == self._placed:
            return
        self._placed = key
        widths = {tab: text_width(title, px(SMALL)) + 2 * px(PADDING) for tab, title in self._titles.items()}
        row, used = 0, 0.0
        for tab, wide in widths.items():
            if used and used + wide > width and row < ROWS - 1:
                row, used = row + 1, 0.0
            dpg.move_item(tab, parent=self._rows[row])
            used += wide + px(SPACE)
        for index, item in enumerate(self._rows):
            show(item, index <= row)
