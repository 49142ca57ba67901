"""What lies between the loss and one Gaussian's parameters, link by link, with Adam's state and the likely fate below."""

from __future__ import annotations

import math

import numpy as np

from app.gui import formatting
from app.gui.panels.trails import Trails
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, forget, heading, label, put, relabel, show, tooltip
from app.inspection.results import AdamState, Chain, Fate, Link, Relative

NAME, NUMBER = 106, 96        # px of the columns at 100 %
CHILDREN = 6                  # buttons; with more a line says how many there are
VERDICTS = {"clone": "would be cloned", "split": "would be split in two", "prune": "would be removed",
            "move": "would move onto another", "nothing": "would stay"}
SH_ENDS = {3: 1, 8: 2, 15: 3}
GROUPS = {"means": "mean", "quats": "quat", "log_scales": "log_scale", "logit_opacities": "logit_op.", "sh0": "sh0",
          "shN": "shN"}


class ChainView:
    """build() once inside the card; show() with what the instrument found, or None while it has found nothing."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._shown: Chain | None = None
        self._shape: object = None
        self._cells: dict[str, tuple[int, int, int]] = {}

    def build(self) -> None:
        ui = self.ui
        with dpg.group(show=False) as self._body:
            self._build_family()
            self._notes = label(ui, "", Palette.second, small=True, wrap=0)
            self._build_fate()
            self._chain_title = heading(ui, "From the loss to the parameters")
            self._legend = label(ui, "", Palette.muted, small=True, wrap=0)
            with dpg.table(header_row=True, policy=dpg.mvTable_SizingFixedFit, borders_innerH=True) as self._table:
                for text, width in (("", NAME), ("         value", NUMBER), ("        ∂L/∂it", NUMBER)):
                    dpg.add_table_column(label=text, width_fixed=True, init_width_or_weight=ui.px(width), no_resize=True)
            self._build_adam()
            self._trails = Trails(ui)

    def _build_family(self) -> None:
        ui = self.ui
        self._families: dict[str, tuple[int, list[int]]] = {}
        for name, text, count in (("parent", "parent", 1), ("children", "children", CHILDREN)):
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as row:
                item = label(ui, text, Palette.muted, small=True)
                tooltip(ui, item, "Who it came from, and who came from it; grey ones are gone. Click to select.")
                buttons = []
                for index in range(count):
                    buttons.append(int(dpg.add_button(label="", small=True, callback=self._on_relative, user_data=(name, index),
                                                      show=False)))
                more = label(ui, "", Palette.muted, small=True)
            self._families[name] = int(row), [*buttons, more]
        self._uids: dict[tuple[str, int], int | None] = {}   # None = gone

    def _build_fate(self) -> None:
        ui = self.ui
        with dpg.group() as self._fate:
            self._verdict = heading(ui, "")
            self._bar = int(dpg.add_progress_bar(width=-1, height=ui.px(18)))
            with dpg.theme() as theme, dpg.theme_component(dpg.mvProgressBar):
                dpg.add_theme_color(dpg.mvThemeCol_PlotHistogram, Palette.accent_dim, category=dpg.mvThemeCat_Core)
            dpg.bind_item_theme(self._bar, theme)
            self._why = label(ui, "", Palette.muted, small=True, wrap=0)

    def _build_adam(self) -> None:
        ui = self.ui
        with dpg.group() as self._adam:
            self._adam_title = heading(ui, "Adam")
            label(ui, "Norms: gradient g, moments m and √v, the last update.", Palette.muted, small=True, wrap=0)
            self._adam_cells: dict[str, tuple[int, ...]] = {}
            self._adam_rows: dict[str, int] = {}
            with dpg.table(header_row=True, policy=dpg.mvTable_SizingFixedFit, borders_innerH=True):
                for text, width in (("", 66), ("   |g|", 52), ("   |m|", 52), ("  |√v|", 52), ("|update|", 58)):
                    dpg.add_table_column(label=text, width_fixed=True, init_width_or_weight=ui.px(width), no_resize=True)
                for group, text in GROUPS.items():
                    with dpg.table_row() as row:
                        label(ui, text, Palette.muted, small=True)
                        self._adam_cells[group] = tuple(self._mono("") for _ in range(4))
                    self._adam_rows[group] = int(row)
            self._rates = label(ui, "", Palette.muted, small=True)
            dpg.bind_item_font(self._rates, ui.theme.mono)

    def _mono(self, text: str) -> int:
        item = int(dpg.add_text(text))
        dpg.bind_item_font(item, self.ui.theme.mono)
        return item

    # ------------------------------------------------------------------------------------------ showing
    def show(self, chain: Chain | None) -> None:
        show(self._body, chain is not None)
        if chain is None or chain is self._shown:
            return
        self._shown = chain
        put(self._notes, "\n".join(chain.notes))
        show(self._notes, bool(chain.notes))
        self._show_family("parent", () if chain.parent is None else (chain.parent,))
        self._show_family("children", chain.children)
        show(self._fate, chain.fate is not None)
        if chain.fate is not None:
            self._show_fate(chain.fate)
        self._show_links(chain)
        show(self._adam, bool(chain.adam))
        if chain.adam:
            self._show_adam(chain.adam, chain.steps)
        self._trails.show(chain.trails)

    def _show_family(self, name: str, relatives: tuple[Relative, ...]) -> None:
        row, items = self._families[name]
        *buttons, more = items
        show(row, bool(relatives))
        for index, item in enumerate(buttons):
            show(item, index < len(relatives))
            if index < len(relatives):
                relative = relatives[index]
                self._uids[name, index] = relative.uid if relative.alive else None
                relabel(item, str(relative.uid) if relative.alive else f"{relative.uid} gone")
                dpg.bind_item_theme(item, 0 if relative.alive else self.ui.theme.flat)
        put(more, f"and {len(relatives) - len(buttons)} more" if len(relatives) > len(buttons) else "")

    def _show_fate(self, fate: Fate) -> None:
        when = "" if fate.next_event is None else f"At iteration {formatting.count(fate.next_event)} it "
        put(self._verdict, f"{when}{VERDICTS[fate.verdict]}" if when else "No densification to come")
        share = fate.statistic / fate.threshold if fate.threshold > 0 else 0.0
        dpg.set_value(self._bar, min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0)
        dpg.configure_item(self._bar, overlay=f"{formatting.number(fate.statistic)} of {formatting.number(fate.threshold)}")
        reset = "" if fate.next_reset is None else f"\nOpacities are reset at iteration {formatting.count(fate.next_reset)}."
        seen = f"{formatting.count(fate.views)} view{'' if fate.views == 1 else 's'} since the last densification"
        put(self._why, f"{fate.why}{reset}\nStatistic: {fate.label},\n{seen}.")

    def _show_links(self, chain: Chain) -> None:
        where = f"Step {formatting.count(chain.iteration)}, {chain.view}. " if chain.iteration else ""
        residuals = [link.residual for link in chain.links if not math.isnan(link.residual)]
        text = f"{where}White: the run's own numbers. Grey: recomputed in between, in float64"
        put(self._legend, f"{text}; it ends at Adam's gradients within {formatting.number(max(residuals), 1)}." if residuals
            else f"{text}." if chain.iteration else "Values alone: there is no gradient.")
        shape = tuple((link.name, link.value.shape) for link in chain.links)
        if shape != self._shape:
            self._shape = shape
            self._rebuild(chain.links)
        for link in chain.links:
            name, value, cotangent = self._cells[link.name]
            put(value, written(link.value, link.parts))
            put(cotangent, "" if link.cotangent is None else written(link.cotangent, ("",) * len(link.parts)))
            color = Palette.text if link.source or link.cotangent is None else Palette.muted
            dpg.configure_item(cotangent, color=color)
            put(name, link.name if math.isnan(link.residual) else f"{link.name}\n± {formatting.number(link.residual, 1)}")

    def _rebuild(self, links: tuple[Link, ...]) -> None:
        """Rows are made again only when there are other links, as when it leaves the view."""
        ui = self.ui
        dpg.delete_item(self._table, children_only=True, slot=1)
        forget(*(item for cells in self._cells.values() for item in cells))
        self._cells = {}
        for link in links:
            with dpg.table_row(parent=self._table):
                with dpg.group():
                    name = label(ui, link.name, Palette.muted, small=True)
                    if link.help:
                        tooltip(ui, name, link.help)
                self._cells[link.name] = name, self._mono(""), self._mono("")

    def _show_adam(self, states: tuple[AdamState, ...], steps: int) -> None:
        others = {state.rule for state in states} - {"adam"}
        put(self._adam_title, "Optimiser" if others else f"Adam, step {formatting.count(steps)}")
        known = {state.group: state for state in states}
        for group, cells in self._adam_cells.items():
            state = known.get(group)
            show(self._adam_rows[group], state is not None and state.update.size > 0)
            if state is not None:
                norms = (state.gradient, state.exp_avg, np.sqrt(state.exp_avg_sq), state.update)
                for cell, values in zip(cells, norms):
                    put(cell, f"{formatting.number(float(np.linalg.norm(values)), 2):>7}")
        lines = [f"{GROUPS[s.group]:<10} lr {formatting.number(s.rate, 3):>8}  " + {
            "adam": "moved not known" if np.isnan(s.update).any() else f"moved {np.abs(s.update).max() / s.rate:4.2f} lr",
            "still": "stands still"}.get(s.rule, s.rule) for s in states if s.update.size and s.rate > 0]
        put(self._rates, "\n".join(lines))

    def _on_relative(self, sender: int, value: None, which: tuple[str, int]) -> None:
        uid = self._uids.get(which)
        if uid is not None:
            self.ui.actions.select_uid(uid)


def written(values: np.ndarray, parts: tuple[str, ...]) -> str:
    """One component a line behind its name; SH bands as norms."""
    array = np.asarray(values, np.float64)
    if array.ndim == 2 and array.shape[0] in SH_ENDS:
        bands = [array[band * band - 1:(band + 1) ** 2 - 1] for band in range(1, SH_ENDS[array.shape[0]] + 1)]
        return "\n".join(f"|{band}|{formatting.number(float(np.linalg.norm(part))):>9}" for band, part in enumerate(bands, 1))
    flat = array.reshape(-1)
    names = parts if len(parts) == flat.size else ("",) * flat.size
    return "\n".join(f"{name:<2} {formatting.number(float(v)):>9}" for name, v in zip(names, flat)) or formatting.NONE
