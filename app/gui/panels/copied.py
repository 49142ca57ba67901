"""A row whose value is a path: the folder's name is shown, the whole path in the tooltip, and a click copies it."""

from __future__ import annotations

from app.gui import formatting
from app.gui.toolkit import dpg
from app.gui.widgets import Rows, Ui, tooltip

SHOWN = 14
"""Letters that find room in the value column."""
TAIL = 6
"""Of them at the end: the time of day in the names of runs."""


class Copied:
    """Takes its place among `rows` when it is made."""

    def __init__(self, ui: Ui, rows: Rows, name: str, label: str, tip: str) -> None:
        self._ui, self._rows, self._name, self._tip = ui, rows, name, tip
        self._path: str | None = None
        value = rows.add(name, label)
        with dpg.item_handler_registry() as handlers:
            dpg.add_item_clicked_handler(callback=self._on_click)
        dpg.bind_item_handler_registry(value, handlers)
        self._row = int(dpg.get_item_parent(dpg.get_item_parent(value)))
        self.put("")

    def put(self, path: str) -> None:
        """Show another path; empty where there is none."""
        if path == self._path:
            return
        self._path = path
        folder = path.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
        self._rows.put(self._name, shortened(folder) if path else formatting.NONE)
        tooltip(self._ui, self._row, f"{self._tip}:\n{path}\nClick to copy the path." if path else "Nothing is recorded.")

    def _on_click(self) -> None:
        if self._path:
            dpg.set_clipboard_text(self._path)
            self._ui.actions.notify("The path of the run's folder is copied.", "info")


def shortened(text: str) -> str:
    """The middle left out, so that the start and the end of a name can be read."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN - TAIL - 1]}…{text[-TAIL:]}"
