"""The compositing rule, live: alpha_max, cutoff and what the gradient does where opacity x G exceeds alpha_max."""

from __future__ import annotations

from app.gui.fields import BY_PATH, RASTER_FIELDS
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import FieldControls, Ui, heading, label, tooltip

GRADIENT = "raster.alpha_gradient"
MODES: dict[str, tuple[str, str, str]] = {  # what it says, d alpha / d opacity, d alpha / d power
    "exact": ("exact, as gsplat", "0", "0"),
    "straight_through": ("straight through, as graphdeco", "G", "o G"),
    "straight_through_clamped": ("straight through, clamped", "α / o", "α")}


class AlphaRulePanel:
    title = "Alpha rule"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._fields = FieldControls(ui)

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Alpha at a pixel", first=True)
            label(ui, "α = min(o · G, alpha_max), and nothing below the cutoff. Colour = Σ α T c, with T the product of "
                      "1 − α in front.", Palette.muted, small=True, wrap=0)
            self._add("raster.alpha_max", "raster.cutoff", "raster.smooth_cutoff", "raster.transmittance_min")
            heading(ui, "Gradient where o · G > alpha_max")
            self._radio = int(dpg.add_radio_button([m[0] for m in MODES.values()], callback=self._on_mode))
            tooltip(ui, self._radio, BY_PATH[GRADIENT].tooltip)
            self._table()
            heading(ui, "Projection")
            self._add("raster.eps2d", "raster.antialiased", "raster.clamp_fov")
        missing = {f.path for f in RASTER_FIELDS} - {c.spec.path for c in self._fields.controls} - {GRADIENT}
        if missing:  # a new field of RasterConfig shows up here by itself
            with dpg.group(parent=parent):
                heading(ui, "Limits")
                self._add(*sorted(missing))

    def _table(self) -> None:
        ui = self.ui
        with dpg.table(header_row=True, borders_innerH=True, policy=dpg.mvTable_SizingStretchProp) as table:
            for text, share in (("there", 2.4), ("∂α/∂o", 0.8), ("∂α/∂power", 1.0)):
                dpg.add_table_column(label=text, init_width_or_weight=share)
            self._rows: dict[str, tuple[int, ...]] = {}
            for name, texts in MODES.items():
                with dpg.table_row():
                    self._rows[name] = tuple(int(dpg.add_text(t, color=Palette.muted)) for t in texts)
        dpg.bind_item_font(table, ui.theme.small)

    def _add(self, *paths: str) -> None:
        for path in paths:
            self._fields.add(BY_PATH[path])

    def update(self) -> None:
        if self._fields.update():
            self._show_mode(str(self.ui.model.config.get(GRADIENT, "exact")))

    def _show_mode(self, mode: str) -> None:
        dpg.set_value(self._radio, MODES[mode][0])
        for name, items in self._rows.items():
            for item in items:
                dpg.configure_item(item, color=Palette.text if name == mode else Palette.faint)

    def _on_mode(self, sender: int, text: str) -> None:
        mode = next(name for name, texts in MODES.items() if texts[0] == text)
        self.ui.set_option(GRADIENT, mode)
        self._show_mode(mode)
