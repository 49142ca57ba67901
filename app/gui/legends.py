"""Legends over the picture: the colours of values as a bar, or what a few colours stand for. Drawn into a layer."""

from __future__ import annotations

import numpy as np

from app.colormaps import NEVER_SEEN, lut
from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, shortened, text_width
from app.messages import Legend

STEPS = 64
Edges = tuple[float, float, float, float]
"""Left, top, right, bottom of the picture, px of the canvas."""


def draw_entries(ui: Ui, layer: int, legend: Legend, edges: Edges, *, right: bool) -> None:
    """What the colours stand for, one below the other, with how many there are of each."""
    px, row, (at_left, _, at_right, bottom) = ui.px, ui.px(18), edges
    lines = [(f"{name}  {formatting.count(count)}", color) for name, color, count in legend.entries]
    width = max(text_width(text, px(13)) + px(18) for text in (*(line for line, _ in lines), legend.label))
    x0 = at_right - width - px(22) if right else at_left + px(14)
    y0 = bottom - px(14) - row * (len(lines) + 1)
    dpg.draw_rectangle((x0 - px(8), y0 - px(6)), (x0 + width, y0 + row * (len(lines) + 1) + px(4)), fill=(14, 16, 19, 205),
                       color=(0, 0, 0, 0), rounding=px(4), parent=layer)
    dpg.draw_text((x0, y0), formatting.spaced(legend.label), color=Palette.muted, size=px(13), parent=layer)
    for place, (text, color) in enumerate(lines, start=1):
        y, fill = y0 + place * row, tuple(round(255 * c) for c in color)
        dpg.draw_rectangle((x0, y + px(2)), (x0 + px(10), y + px(12)), fill=fill, color=fill, parent=layer)
        dpg.draw_text((x0 + px(18), y), text, color=Palette.text, size=px(13), parent=layer)


def draw_bar(ui: Ui, layer: int, legend: Legend, edges: Edges, *, right: bool) -> None:
    """The colours of values, with the first, the middle and the last of them."""
    px, (at_left, _, at_right, bottom) = ui.px, edges
    width, height = px(220), px(10)
    x0, y0 = at_right - width - px(14) if right else at_left + px(14), bottom - px(34)
    unit = f"  [{legend.unit}]" if legend.unit else ""
    note = "  log" if legend.log else ""
    extra = px(16) if legend.never_seen else 0
    title = shortened(f"{legend.label}{unit}{note}", px(13), width if right else at_right - at_left - px(28))
    box = max(width, text_width(title, px(13)))
    dpg.draw_rectangle((x0 - px(8), y0 - px(26) - extra), (x0 + box + px(8), y0 + height + px(22)), fill=(14, 16, 19, 205),
                       color=(0, 0, 0, 0), rounding=px(4), parent=layer)
    dpg.draw_text((x0, y0 - px(21)), title, color=Palette.text, size=px(13), parent=layer)
    if legend.never_seen:
        grey = tuple(round(255 * c) for c in NEVER_SEEN)
        dpg.draw_rectangle((x0, y0 - px(36)), (x0 + px(10), y0 - px(26)), fill=grey, color=grey, parent=layer)
        dpg.draw_text((x0 + px(15), y0 - px(38)), "not seen", color=Palette.muted, size=px(12), parent=layer)
    colors = lut(legend.colormap)[np.linspace(0, 255, STEPS).astype(int)] * 255
    step = width / STEPS
    for i, color in enumerate(colors):
        fill = tuple(int(c) for c in color)
        dpg.draw_rectangle((x0 + i * step, y0), (x0 + (i + 1) * step + 0.5, y0 + height), fill=fill,
                           color=(0, 0, 0, 0), thickness=0, parent=layer)
    middle = (legend.lo * legend.hi) ** 0.5 if legend.log and legend.lo > 0 else 0.5 * (legend.lo + legend.hi)
    for share, value in ((0.0, legend.lo), (0.5, middle), (1.0, legend.hi)):
        text = formatting.number(value)
        wide = text_width(text, px(12))
        dpg.draw_text((x0 + share * (width - wide), y0 + height + px(4)), text, color=Palette.muted, size=px(12),
                      parent=layer)
