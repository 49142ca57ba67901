"""Keys to actions. A key that a text field wants, or that merely repeats, does nothing here."""

from __future__ import annotations

from collections.abc import Callable

from app.gui.actions import SHORTCUTS, Shortcut
from app.gui.toolkit import dpg
from app.gui.widgets import Ui

REPEATING = frozenset({"step", "next_view", "previous_view", "smaller_brush", "larger_brush", "earlier_moment",
                       "later_moment"})
LOST_FRAMES = 4
"""A held key that has not been down for so many frames was let go while another window had the keyboard."""


class Keyboard:
    def __init__(self, ui: Ui, touched: Callable[[], None], wake: Callable[[], bool]) -> None:
        """`wake` says whether a key was needed to bring the window back, and does nothing else then."""
        self._ui, self._touched, self._wake = ui, touched, wake
        self._held: dict[int, int] = {}   # key -> frames in a row that it has not been down
        self._bound: dict[int, list[Shortcut]] = {}

    def build(self, registry: int) -> None:
        for shortcut in SHORTCUTS:
            self._bound.setdefault(int(getattr(dpg, "mvKey_" + shortcut.key)), []).append(shortcut)
        dpg.add_key_press_handler(callback=self._on_press, parent=registry)
        dpg.add_key_release_handler(callback=self._on_release, parent=registry)

    def typing(self) -> bool:
        return any(dpg.is_item_active(item) for item in self._ui.typing)

    def ctrl(self) -> bool:
        """From the events rather than the state of now: a quick Ctrl+S is over before its events are read."""
        return dpg.mvKey_LControl in self._held or dpg.mvKey_RControl in self._held

    def update(self) -> None:
        """Each frame: forget keys whose release never came; a lost Ctrl would turn every key into a Ctrl shortcut."""
        for key, away in list(self._held.items()):
            self._held[key] = 0 if dpg.is_key_down(key) else away + 1
            if self._held[key] >= LOST_FRAMES:
                del self._held[key]

    def _on_press(self, sender: int, key: int) -> None:
        self._touched()
        repeated = key in self._held
        self._held[key] = 0
        if self._wake():
            return
        if self.typing() and key != dpg.mvKey_Escape:
            return
        ctrl = self.ctrl()
        for shortcut in self._bound.get(key, ()):
            if shortcut.ctrl is not ctrl or (repeated and shortcut.action not in REPEATING):
                continue
            action = getattr(self._ui.actions, shortcut.action)
            action() if shortcut.argument is None else action(shortcut.argument)

    def _on_release(self, sender: int, key: int) -> None:
        self._touched()
        self._held.pop(key, None)
