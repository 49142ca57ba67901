"""The film along the camera path: its size, rate and file, and how far it is. A part of the tab Camera."""

from __future__ import annotations

import time
from pathlib import Path

from app.camera_path import CameraPath
from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, short_path, show, tooltip
from app.messages import MODES, ExportVideo

SIZE, RATE = (1280, 720), 30.0
FIELD = 52     # px at 100 %


class FilmSection:
    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._scene: str | None = None
        self._working = False
        self._target: tuple[Path, float] | None = None    # the film that was asked for last, and when
        heading(ui, "Film")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._width = self._field(str(SIZE[0]), "Width of the film, px; a video's sides are rounded up to even numbers")
            label(ui, "×", small=True)
            self._height = self._field(str(SIZE[1]), "Height of the film, px: what the height shows is that of the keys, the "
                                       "width shows more or less to the sides")
            label(ui, "px", small=True)
            self._fps = self._field(f"{RATE:g}", "Frames per second")
            label(ui, "per second", small=True)
        self._path = int(dpg.add_input_text(hint="Path of an .mp4, or of a folder for PNGs", width=-1, on_enter=True,
                                            callback=self._on_export))
        ui.typing.append(self._path)
        tooltip(ui, self._path, "A video where it ends in .mp4, which replaces an older one of that name; otherwise a folder "
                "with a PNG of each frame, in which no such frame may lie yet")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as idle:
            button(ui, "Export film", self._on_export, "Draw the model as it is now along the path, in the view's mode and "
                   "colours; training goes on meanwhile. An older video of that name is replaced", theme=ui.theme.primary)
            self._what = label(ui, "", small=True)
        self._idle = int(idle)
        with dpg.group(show=False) as busy:
            self._bar = int(dpg.add_progress_bar(width=-1, height=ui.px(18)))
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                button(ui, "Cancel", ui.actions.cancel, "Stop; a video that is not complete is not kept, finished PNGs are",
                       theme=ui.theme.danger)
                self._text = label(ui, "", small=True)
        self._busy = int(busy)
        self._written = label(ui, "", Palette.good, small=True, wrap=0)
        show(self._written, False)

    def _field(self, value: str, tip: str) -> int:
        item = int(dpg.add_input_text(default_value=value, width=self.ui.px(FIELD)))
        self.ui.typing.append(item)
        tooltip(self.ui, item, tip)
        return item

    def update(self, path: CameraPath) -> None:
        ui, job, scene = self.ui, self.ui.model.job, self.ui.model.scene
        working = job is not None and job.name == "film"
        if self._working and not working and self._target is not None:
            text = written(*self._target)
            put(self._written, text)
            show(self._written, bool(text))
        self._working = working
        show(self._busy, working)
        show(self._idle, not working)
        if working and job is not None:
            dpg.set_value(self._bar, job.fraction)
            dpg.configure_item(self._bar, overlay=f"{job.fraction:.0%}")
            put(self._text, job.text)
        put(self._what, f"{formatting.duration(path.duration)}, {MODES[ui.view.mode].label}")
        if scene is not None and scene.path != self._scene:
            self._scene = scene.path
            dpg.set_value(self._path, f"{Path(scene.path).stem or 'scene'}_film.mp4")

    def _on_export(self) -> None:
        ui = self.ui
        target = dpg.get_value(self._path).strip().strip('"').strip("'")
        try:
            width, height = (int(dpg.get_value(item)) for item in (self._width, self._height))
            fps = float(dpg.get_value(self._fps).replace(",", "."))
        except ValueError:
            ui.actions.notify("Width, height and frames per second must be numbers.", "warning")
            return
        request = ui.view.whole_request()
        if not target:
            ui.actions.notify("Type the path of the film: an .mp4, or a folder for PNGs.", "warning")
        elif request is not None:
            where = Path(target).expanduser().absolute()
            self._target = where, time.time()
            show(self._written, False)
            ui.send(ExportVideo(str(where), ui.view.editor.path, request, width, height, fps))


def written(target: Path, since: float) -> str:
    """What there is of a film that was asked for at `since` (s since the epoch); empty where it was stopped or failed."""
    try:
        files = sorted(target.glob("*.png")) if target.is_dir() else [target]
        sizes = [stat.st_size for stat in (file.stat() for file in files) if stat.st_mtime >= since - 2.0]
    except OSError:
        return ""
    if not sizes:
        return ""
    count = f"{formatting.count(len(sizes))} pictures, " if target.is_dir() else ""
    return f"Written: {short_path(target)}, {count}{sum(sizes) / 1e6:.1f} MB"
