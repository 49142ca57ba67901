"""Keys, mouse, scale and what this is."""

from __future__ import annotations

import os
from importlib import metadata

from app.gui.actions import MOUSE, SHORTCUTS
from app.gui.preferences import SCALES
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, heading, label, tooltip

WIDTH, HEIGHT = 940, 600


class HelpOverlay:
    title = "Help"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.shown = False

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.window(show=False, label="Splatscope", no_collapse=True, no_resize=True, horizontal_scrollbar=True,
                        width=ui.px(WIDTH), height=ui.px(HEIGHT), on_close=self.close, no_saved_settings=True) as window:
            label(ui, f"{_version()}   A 3D Gaussian splatting scene trains live and is taken apart while it trains. "
                      "Every number shown is the one that the optimiser uses.", Palette.muted, wrap=ui.px(WIDTH - 30))
            shown = [x for x in SHORTCUTS if x.shown]
            half = -(-len(shown) // 2)
            with dpg.group(horizontal=True, xoffset=ui.px((WIDTH - 20) / 3)):
                for title, part in (("Keys", shown[:half]), ("", shown[half:])):
                    with dpg.group() as column:
                        heading(ui, title)
                        for shortcut in part:
                            self._row(shortcut.shown, shortcut.help)
                    dpg.bind_item_theme(column, ui.theme.tight)
                with dpg.group():
                    self._mouse_and_scale()
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def _mouse_and_scale(self) -> None:
        ui = self.ui
        with dpg.group() as column:
            heading(ui, "Mouse")
            for keys, text in MOUSE:
                label(ui, keys, Palette.accent)
                label(ui, text, Palette.text)
        dpg.bind_item_theme(column, ui.theme.tight)
        heading(ui, "Size of text and controls")
        with dpg.group():
            self._scale = int(dpg.add_combo([f"{s:.0%}" for s in SCALES], width=ui.px(100),
                                            default_value=f"{ui.theme.scale:.0%}", callback=self._on_scale))
            tooltip(ui, self._scale, "Takes effect at the next start; SPLATSCOPE_UI_SCALE overrides it")
        label(ui, _scale_note(), Palette.muted, small=True, wrap=ui.px(280))

    def _row(self, keys: str, text: str) -> None:
        ui = self.ui
        with dpg.group(horizontal=True, xoffset=ui.px(64)):
            label(ui, keys, Palette.accent)
            label(ui, text, Palette.text, wrap=ui.px((WIDTH - 20) / 3 - 64 - 12))

    def update(self) -> None:
        pass

    def toggle(self) -> None:
        if self.shown:
            self.close()
            return
        width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
        px = self.ui.px
        dpg.configure_item(self.window, show=True, width=min(px(WIDTH), width), height=min(px(HEIGHT), height), pos=(
            max(0, (width - px(WIDTH)) // 2), max(0, (height - px(HEIGHT)) // 2)))
        dpg.focus_item(self.window)
        self.shown = True

    def close(self) -> None:
        dpg.configure_item(self.window, show=False)
        self.shown = False

    def _on_scale(self, sender: int, text: str) -> None:
        self.ui.preferences.ui_scale = float(text.rstrip("%")) / 100
        self.ui.actions.notify(f"Text and controls will be at {text} from the next start.")


def _version() -> str:
    try:
        return f"Splatscope {metadata.version('splatscope')}"
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "Splatscope"


def _scale_note() -> str:
    forced = os.environ.get("SPLATSCOPE_UI_SCALE")
    return f"SPLATSCOPE_UI_SCALE={forced} is in force." if forced else "Takes effect at the next start."
