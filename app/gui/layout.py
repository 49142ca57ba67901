"""Where everything stands: pure arithmetic on the window's size, the scale and the user's splitters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.gui.preferences import Preferences

Splitter = Literal["left", "right", "bottom"]
TOP, STATUS, GAP = 44, 26, 4
STRIP = 40
MIN_LEFT, MIN_RIGHT, MIN_BOTTOM = 226, 320, 120
MIN_VIEW_WIDTH, MIN_VIEW_HEIGHT = 260, 160
GRAB = 4  # px beside a boundary where a press takes hold of it


@dataclass(frozen=True)
class Rect:
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Layout:
    """Rectangles in px; a hidden part has width or height 0."""

    top: Rect
    left: Rect
    view: Rect
    strip: Rect      # the timeline
    bottom: Rect
    right: Rect
    status: Rect
    scale: float

    def splitter_at(self, x: float, y: float) -> Splitter | None:
        """The boundary under the pointer."""
        grab = GRAB * self.scale
        if not self.left.y <= y < self.status.y:
            return None
        if self.left.width and abs(x - (self.left.x + self.left.width + 0.5 * GAP * self.scale)) <= grab:
            return "left"
        if self.right.width and abs(x - (self.right.x - 0.5 * GAP * self.scale)) <= grab:
            return "right"
        inside = self.view.x <= x < self.view.x + self.view.width
        if self.bottom.height and inside and abs(y - (self.bottom.y - 0.5 * GAP * self.scale)) <= grab:
            return "bottom"
        return None

    def gaps(self) -> list[Rect]:
        """The dark lines between the panels."""
        gap = max(1, round(GAP * self.scale))
        width, body_end = self.top.width, self.status.y - gap
        lines = [Rect(0, self.top.height, width, gap), Rect(0, body_end, width, gap)]
        if self.left.width:
            lines.append(Rect(self.left.width, self.left.y, gap, self.left.height))
        if self.right.width:
            lines.append(Rect(self.right.x - gap, self.right.y, gap, self.right.height))
        if self.bottom.height:
            lines.append(Rect(self.view.x, self.bottom.y - gap, self.view.width, gap))
        if self.strip.height:
            lines.append(Rect(self.view.x, self.strip.y - gap, self.view.width, gap))
        return lines

    def boundary(self, splitter: Splitter) -> Rect:
        """The line to highlight."""
        gap = max(2, round(GAP * self.scale))
        if splitter == "left":
            return Rect(self.left.x + self.left.width, self.left.y, gap, self.left.height)
        if splitter == "right":
            return Rect(self.right.x - gap, self.right.y, gap, self.right.height)
        return Rect(self.view.x, self.bottom.y - gap, self.view.width, gap)


def compute(width: int, height: int, scale: float, preferences: Preferences, *, timeline: bool = False) -> Layout:
    """Everything placed in a window of width x height px.

    Where both side panels and the viewport's minimum do not fit, the inspector takes the place of the left column while
    it is on; nothing is squeezed below what its text needs.
    """
    def px(value: float) -> int:
        return round(value * scale)

    gap = px(GAP)
    body_y = px(TOP) + gap
    body_height = max(height - body_y - px(STATUS) - gap, px(MIN_VIEW_HEIGHT))
    spare = width - px(MIN_VIEW_WIDTH) - 2 * gap
    right_width = 0
    if preferences.show_inspector:
        right_width = max(px(MIN_RIGHT), min(px(preferences.right), spare - px(MIN_LEFT)))
        right_width = max(0, min(right_width, width - gap - px(MIN_VIEW_WIDTH) // 2))
    left_width = max(px(MIN_LEFT), min(px(preferences.left), spare - right_width))
    left_width = min(left_width, width - gap - px(MIN_VIEW_WIDTH) // 2)
    if right_width and spare < px(MIN_LEFT) + px(MIN_RIGHT):
        left_width = 0
    view_x = left_width + (gap if left_width else 0)
    right_x = width - right_width
    view_width = max(16, right_x - view_x - (gap if right_width else 0))
    strip = px(STRIP) if timeline else 0
    bottom_height = 0
    if preferences.show_plots:
        bottom_height = max(0, min(px(preferences.bottom), body_height - px(MIN_VIEW_HEIGHT) - gap - strip))
    strip = strip if bottom_height else 0
    below = bottom_height + (gap if bottom_height else 0) + (strip + gap if strip else 0)
    view_height = max(16, body_height - below)
    return Layout(
        top=Rect(0, 0, width, px(TOP)),
        left=Rect(0, body_y, left_width, body_height),
        view=Rect(view_x, body_y, view_width, view_height),
        strip=Rect(view_x, body_y + view_height + gap, view_width, strip),
        bottom=Rect(view_x, body_y + body_height - bottom_height, view_width, bottom_height),
        right=Rect(right_x, body_y, right_width, body_height),
        status=Rect(0, body_y + body_height + gap, width, px(STATUS)),
        scale=scale)


def drag(splitter: Splitter, x: float, y: float, layout: Layout, preferences: Preferences) -> None:
    """Moves a boundary to the pointer, within the minimum sizes; compute() does the rest."""
    scale = layout.scale
    if splitter == "left":
        preferences.left = max(MIN_LEFT, min(round(x / scale), 520))
    elif splitter == "right":
        end = layout.right.x + layout.right.width
        preferences.right = max(MIN_RIGHT, min(round((end - x) / scale), 720))
    else:
        end = layout.bottom.y + layout.bottom.height
        preferences.bottom = max(MIN_BOTTOM, min(round((end - y) / scale), 600))
