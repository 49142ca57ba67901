"""Headless: the window yields everything to training, until a key or a click brings it back."""

from __future__ import annotations

from app.gui import formatting
from app.gui.preferences import pace_of
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, label, put
from app.messages import SetPace

WIDTH = 560


class Headless:
    """A cover over the window. While it is on nothing else is drawn, and the engine draws no pictures."""

    def __init__(self, ui: Ui, primary: int) -> None:
        self.ui, self._primary = ui, primary
        self.on = False
        ui.actions.on_headless = self.begin

    def build(self) -> None:
        ui = self.ui
        with dpg.window(show=False, no_title_bar=True, no_resize=True, no_move=True, no_scrollbar=True, no_saved_settings=True,
                        no_close=True, no_collapse=True) as window, dpg.group() as middle:
            title = label(ui, "Training without pictures; any key or click brings the window back", Palette.accent)
            dpg.bind_item_font(title, ui.theme.title)
            self._text = label(ui, "", Palette.text)
            label(ui, "Nothing else is drawn or measured, so that training gets the whole processor.", Palette.muted)
        self._window, self._middle = int(window), int(middle)

    def begin(self) -> None:
        ui = self.ui
        if self.on:
            return
        self.on = True
        ui.send(SetPace(pace_of(ui.preferences), headless=True))
        dpg.configure_item(self._primary, show=False)
        dpg.configure_item(self._window, show=True)
        dpg.focus_item(self._window)

    def end(self) -> bool:
        """A key or a click: whether it was on, and the key or click has done what it is for."""
        if not self.on:
            return False
        self.on = False
        self.ui.send(SetPace(pace_of(self.ui.preferences)))
        dpg.configure_item(self._window, show=False)
        dpg.configure_item(self._primary, show=True)
        return True

    def update(self) -> None:
        model, px = self.ui.model, self.ui.px
        width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
        dpg.configure_item(self._window, pos=(0, 0), width=width, height=height)
        dpg.configure_item(self._middle, pos=(max(px(20), (width - px(WIDTH)) // 2), max(px(20), height // 2 - px(40))))
        s = model.snapshot
        parts = [*(() if s.steering.phase and not model.playing else (model.state_text,)), *model.progress_texts[:1]]
        if model.playing:
            parts.append(formatting.rate(s.steps_per_second))
        parts += [f"loss {formatting.number(s.loss, 4)}", f"{formatting.count(s.gaussians)} Gaussians"]
        notices = [notice.text for notice in model.visible_notices(self.ui.actions.clock())]
        put(self._text, "\n".join(["   ".join(parts), *map(formatting.spaced, notices)]))
