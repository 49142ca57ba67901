"""A row whose value is a path: its end is shown, the whole of it on the tooltip, and a click copies it."""

from __future__ import annotations

from app.gui import formatting
from app.gui.toolkit import dpg
from app.gui.widgets import Rows, Ui, head, put, show

SHOWN = 19
"""Letters of the folder's name that find room beside the button."""


class Copied:
    def __init__(self, ui: Ui, rows: Rows, name: str, label: str, tip: str) -> None:
        self._ui, self._rows, self._name, self._tip = ui, rows, name, tip
        self._path: str | None = None
        value = rows.add(name, label)
        with dpg.tooltip(dpg.get_item_parent(value), delay=0.45, hide_on_activity=True):
            self._text = int(dpg.add_text("", wrap=ui.px(320)))
        self._button = rows.add_button(name, "Copy", self._on_copy, "Copy the whole path")
        self.put("")

    def put(self, path: str) -> None:
        if path == self._path:
            return
        self._path = path
        folder = path.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
        self._rows.put(self._name, head(folder, SHOWN) if path else formatting.NONE)
        put(self._text, f"{self._tip}\n{path or 'Nothing is recorded now.'}")
        show(self._button, bool(path))

    def _on_copy(self) -> None:
        dpg.set_clipboard_text(self._path or "")
        self._ui.actions.notify("The folder's path is copied.", "info")
