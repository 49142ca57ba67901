"""Open: a path to type or paste, recent scenes, the bundled demo, and a folder browser where the toolkit has a sound one."""

from __future__ import annotations

import sys
from pathlib import Path

from app.data.checkpoints import find
from app.demo import demo_folder
from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, open_centred, put, show
from app.records.place import recent_runs, runs_root

WIDTH, INNER, RECENT = 620, 596, 6
RUNS = 4
"""Runs that are offered to go on with."""


def demo_path() -> Path | None:
    """The bundled demo scene, where it is installed."""
    path = demo_folder()
    return path if path.exists() else None


class OpenDialog:
    title = "Open"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.shown = False

    def build(self, parent: int) -> None:
        ui = self.ui
        self._root = runs_root()   # now: the package that knows it takes longer to load than a click may
        with dpg.window(show=False, label="Open a scene", modal=False, no_collapse=True, no_resize=True, autosize=True,
                        on_close=self.close, no_saved_settings=True) as window:
            dpg.add_spacer(width=ui.px(INNER))
            label(ui, "A COLMAP or transforms.json folder, a run to go on with, a checkpoint, or a PLY.", Palette.muted)
            with dpg.group(horizontal=True):
                browse = not sys.platform.startswith("win")  # G24: the toolkit's browser breaks on names there
                self._path = int(dpg.add_input_text(hint="Path", width=ui.px(WIDTH - 24 - 84 - (96 if browse else 0)),
                                                    on_enter=True, callback=self._on_path))
                ui.typing.append(self._path)
                button(ui, "Open", self._on_path, "Load it and start training", width=78, theme=ui.theme.primary)
                if browse:
                    button(ui, "Browse", self._on_browse, "Look for a folder", width=84)
            self._complaint = label(ui, "", Palette.bad, wrap=ui.px(WIDTH - 30))
            heading(ui, "Bundled")
            self._demo = button(ui, "Demo scene", self._on_demo, "The scene that comes with Splatscope", width=INNER)
            self._runs_heading = heading(ui, "Go on with a run")
            self._runs = int(dpg.add_group())
            self._recent_heading = heading(ui, "Recent")
            self._recent = int(dpg.add_group())
        with dpg.theme() as rows, dpg.theme_component(dpg.mvButton):   # paths are read from their start
            dpg.add_theme_style(dpg.mvStyleVar_ButtonTextAlign, 0.0, 0.5, category=dpg.mvThemeCat_Core)
        for item in (self._runs, self._recent):
            dpg.bind_item_theme(item, rows)
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)
        if not browse:
            return
        with dpg.file_dialog(show=False, directory_selector=True, width=ui.px(640), height=ui.px(420), modal=True,
                             callback=self._on_browsed, cancel_callback=self._on_browse_cancelled) as dialog:
            pass
        self._dialog = int(dialog)

    def update(self) -> None:
        pass

    def open(self) -> None:
        """Show it in the middle, with the recent scenes of now."""
        ui = self.ui
        dpg.delete_item(self._recent, children_only=True)
        scene, recent = ui.model.scene, ui.preferences.recent[:RECENT]
        for path in recent:
            now = "   open now" if scene is not None and path in (scene.path, scene.run) else ""
            dpg.add_button(label=_shortened(path, 68) + now, parent=self._recent, callback=self._on_recent, user_data=path,
                           width=ui.px(INNER))
        for item in (self._recent_heading, self._recent):
            show(item, bool(recent))
        self._list_runs()
        show(self._demo, demo_path() is not None)
        put(self._complaint, "")
        show(self._complaint, False)
        open_centred(ui, self.window, WIDTH)
        dpg.focus_item(self._path)
        self.shown = True

    def _list_runs(self) -> None:
        """The newest runs that were saved by themselves."""
        dpg.delete_item(self._runs, children_only=True)
        runs = recent_runs(RUNS, self._root)
        for run in runs:
            saved, _ = find(run)
            if not saved:
                continue
            newest = saved[0]
            text = f"{_shortened(run.name, 44)}   iteration {formatting.count(newest.iteration)}, " \
                   f"{formatting.count(newest.gaussians)} Gaussians"
            if is_open(str(run), self.ui.model.snapshot.run_folder):
                text += "   open now"
            dpg.add_button(label=text, parent=self._runs, callback=self._on_recent, user_data=str(run),
                           width=self.ui.px(INNER))
        for item in (self._runs_heading, self._runs):
            show(item, bool(dpg.get_item_children(self._runs, 1)))

    def close(self) -> None:
        dpg.configure_item(self.window, show=False)
        self.shown = False

    def _accept(self, text: str) -> None:
        path = Path(text.strip().strip('"').strip("'")).expanduser()
        if not text.strip():
            complaint = "Type the path of a scene folder, a run or a PLY."
        elif not path.exists():
            complaint = f"There is nothing at {path}; check the path."
        else:
            self.close()
            self.ui.actions.open_path(str(path.absolute()))
            return
        put(self._complaint, complaint)
        show(self._complaint, True)

    def _on_path(self) -> None:
        self._accept(dpg.get_value(self._path))

    def _on_recent(self, sender: int, value: object, path: str) -> None:
        self._accept(path)

    def _on_demo(self) -> None:
        path = demo_path()
        if path is not None:
            self._accept(str(path))

    def _on_browse(self) -> None:
        self.close()
        dpg.show_item(self._dialog)

    def _on_browsed(self, sender: int, data: dict[str, str]) -> None:
        self.open()
        dpg.set_value(self._path, data["file_path_name"])
        self._accept(data["file_path_name"])

    def _on_browse_cancelled(self) -> None:
        self.open()


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[-(length - 1):]


def is_open(run: str, folder: str) -> bool:
    """Whether the run in that folder is the one that trains in this window."""
    return bool(folder) and Path(run).absolute() == Path(folder).absolute()
