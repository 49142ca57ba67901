"""Tooltips of the whole window: one text beside what the pointer rests on, over everything, and never on what it explains.

Those of Dear PyGui stand at the pointer, where they hide the next controls, and follow the item drawn before them, so that
the ones of hidden controls appear with their neighbours'. Here an item has at most one, and only while it can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.gui import formatting
from app.gui.layout import Layout, Rect
from app.gui.theme import Palette
from app.gui.toolkit import dpg

if TYPE_CHECKING:
    from app.gui.theme import Theme

REST = 0.5            # s that the pointer rests before a tooltip appears
WIDTH, SIZE, PAD, AWAY = 320, 13, 8, 8   # px at 100 %
ROOM = 3.0            # px that a resting pointer may tremble

_BETWEEN = re.compile(r"(?<!\d) | (?!\d{3}(?!\w))")   # a space, but none of 1 234
_tips: dict[int, str] = {}


def explain(item: int, text: str) -> None:
    """What is said of an item; another text replaces the one before, an empty one says nothing."""
    if text:
        _tips[item] = text
    else:
        _tips.pop(item, None)


def explained(item: int) -> str:
    return _tips.get(item, "")


class Tips:
    """Once a frame update(). Nothing is looked up while the pointer moves: a scan takes a millisecond."""

    def __init__(self, theme: Theme, primary: int, dialogs: Callable[[], bool]) -> None:
        """`dialogs`: whether a floating window is open."""
        self._theme, self._primary, self._dialogs = theme, primary, dialogs
        self._layer = int(dpg.add_viewport_drawlist(front=True))
        self._mouse, self._since, self._looked = (0.0, 0.0), 0.0, True
        self._shown: tuple[int, str] | None = None
        self.text = ""       # that is on the screen now
        self.rect = Rect(0, 0, 0, 0)

    def update(self, now: float, layout: Layout) -> None:
        x, y = dpg.get_mouse_pos(local=False)
        pressed = any(dpg.is_mouse_button_down(b) for b in (dpg.mvMouseButton_Left, dpg.mvMouseButton_Right))
        if pressed or max(abs(x - self._mouse[0]), abs(y - self._mouse[1])) > ROOM:
            self._mouse, self._since, self._looked = (x, y), now, pressed
        if self._shown is not None:
            item, text = self._shown
            if pressed or not self._over(item, x, y):
                self._hide()
            elif explained(item) != text:
                self._show(item, layout)
        elif not self._looked and now - self._since >= REST:
            self._looked = True
            found = self._find(x, y)
            if found is not None:
                self._show(found, layout)

    def _find(self, x: float, y: float) -> int | None:
        """The smallest of those under the pointer."""
        best, area = None, float("inf")
        for item in list(_tips):
            if not dpg.does_item_exist(item):
                del _tips[item]
            elif self._over(item, x, y):
                width, height = dpg.get_item_rect_size(item)
                if width * height < area:
                    best, area = item, width * height
        return best

    def _over(self, item: int, x: float, y: float) -> bool:
        if not dpg.does_item_exist(item):
            return False
        state = dpg.get_item_state(item)
        if state.get("hovered"):
            return True
        # what is greyed hears nothing of the pointer
        if dpg.get_item_configuration(item).get("enabled", True) or self._dialogs() or not state.get("visible"):
            return False
        (left, top), (width, height) = state["rect_min"], state["rect_size"]
        return left <= x < left + width and top <= y < top + height

    def _hide(self) -> None:
        self._shown, self.text = None, ""
        dpg.delete_item(self._layer, children_only=True)

    def _show(self, item: int, layout: Layout) -> None:
        from app.gui.widgets import text_width

        self._hide()
        text = explained(item)
        if not text:
            return
        px = self._theme.px
        size = px(SIZE)
        lines = wrapped(formatting.spaced(text), px(WIDTH), lambda line: text_width(line, size))
        width = round(max(text_width(line, size) for line in lines)) + 2 * px(PAD)
        height = round(len(lines) * 1.3 * size) + 2 * px(PAD)
        (left, top), (wide, high) = dpg.get_item_rect_min(item), dpg.get_item_rect_size(item)
        of = Rect(round(left), round(top), round(wide), round(high))
        columns = layout if self._root(item) == self._primary else None
        self.rect = r = placed(of, width, height, (dpg.get_viewport_client_width(), dpg.get_viewport_client_height()), columns,
                               px(AWAY))
        dpg.draw_rectangle((r.x, r.y), (r.x + width, r.y + height), fill=Palette.floating, color=Palette.active,
                           rounding=px(4), parent=self._layer)
        for place, line in enumerate(lines):
            dpg.draw_text((r.x + px(PAD), r.y + px(PAD) + place * 1.3 * size), line, size=size, color=Palette.text,
                          parent=self._layer)
        self._shown, self.text = (item, text), text

    @staticmethod
    def _root(item: int) -> int:
        while True:
            parent = dpg.get_item_parent(item)
            if not parent:
                return item
            item = parent


def wrapped(text: str, width: float, measure: Callable[[str], float]) -> list[str]:
    """Lines no wider than `width` by `measure`, where words allow it; a line break of the text stays one.

    Numbers stay whole: 0.0018, which Dear ImGui's own wrapping breaks behind the full stop, and 1 234.
    """
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _BETWEEN.split(paragraph):
            longer = f"{line} {word}" if line else word
            if line and measure(longer) > width:
                lines.append(line)
                line = word
            else:
                line = longer
        lines.append(line)
    return lines


def placed(of: Rect, width: int, height: int, window: tuple[int, int], layout: Layout | None, away: int) -> Rect:
    """Where a tooltip stands: beside the column that its item is in, else below or above the item; never over the item."""
    y = max(0, min(of.y, window[1] - height))
    if layout is not None:
        right, left = layout.right, layout.left
        if right.width and of.x >= right.x and of.y >= right.y and right.x - away - width >= 0:
            return Rect(right.x - away - width, y, width, height)
        end = left.x + left.width
        if left.width and of.x < end and left.y <= of.y < left.y + left.height and end + away + width <= window[0]:
            return Rect(end + away, y, width, height)
    below = of.y + of.height + away
    y = below if below + height <= window[1] else max(0, of.y - away - height)
    return Rect(max(0, min(of.x, window[0] - width)), y, width, height)
