"""What the mouse does in the window: presses, drags, the wheel, the boundaries between the panels. Keys: keyboard.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.gui import layout as layouts
from app.gui.theme import Palette
from app.gui.toolkit import dpg

if TYPE_CHECKING:
    from app.gui.shell import Shell


class Mouse:
    """Made once the parts of the window are there. Handlers fire for the whole window; each part knows what lies in it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._at = (0.0, 0.0)
        self._splitter: layouts.Splitter | None = None    # the boundary that is dragged
        self._last_frame = shell.clock()
        with dpg.handler_registry() as registry:
            dpg.add_mouse_click_handler(callback=self._on_press)
            dpg.add_mouse_release_handler(callback=self._on_release)
            dpg.add_mouse_wheel_handler(callback=self._on_wheel)
            dpg.add_mouse_double_click_handler(callback=self._on_double_click)
        self.registry = int(registry)
        front = dpg.add_viewport_drawlist(front=True)
        self._boundary = int(dpg.draw_rectangle((0, 0), (1, 1), fill=Palette.accent_dim, color=Palette.clear, parent=front,
                                                show=False))

    def follow(self, now: float) -> None:
        """Once a frame: what is held goes with the pointer, and held keys fly."""
        shell, layout = self._shell, self._shell.layout
        x, y = dpg.get_mouse_pos(local=False)
        if (x, y) != self._at:
            self._at = (x, y)
            shell.touch()
        if self._splitter is not None:
            layouts.drag(self._splitter, x, y, layout, shell.preferences)
            shell.arrange()
        elif not shell.timeline.follow(now):
            shell.viewport.follow(now)
        seconds, self._last_frame = now - self._last_frame, now
        if not shell.keyboard.typing() and not shell.keyboard.ctrl() and shell.viewport.fly(seconds, now):
            shell.touch()
        hover = self._splitter or (None if shell.viewport.dragging else layout.splitter_at(x, y))
        dpg.configure_item(self._boundary, show=hover is not None)
        if hover is not None:
            line = layout.boundary(hover)
            dpg.configure_item(self._boundary, pmin=(line.x, line.y), pmax=(line.x + line.width, line.y + line.height))

    def _on_press(self, sender: int, button: int) -> None:
        shell = self._shell
        shell.touch()
        if shell.headless.end():
            return
        x, y = dpg.get_mouse_pos(local=False)
        floating = any(window.shown for window in shell.dialogs())
        self._splitter = shell.layout.splitter_at(x, y) if button == 0 and not floating else None
        if self._splitter is None:
            shell.viewport.press(button)
            shell.timeline.press(button)
            shell.plots.take_over()

    def _on_release(self, sender: int, button: int) -> None:
        shell = self._shell
        shell.touch()
        self._splitter = None
        shell.timeline.release(button)
        shell.viewport.release(button)

    def _on_wheel(self, sender: int, notches: float) -> None:
        shell = self._shell
        shell.touch()
        shell.viewport.wheel(notches, shell.clock())
        shell.plots.take_over()

    def _on_double_click(self, sender: int, button: int) -> None:
        self._shell.plots.follow_again()
