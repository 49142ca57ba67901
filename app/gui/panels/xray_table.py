"""The contributors of a pixel as a table, front to back, a page at a time."""

from __future__ import annotations

from collections.abc import Callable

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, label, paint, put, show, swatch, tooltip
from app.inspection.results import XRay

PAGE = 24
COLUMNS: tuple[tuple[str, int, str], ...] = (   # heading, px, what it is
    ("  k", 30, "Place from the front; click a row to select the Gaussian"),
    ("", 16, "Colour c in this direction"),
    ("w", 62, "Weight T α: the share of the pixel that is its colour"),
    ("α", 62, "What is blended: raw α, clamped and cut off; ! marks one that is clamped"),
    ("T", 62, "Transmittance in front of it"),
    ("depth", 62, "Camera z, world units"),
    ("power", 62, "Exponent of the Gaussian at the middle of the pixel"),
    ("raw α", 62, "Opacity times exp(power)"),
    ("∑", 16, "Colour so far, this one included"),
    ("∂L/∂α", 64, "Gradient of the loss with respect to its α here"),
    ("own", 64, "Part of ∂L/∂α through its own colour, T c"),
    ("occl.", 64, "Part of ∂L/∂α through what it hides of the Gaussians behind it"),
    ("backgr.", 64, "Part of ∂L/∂α through what it hides of the background"),
    ("∂L/∂o", 64, "What this pixel adds to the gradient of its opacity"),
    ("uid", 62, "Identity, which survives densification"))


class ContributorTable:
    def __init__(self, ui: Ui, on_click: Callable[[int], None]) -> None:
        self._ui, self._on_click = ui, on_click
        self._x: XRay | None = None
        self._page, self._at = 0, -1
        self._rows: list[tuple[int, int, dict[str, int]]] = []   # row, selectable, cells
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingFixedFit, scrollX=True, scrollY=True, height=ui.px(212),
                       freeze_rows=1, freeze_columns=3, borders_innerH=True, row_background=True) as table:
            dpg.add_table_column(label="", width_fixed=True, init_width_or_weight=1, no_resize=True)   # takes the clicks
            for text, width, tip in COLUMNS:
                heading = f"{text:>8}" if width > 40 else text   # numbers are aligned to the right
                column = int(dpg.add_table_column(label=heading, width_fixed=True, init_width_or_weight=ui.px(width),
                                                  no_resize=True))
                tooltip(ui, column, tip)
            for index in range(PAGE):
                self._add_row(index)
        self._table = int(table)
        with dpg.theme() as theme, dpg.theme_component(dpg.mvSelectable):   # where the walk stands has to be seen
            dpg.add_theme_color(dpg.mvThemeCol_Header, Palette.accent_dim, category=dpg.mvThemeCat_Core)
        dpg.bind_item_theme(table, theme)
        dpg.bind_item_font(table, ui.theme.mono)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as self._pages:
            button(ui, "◀", lambda: self._turn(-1), "Nearer the camera", width=30)
            button(ui, "▶", lambda: self._turn(1), "Farther from the camera", width=30)
            self._range = label(ui, "", small=True)

    def _add_row(self, index: int) -> None:
        cells: dict[str, int] = {}
        with dpg.table_row(show=False) as row:
            choose = int(dpg.add_selectable(label="", span_columns=True, callback=self._clicked, user_data=index))
            for text, _, _ in COLUMNS:
                cells[text] = swatch(self._ui) if text in ("", "∑") else int(dpg.add_text(""))
        self._rows.append((int(row), choose, cells))

    def show(self, x: XRay, fresh: bool) -> None:
        self._x = x
        if fresh:
            self._page = 0
        self._page = min(self._page, max(0, (len(x.uids) - 1) // PAGE))
        self._draw()

    def mark(self, contributor: int) -> None:
        """Highlight contributor k and bring it into sight."""
        self._at = contributor
        n = len(self._x.uids) if self._x is not None else 0
        if 0 <= contributor < n:
            if contributor // PAGE != self._page:
                self._page = contributor // PAGE
                self._draw()
            shown = min(PAGE, n - self._page * PAGE)
            dpg.set_y_scroll(self._table, dpg.get_y_scroll_max(self._table) * (contributor % PAGE) / max(shown - 1, 1))
        self._highlight()

    def _highlight(self) -> None:
        for index, (_, choose, _) in enumerate(self._rows):
            dpg.set_value(choose, self._page * PAGE + index == self._at)

    def _turn(self, pages: int) -> None:
        if self._x is not None:
            self._page = min(max(self._page + pages, 0), max(0, (len(self._x.uids) - 1) // PAGE))
            self._draw()
            self._highlight()

    def _clicked(self, sender: int, value: bool, index: int) -> None:
        self._on_click(self._page * PAGE + index)

    def _draw(self) -> None:
        x = self._x
        assert x is not None
        first, n = self._page * PAGE, len(x.uids)
        show(self._pages, n > PAGE)
        put(self._range, f"{first + 1} to {min(first + PAGE, n)} of {n}")
        own, occlusion, backdrop = (part @ x.cotangent for part in (x.own, x.occlusion, x.backdrop))
        columns = {"w": x.weights, "T": x.transmittances, "depth": x.depths, "power": x.powers, "raw α": x.raw_alphas,
                   "∂L/∂α": x.v_alphas, "own": own, "occl.": occlusion, "backgr.": backdrop, "∂L/∂o": x.v_opacities}
        for index, (row, _, cells) in enumerate(self._rows):
            k = first + index
            show(row, k < n)
            if k >= n:
                continue
            put(cells["  k"], f"{k + 1:>3}")
            paint(cells[""], x.colors[k])
            paint(cells["∑"], x.running[k])
            put(cells["α"], f"{formatting.number(float(x.alphas[k])):>7}" + ("!" if x.clamped[k] else " "))
            put(cells["uid"], f"{x.uids[k]:>8}")
            for name, values in columns.items():
                put(cells[name], f"{formatting.number(float(values[k])):>8}")
