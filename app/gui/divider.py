"""The line between two modes beside each other, dragged by the mouse."""

from __future__ import annotations

from dataclasses import replace

from app.gui import looking_back
from app.gui.camera_controls import Fit
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, text_width
from app.messages import MODES, Frame

GRAB = 7.0      # px at 100 % on either side of the line
HANDLE = 11.0   # radius of the grip in its middle


class Divider:
    """Draws over the picture; press() takes hold of the line, drag() moves it."""

    def __init__(self, ui: Ui, canvas: int) -> None:
        self.ui = ui
        self._layer = int(dpg.add_draw_layer(parent=canvas))
        self._key: object = None
        self.held = False

    def line(self, fit: Fit | None) -> float | None:
        """x of the line in the drawlist; None while one picture is shown."""
        beside = self.ui.view.shown_beside()
        return None if beside is None or fit is None else fit.x + beside.share * fit.shown_width

    def press(self, x: float, fit: Fit | None) -> bool:
        """Whether the press is on the line, which then follows the mouse."""
        at = self.line(fit)
        self.held = at is not None and abs(x - at) <= self.ui.px(GRAB)
        return self.held

    def drag(self, x: float, fit: Fit | None) -> None:
        beside = self.ui.view.beside
        if self.held and beside is not None and fit is not None:
            share = min(max((x - fit.x) / max(fit.shown_width, 1.0), 0.0), 1.0)
            self.ui.view.beside = replace(beside, share=round(share, 4))

    def release(self) -> None:
        self.held = False

    def update(self, frame: Frame | None, fit: Fit | None, mouse: tuple[float, float] | None) -> None:
        at = self.line(fit)
        near = at is not None and mouse is not None and abs(mouse[0] - at) <= self.ui.px(GRAB)
        names = self._names(frame) if at is not None and self.ui.view.beside is not None else None
        key = (at, fit, near or self.held, frame.mode if frame is not None else "", self.ui.view.beside, names)
        if key == self._key:
            return
        self._key = key
        dpg.delete_item(self._layer, children_only=True)
        if at is None or fit is None or self.ui.view.beside is None:
            return
        color = Palette.accent if near or self.held else Palette.text
        px, top, bottom = self.ui.px, fit.y, fit.y + fit.shown_height
        middle, radius = 0.5 * (top + bottom), px(HANDLE)
        dpg.draw_line((at, top), (at, bottom), color=(0, 0, 0, 130), thickness=px(4), parent=self._layer)
        dpg.draw_line((at, top), (at, bottom), color=color, thickness=px(1.5), parent=self._layer)
        dpg.draw_circle((at, middle), radius, fill=Palette.raised, color=color, thickness=px(1.5), parent=self._layer)
        for side in (-1, 1):
            tip = at + side * 0.62 * radius
            base = at + side * 0.22 * radius
            dpg.draw_triangle((tip, middle), (base, middle - 0.36 * radius), (base, middle + 0.36 * radius), fill=color,
                              color=color, parent=self._layer)
        left, right = self._names(frame)
        x = min(at + px(12), fit.x + fit.shown_width - text_width(right, px(13)) - px(10))
        self._name(right, x, bottom - px(60) if left else top)
        if left:
            self._name(left, max(at - px(12) - text_width(left, px(13)), fit.x + px(10)), bottom - px(60))

    def _names(self, frame: Frame | None) -> tuple[str, str]:
        """What stands left and right of the line: the second mode's name, or two moments."""
        view, state = self.ui.view, self.ui.model.snapshot.timeline
        assert view.beside is not None
        if not view.comparing:
            return "", MODES[view.beside.mode].label
        left, right = ("now" if moment is None else looking_back.short(state, moment, frame, right=second)
                       for moment, second in ((view.moment, False), (view.beside.moment, True)))
        return left, right

    def _name(self, name: str, x: float, top: float) -> None:
        px = self.ui.px
        right = x + text_width(name, px(13)) + px(5)
        dpg.draw_rectangle((x - px(5), top + px(8)), (right, top + px(27)), fill=(14, 16, 19, 190), color=(0, 0, 0, 0),
                           rounding=px(3), parent=self._layer)
        dpg.draw_text((x, top + px(10)), name, color=Palette.text, size=px(13), parent=self._layer)
