"""Camera: key views, the path through them, playing it in the picture, and the film along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from app.camera_path import CameraPath, turntable
from app.data.camera_paths import from_dict, load_path, save_path, to_dict
from app.data.scene import SceneError
from app.gui import camera_controls as controls
from app.gui import formatting
from app.gui.camera_controls import CLOSEST_EXTENTS, Rig
from app.gui.panels.film import FilmSection
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, relabel, show, tooltip

EMPTY = ("Nothing is here yet. Look at the scene from where a film should begin and press Add view; two views make a path. "
         "Or let a turntable go around the middle of the scene.")
TURNTABLE_KEYS, TURNTABLE_SECONDS = 16, 8.0
FIELD = 58            # px at 100 %
ROWS_SHOWN = 5


class CameraPathPanel:
    title = "Camera"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1
        self._scene: str | None = None
        self._stored: Any = None          # the path that is remembered for the scene, as it stands in the preferences,
        self._start = CameraPath()        # and what was understood of it
        self._rig: Rig | None = None      # where playing has put the camera; another one means that the user moved it
        self._rows: list[tuple[int, int, list[int]]] = []

    # ------------------------------------------------------------------------------------------ built
    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Camera path", first=True)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                button(ui, "Add view", self._on_add, "A key of the view as it is now, behind the selected key or at the end",
                       theme=ui.theme.primary)
                self._undo = button(ui, "Undo", self._on_undo, "Take back the last change of the path")
                button(ui, "Turntable", self._on_turntable, "Replace the path by a circle around the middle of the scene")
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                label(ui, "radius", small=True)
                self._radius = self._field("", "as now", "Of the turntable, in world units; empty = as far from the axis as "
                                           "the camera is now")
                label(ui, "height", small=True)
                self._height = self._field("", "as now", "Over the middle of the scene, in world units; empty = as high as the "
                                           "camera is now")
            self._empty = label(ui, EMPTY, small=True, wrap=0)
            with dpg.group(show=False) as body:
                self._build_keys()
                self._build_motion()
                self._film = FilmSection(ui)
            self._body = int(body)
            self._build_file()

    def _field(self, value: str, hint: str, tip: str, callback: Callable[..., None] | None = None) -> int:
        item = int(dpg.add_input_text(default_value=value, hint=hint, width=self.ui.px(FIELD), on_enter=True,
                                      **({} if callback is None else {"callback": callback})))
        self.ui.typing.append(item)
        tooltip(self.ui, item, tip)
        return item

    def _build_keys(self) -> None:
        ui = self.ui
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True, row_background=True,
                       scrollY=True, height=ui.px(30), freeze_rows=1) as table:
            for text, share in (("key", 0.6), ("at", 0.9), ("field of view", 1.2), ("position", 2.2)):
                dpg.add_table_column(label=text, init_width_or_weight=share)
        self._table = int(table)
        dpg.bind_item_font(table, ui.theme.small)
        with dpg.group() as selected:
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                button(ui, "Go to", self._on_go, "Look from the selected key")
                button(ui, "Update", self._on_update, "Let the selected key look from where the view is now")
                button(ui, "▲", self._on_shift, "Earlier", user_data=-1)
                button(ui, "▼", self._on_shift, "Later", user_data=1)
                button(ui, "Delete", self._on_delete, "Take the selected key out", theme=ui.theme.danger)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as at:
                label(ui, "passed at", small=True)
                self._at = self._field("", "", "Seconds from the beginning; the later keys move along. Enter takes it.",
                                       self._on_at)
                label(ui, "s", small=True)
            self._at_row = int(at)
        self._selected = int(selected)

    def _build_motion(self) -> None:
        ui = self.ui
        heading(ui, "Motion")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            label(ui, "lasts", small=True)
            self._duration = self._field("", "", "Seconds from the first key to the last, or around. Enter takes it.",
                                         self._on_duration)
            label(ui, "s    speed", small=True)
            self._speed = self._field("", "", "2 is twice as fast. Enter takes it.", self._on_speed)
            label(ui, "×", small=True)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(10)):
            self._even = int(dpg.add_checkbox(label="constant speed", callback=self._on_even))
            tooltip(ui, self._even, "The camera moves evenly along the curve; otherwise it passes each key at its own time")
            self._closed = int(dpg.add_checkbox(label="closed", callback=self._on_closed))
            tooltip(ui, self._closed, "From the last key back to the first")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._play = button(ui, "Play", self._on_play, "Let the view follow the path; moving it by hand stops it",
                                width=FIELD, theme=ui.theme.primary)
            self._slider = int(dpg.add_slider_float(width=-1, format="%.2f s", no_input=True, callback=self._on_slide))
            tooltip(ui, self._slider, "Look from a place along the path")
        self._facts = label(ui, "", small=True, wrap=0)

    def _build_file(self) -> None:
        ui = self.ui
        heading(ui, "Path file")
        self._path = int(dpg.add_input_text(hint="Path of a .json file", width=-1))
        ui.typing.append(self._path)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            button(ui, "Load", self._on_load, "Replace the path by the one in this file")
            self._save = button(ui, "Save", self._on_save, "Write the path to this file, in place of a camera path that is "
                                "there; splatscope render --path draws it")

    # ------------------------------------------------------------------------------------------ each frame
    def update(self) -> None:
        ui, editor = self.ui, self.ui.view.editor
        self._follow_scene()
        editor.asked = True
        self._move()
        if editor.version != self._version:
            self._version = editor.version
            self._show()
        if not dpg.is_item_active(self._slider):
            dpg.set_value(self._slider, editor.time)
        relabel(self._play, "Stop" if editor.playing else "Play")
        self._film.update(ui.view.editor.path)

    def _follow_scene(self) -> None:
        """The path that was made for this scene before, and none of another's."""
        ui, scene = self.ui, self.ui.model.scene
        path = scene.path if scene is not None else None
        if path == self._scene:
            return
        self._scene = path
        stored = ui.preferences.camera_paths.get(path) if path is not None else None
        found = CameraPath()
        if stored is not None:
            try:
                found = from_dict(stored, "the camera path that was remembered for this scene")
            except SceneError as error:
                ui.actions.notify(f"{str(error)[:1].upper()}{str(error)[1:]}. It is kept until you make another for this "
                                  "scene.", "warning")
        self._stored, self._start = stored, found
        ui.view.editor.start_with(found)
        dpg.set_value(self._path, f"{_stem(path)}_path.json" if path is not None else "")

    def _move(self) -> None:
        """Let the view follow while the path plays, until the user moves it."""
        ui, editor = self.ui, self.ui.view.editor
        if not editor.playing:
            return
        if self._rig is not None and ui.view.rig is not self._rig:
            editor.stop()
            return
        editor.advance(ui.actions.clock())
        self._look(editor.time)

    def _look(self, time: float) -> None:
        view = self.ui.view
        camera = view.editor.camera(time)
        if camera is None or view.rig is None:
            return
        rig = controls.rig_from_camera(camera, view.rig.up, view.center, view.rig.extent)
        view.move(rig, self.ui.actions.clock())
        self._rig = rig

    def _show(self) -> None:
        ui, editor = self.ui, self.ui.view.editor
        path = editor.path
        count = len(path.keys)
        show(self._empty, count == 0)
        show(self._body, count > 0)
        dpg.bind_item_theme(self._undo, 0 if editor.can_undo else ui.theme.flat)
        self._show_keys(path)
        show(self._selected, editor.selected is not None)
        show(self._at_row, editor.selected is not None and editor.selected > 0 and not path.constant_speed)
        if editor.selected is not None and count:
            put(self._at, f"{path.key_times[editor.selected]:.3g}")
        put(self._duration, f"{path.duration:.4g}")
        put(self._speed, f"{path.speed:.4g}")
        dpg.set_value(self._even, path.constant_speed)
        dpg.set_value(self._closed, path.closed)
        dpg.configure_item(self._slider, max_value=max(path.duration, 1e-3), enabled=count > 1)
        put(self._facts, f"{formatting.number(path.length)} world units long." if count > 1 else
            "One key is a still picture; add another view for a path.")
        if self._scene is not None:
            stored = self._stored if path is self._start else to_dict(path) if count else None
            ui.preferences.remember_path(self._scene, stored)

    def _show_keys(self, path: CameraPath) -> None:
        editor, times = self.ui.view.editor, path.key_times
        while len(self._rows) < len(path.keys):
            self._add_row()
        while len(self._rows) > len(path.keys):
            row, *_ = self._rows.pop()
            dpg.delete_item(row)
        for k, (_, selectable, cells) in enumerate(self._rows):
            key = path.keys[k]
            dpg.set_value(selectable, k == editor.selected)
            place = " ".join(formatting.number(float(x)) for x in key.position)
            texts = (str(k + 1), f"{times[k]:.2f} s", f"{math.degrees(key.fov_y):.0f}°", place)
            for cell, text in zip(cells, texts, strict=True):
                dpg.set_value(cell, text)
        rows = min(len(path.keys), ROWS_SHOWN)
        dpg.configure_item(self._table, height=self.ui.px(24 + 21 * rows))

    def _add_row(self) -> None:
        with dpg.table_row(parent=self._table) as row:
            with dpg.group(horizontal=True, horizontal_spacing=0):   # a selectable's own text stands higher than texts
                selectable = int(dpg.add_selectable(span_columns=True, callback=self._on_row, user_data=len(self._rows)))
                cells = [int(dpg.add_text(""))]
            cells += [int(dpg.add_text("")) for _ in range(3)]
        self._rows.append((int(row), selectable, cells))

    # ------------------------------------------------------------------------------------------ the user
    def _on_add(self) -> None:
        request, view = self.ui.view.whole_request(), self.ui.view
        if request is None or view.rig is None:
            self.ui.actions.notify("There is nothing to look at yet; open a scene first.", "warning")
            return
        view.editor.add(request.camera, max(0.01, CLOSEST_EXTENTS * view.rig.extent))

    def _on_update(self) -> None:
        request = self.ui.view.whole_request()
        if request is not None:
            self.ui.view.editor.update(request.camera)

    def _on_undo(self) -> None:
        self.ui.view.editor.undo()

    def _on_delete(self) -> None:
        self.ui.view.editor.delete()

    def _on_shift(self, sender: int, value: Any, by: int) -> None:
        self.ui.view.editor.shift(by)

    def _on_row(self, sender: int, on: bool, k: int) -> None:
        editor = self.ui.view.editor
        editor.selected = None if editor.selected == k else k
        editor.version += 1

    def _on_go(self) -> None:
        editor = self.ui.view.editor
        if editor.selected is not None:
            editor.stop()
            editor.time = float(editor.path.key_times[editor.selected])
            self._look(editor.time)

    def _on_turntable(self) -> None:
        view = self.ui.view
        if view.rig is None:
            self.ui.actions.notify("There is nothing to turn around yet; open a scene first.", "warning")
            return
        away = view.rig.eye - view.center
        above = float(away @ view.rig.up)
        radius = float(np.linalg.norm(away - above * view.rig.up))
        try:
            radius = _number(dpg.get_value(self._radius), "radius", radius)
            above = _number(dpg.get_value(self._height), "height", above)
            path = turntable(view.center, view.rig.up, radius, above, TURNTABLE_KEYS, seconds=TURNTABLE_SECONDS,
                             fov_y=view.rig.fov_y, near=max(0.01, CLOSEST_EXTENTS * view.rig.extent))
        except (SceneError, ValueError) as error:
            self.ui.actions.notify(f"{str(error)[:1].upper()}{str(error)[1:]}.", "warning")
            return
        view.editor.replace(path)

    def _on_at(self, sender: int, text: str) -> None:
        self._typed(text, "time", self.ui.view.editor.set_time)

    def _on_duration(self, sender: int, text: str) -> None:
        self._typed(text, "duration", self.ui.view.editor.set_duration)

    def _on_speed(self, sender: int, text: str) -> None:
        self._typed(text, "speed", self.ui.view.editor.set_speed)

    def _typed(self, text: str, what: str, change: Callable[[float], str | None]) -> None:
        try:
            complaint = change(_number(text, what))
        except ValueError as error:
            complaint = f"{str(error)[:1].upper()}{str(error)[1:]}."
        if complaint:
            self.ui.actions.notify(complaint, "warning")
        for item in (self._at, self._duration, self._speed):   # what was typed gives way to what holds
            put(item, "")
        self._version = -1

    def _on_even(self, sender: int, on: bool) -> None:
        editor = self.ui.view.editor
        editor.replace(replace(editor.path, constant_speed=on), editor.selected)

    def _on_closed(self, sender: int, on: bool) -> None:
        editor = self.ui.view.editor
        editor.replace(replace(editor.path, closed=on), editor.selected)

    def _on_play(self) -> None:
        editor = self.ui.view.editor
        if editor.playing:
            editor.stop()
        else:
            self._rig = None
            editor.play(self.ui.actions.clock())

    def _on_slide(self, sender: int, time: float) -> None:
        editor = self.ui.view.editor
        editor.stop()
        editor.time = float(time)
        self._look(editor.time)

    def _file(self) -> str:
        """The whole path of what is typed, with the ending that it needs; empty with a notice where nothing is."""
        text = dpg.get_value(self._path).strip().strip('"').strip("'")
        if not text:
            self.ui.actions.notify("Type the path of the camera path's file.", "warning")
            return ""
        path = Path(text if Path(text).suffix else f"{text}.json")
        return str(path.expanduser().absolute())

    def _on_load(self) -> None:
        file = self._file()
        if not file:
            return
        try:
            path = load_path(file)
        except SceneError as error:
            self.ui.actions.notify(f"{error}.", "error")
        else:
            self.ui.view.editor.replace(path)
            self.ui.actions.notify(f"Loaded {len(path.keys)} keys from {file}.")

    def _on_save(self) -> None:
        file, path = self._file(), self.ui.view.editor.path
        if not file:
            return
        if not path.keys:
            self.ui.actions.notify("There is no path to save yet; add a view to it.", "warning")
            return
        try:
            save_path(file, path)
        except SceneError as error:
            self.ui.actions.notify(f"{error}.", "error")
        else:
            self.ui.actions.notify(f"Saved the camera path to {file}.")


def _stem(path: str | None) -> str:
    return Path(path or "").stem or "camera"


def _number(text: str, what: str, default: float | None = None) -> float:
    """Raises ValueError, a sentence without its full stop."""
    text = text.strip().replace(",", ".")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"the {what} is {text!r}; give a number") from None
    if not math.isfinite(value):
        raise ValueError(f"the {what} is {text!r}; give a finite number")
    return value
