"""Presets: choose one, see what it would change, apply it; save what is in force under a name."""

from __future__ import annotations

from pathlib import Path

from app import presets
from app.gui.change_log import written
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, open_centred, put, show, tooltip
from app.messages import SetOptions

WIDTH, ROWS, ROWS_SHOWN = 460, 80, 12


class Presets:
    """Part of the options panel. `path` is the file of the user's own."""

    def __init__(self, ui: Ui, path: Path) -> None:
        self.ui, self._path = ui, path
        self._said: set[str] = set()
        self._read()
        self._chosen = presets.SHIPPED[0]
        self._asked: presets.Preset | None = None
        self._version = -1

    def build(self) -> None:
        ui = self.ui
        heading(ui, "Presets", first=True)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            with dpg.group():
                self.combo = int(dpg.add_combo([], width=ui.px(174), callback=self._on_choose))
                tooltip(ui, self.combo, "A set of options under a name")
            self.apply = button(ui, "Apply …", self._on_apply, "See what would change, then apply it or not", width=68)
            self.delete = button(ui, "Delete", self._on_delete, "Remove this preset of yours", width=62)
        self._help = label(ui, "", Palette.muted, small=True, wrap=0)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            with dpg.group():
                self.name = int(dpg.add_input_text(hint="Name of a new preset", width=ui.px(174), on_enter=True,
                                                   callback=self._on_save))
                ui.typing.append(self.name)
                tooltip(ui, self.name, f"Saved in {self._path}")
            button(ui, "Save as", self._on_save, "Save the options in force under this name; what belongs to the scene or the "
                                                 "machine, such as seed, extent, cap and background, is left out", width=68)
        self._offer()

    def build_question(self) -> None:
        """The window that lists what would change; outside of any other item."""
        ui = self.ui
        ui.dialogs.append(self)
        with dpg.window(show=False, label="Apply a preset", no_collapse=True, no_resize=True, autosize=True,
                        on_close=self._on_keep, no_saved_settings=True) as window:
            self._title = label(ui, "", Palette.text, wrap=ui.px(WIDTH - 30))
            with dpg.child_window(width=ui.px(WIDTH - 24), border=False) as self._list_area, \
                    dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True) as table:
                for text in ("option", "is", "becomes"):
                    dpg.add_table_column(label=text)
                self._rows = []
                for _ in range(ROWS):
                    with dpg.table_row(show=False) as row:
                        self._rows.append((int(row), tuple(int(dpg.add_text("")) for _ in range(3))))
            dpg.bind_item_font(table, ui.theme.small)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                self.yes = button(ui, "Apply", self._on_yes, "All of it, from the next step on; what only a new run takes up, "
                                  "after a reset", width=100, theme=ui.theme.primary)
                button(ui, "Keep", self._on_keep, "Nothing changes", width=100)
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def update(self) -> None:
        if self.shown and self.ui.model.config_version != self._version:
            self._list()

    @property
    def shown(self) -> bool:
        return self._asked is not None

    def close(self) -> None:
        self._on_keep()

    # ------------------------------------------------------------------------------------------ choosing
    @property
    def _all(self) -> tuple[presets.Preset, ...]:
        return (*presets.SHIPPED, *self._own)

    def _offer(self) -> None:
        dpg.configure_item(self.combo, items=[preset.name for preset in self._all])
        self._choose(next((preset for preset in self._all if preset.name == self._chosen.name), presets.SHIPPED[0]))

    def _choose(self, preset: presets.Preset) -> None:
        self._chosen = preset
        dpg.set_value(self.combo, preset.name)
        put(self._help, preset.help)
        show(self.delete, preset in self._own)

    def _on_choose(self, sender: int, name: str) -> None:
        self._choose(next(preset for preset in self._all if preset.name == name))

    # ------------------------------------------------------------------------------------------ applying
    def _on_apply(self) -> None:
        self._asked = self._chosen
        self._list()
        open_centred(self.ui, self.window, WIDTH)
        dpg.focus_item(self.window)

    def _list(self) -> None:
        assert self._asked is not None
        self._version = self.ui.model.config_version
        changes = self._asked.changes(self.ui.model.config)
        count = f"{len(changes)} option{'s' if len(changes) != 1 else ''} would change:"
        put(self._title, f"{self._asked.name}: {count if changes else 'all its options are in force already.'}")
        dpg.configure_item(self.yes, enabled=bool(changes))
        show(self._list_area, bool(changes))
        dpg.configure_item(self._list_area, height=self.ui.px(28 + 22 * min(len(changes), ROWS_SHOWN)))
        for index, (row, cells) in enumerate(self._rows):
            show(row, index < len(changes))
            if index < len(changes):
                path, old, new = changes[index]
                for cell, text in zip(cells, (path, written(old), written(new)), strict=True):
                    put(cell, text)

    def _on_yes(self) -> None:
        if self._asked is not None:
            values = {path: new for path, _, new in self._asked.changes(self.ui.model.config)}
            self.ui.send(SetOptions(values, f"The preset {self._asked.name}"))
        self._on_keep()

    def _on_keep(self) -> None:
        self._asked = None
        dpg.configure_item(self.window, show=False)

    # ------------------------------------------------------------------------------------------ saving
    def _on_save(self) -> None:
        ui = self.ui
        try:
            preset = presets.of_now(str(dpg.get_value(self.name)), ui.model.config)
            aside = presets.add(self._path, preset, self._own)
        except presets.PresetError as error:
            ui.actions.notify(str(error), "error")
            return
        self._chosen = preset
        dpg.set_value(self.name, "")
        self._written(aside)
        ui.actions.notify(f"Saved the preset {preset.name}: {len(preset.values)} options differ from the defaults.")

    def _on_delete(self) -> None:
        try:
            aside = presets.remove(self._path, self._chosen.name, self._own)
        except presets.PresetError as error:
            self.ui.actions.notify(str(error), "error")
            return
        self.ui.actions.notify(f"Removed the preset {self._chosen.name}.")
        self._chosen = presets.SHIPPED[0]
        self._written(aside)

    def _written(self, aside: str) -> None:
        """Offer what the file holds now: another window may have written it too."""
        if aside:
            self.ui.actions.notify(aside, "warning")
        self._read()
        self._offer()

    def _read(self) -> None:
        self._own, complaints = presets.load(self._path)
        for complaint in complaints:
            if complaint not in self._said:
                self._said.add(complaint)
                self.ui.actions.notify(complaint, "warning")
