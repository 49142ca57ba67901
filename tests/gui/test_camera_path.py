"""The tab Camera in a real window: views become a path by mouse, it plays, is drawn, exported, saved and remembered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gui.conftest import Window
from tests.gui.test_laboratory import START, open_tab, press

pytestmark = pytest.mark.thorough

PANEL = "next(p for n, p in shell._tabs.values() if n == 'camera')"
EDITOR = "shell.view.editor"
KEYS = f"len({EDITOR}.path.keys)"
DRAWN = "len(dpg.get_item_children(shell.viewport._path._layer, 2))"


def drag(window: Window, dx: int, dy: int, button: int = 1) -> None:
    window.point(*window.middle("shell.viewport.canvas"))
    window.input("mousedown", button, "sleep", "0.1", "mousemove_relative", "--", dx, dy, "sleep", "0.1", "mouseup", button)
    window.frames(3)


def test_a_path_is_made_played_and_exported_by_mouse(make_window: Callable[..., Window], tmp_path: Path) -> None:
    window = make_window(folder=tmp_path)
    window.wait_for("shell.model.frame is not None")
    open_tab(window, "camera")
    assert window.get(f"dpg.is_item_visible({PANEL}._empty)") and window.get(DRAWN) == 0
    press(window, "Add view")
    window.wait_for(f"{KEYS} == 1")
    for dx in (160, 140):
        drag(window, dx, 10)
        press(window, "Add view")
    window.wait_for(f"{KEYS} == 3 and {EDITOR}.selected == 2")
    drag(window, -90, 40)
    window.wait_for(f"{DRAWN} > 5", "the path in the picture")
    assert not window.get(f"dpg.is_item_visible({PANEL}._empty)")
    assert window.get(f"dpg.get_value({PANEL}._rows[1][2][0])") == "2"

    window.click(*window.middle(f"{PANEL}._rows[0][1]"))
    window.wait_for(f"{EDITOR}.selected == 0")
    press(window, "▼")
    window.wait_for(f"{EDITOR}.selected == 1")
    press(window, "Go to")
    window.wait_for(f"np.linalg.norm(shell.view.rig.eye - {EDITOR}.path.keys[1].position) < 1e-6")
    press(window, "Delete")
    window.wait_for(f"{KEYS} == 2")
    press(window, "Undo")
    window.wait_for(f"{KEYS} == 3")

    window.type_into(f"{PANEL}._duration", "30")
    window.wait_for(f"abs({EDITOR}.path.duration - 30) < 1e-6 and dpg.get_value({PANEL}._duration) == '30'")
    window.type_into(f"{PANEL}._speed", "nonsense")
    window.wait_for("any('nonsense' in n.text for n in shell.model.notices)")
    window.wait_for(f"dpg.get_value({PANEL}._speed) == '1'")
    window.click(*window.middle(f"{PANEL}._closed"))
    window.wait_for(f"{EDITOR}.path.closed and {EDITOR}.path.duration > 30")

    press(window, "Play")
    window.wait_for(f"{EDITOR}.playing and {EDITOR}.time > 0.2")
    eye = f"np.linalg.norm(shell.view.rig.eye - {EDITOR}.path.at([{EDITOR}.time]).positions[0])"
    assert window.get(eye) < 1e-6 and window.get("not shell.view.whole_request().moving")
    assert window.get(DRAWN) == 0   # the film, not the rails
    drag(window, 60, 0)
    window.wait_for(f"not {EDITOR}.playing", "moving by hand stops it")
    window.wait_for(f"{DRAWN} > 5")

    film = tmp_path / "film.mp4"
    window.run(f"dpg.set_value({PANEL}._film._path, {str(film)!r}); dpg.set_value({PANEL}._film._width, '640')")
    window.input("key", "2")
    window.wait_for("shell.view.mode == 'depth'")
    press(window, "Export film")
    window.wait_for("any(type(c).__name__ == 'ExportVideo' for c in engine.received)")
    sent = "[c for c in engine.received if type(c).__name__ == 'ExportVideo'][-1]"
    assert window.get(f"[{sent}.path, {sent}.width, {sent}.height, {sent}.fps]") == [str(film), 640, 720, 30.0]
    assert window.get(f"[{sent}.request.mode, len({sent}.along.keys)]") == ["depth", 3]
    window.run("engine.events.put(m.JobProgress('film', 0.25, 'frame 5 of 20'))")
    window.wait_for(f"dpg.is_item_visible({PANEL}._film._busy) and dpg.get_value({PANEL}._film._text) == 'frame 5 of 20'")
    window.frames(3)
    press(window, "Cancel")
    window.wait_for("any(type(c).__name__ == 'CancelJob' for c in engine.received)")
    window.run("engine.events.put(m.JobProgress('film', 0.0, 'cancelled', True))")
    window.wait_for(f"dpg.is_item_visible({PANEL}._film._idle)")

    file = tmp_path / "path.json"
    window.run(f"dpg.set_value({PANEL}._path, {str(file)!r}); {PANEL}._on_save()")
    assert len(json.loads(file.read_text())["keys"]) == 3
    window.run(f"import os; os.chdir({str(tmp_path)!r}); dpg.set_value({PANEL}._path, 'short'); {PANEL}._on_save()")
    assert window.get("shell.model.notices[-1].text") == f"Saved the camera path to {tmp_path / 'short.json'}."
    window.run(f"dpg.set_value({PANEL}._path, {str(file)!r})")
    press(window, "Turntable")
    window.wait_for(f"{KEYS} == 16 and {EDITOR}.path.closed")
    window.run(f"{PANEL}._on_load()")
    window.wait_for(f"{KEYS} == 3")
    file.write_text("{}")
    window.run(f"{PANEL}._on_load()")
    window.wait_for("any('no camera path' in n.text for n in shell.model.notices)")
    open_tab(window, "views")
    window.wait_for(f"{DRAWN} == 0", "nothing is drawn while the tab is closed")
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


@pytest.mark.thorough
def test_the_path_comes_back_with_its_scene(make_window: Callable[..., Window], tmp_path: Path) -> None:
    for wanted in (0, 2):
        window = make_window(folder=tmp_path)
        window.wait_for("shell.model.frame is not None")
        open_tab(window, "camera")
        window.wait_for(f"{KEYS} == {wanted}")
        if not wanted:
            press(window, "Add view")
            drag(window, 100, 0)
            press(window, "Add view")
            window.wait_for(f"{KEYS} == 2")
        else:   # another scene has none, and this one has it again
            window.run("engine.open(scene('/another'))")
            window.wait_for(f"{KEYS} == 0 and not {EDITOR}.can_undo")
            window.run("engine.open(scene())")
            window.wait_for(f"{KEYS} == 2")
        assert window.get("list(shell._complained)") == []
        assert window.close() == 0


def test_a_picture_is_saved_at_the_size_that_was_typed(make_window: Callable[..., Window], tmp_path: Path) -> None:
    window = make_window(folder=tmp_path)
    window.wait_for("shell.model.frame is not None")
    window.input("key", "ctrl+s")
    window.wait_for("shell.save_dialog.shown")
    window.frames(4)
    assert not window.get("dpg.is_item_visible(shell.save_dialog._size)")   # Gaussians have no size
    press(window, "This view (.png)")
    window.wait_for("dpg.is_item_visible(shell.save_dialog._size)")
    own = window.get("[shell.view.whole_request().camera.width, shell.view.whole_request().camera.height]")
    assert window.get("[dpg.get_value(shell.save_dialog._width), dpg.get_value(shell.save_dialog._height)]") == [
        str(side) for side in own]
    window.type_into("shell.save_dialog._width", "4000", enter=False)
    window.wait_for(f"dpg.get_value(shell.save_dialog._height) == '{round(4000 * own[1] / own[0])}'", "the shape is kept")
    window.run(f"dpg.set_value(shell.save_dialog._path, {str(tmp_path / 'a.png')!r})")
    window.click(*window.middle("shell.save_dialog._keep"))
    window.wait_for("not dpg.get_value(shell.save_dialog._keep)")
    window.type_into("shell.save_dialog._height", "9000", enter=False)
    window.wait_for("dpg.get_value(shell.save_dialog._height) == '9000'")
    window.run("shell.save_dialog._on_save()")
    assert window.get("dpg.get_value(shell.save_dialog._complaint)").startswith("Width and height") \
        and window.get("shell.save_dialog.shown")
    window.run("dpg.set_value(shell.save_dialog._height, '1000'); shell.save_dialog._on_save()")
    window.wait_for("any(type(c).__name__ == 'SavePicture' for c in engine.received)")
    camera = "[c for c in engine.received if type(c).__name__ == 'SavePicture'][-1].request.camera"
    assert window.get(f"[{camera}.width, {camera}.height, {camera}.K[0][0] - {camera}.K[1][1]]") == [4000, 1000, 0.0]
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


@pytest.mark.thorough
def test_a_film_of_the_demo_is_written_while_it_trains(make_window: Callable[..., Window], tmp_path: Path) -> None:
    """The whole program: a turntable, exported by mouse while training goes on; a second one ends with the window."""
    import imageio_ffmpeg

    window = make_window(demo=True)
    window.peek_for("shell.model.snapshot.iteration > 60", START)
    open_tab(window, "camera")
    press(window, "Turntable")
    window.wait_for(f"{KEYS} == 16")
    first, second = tmp_path / "first.mp4", tmp_path / "second.mp4"
    window.run(f"dpg.set_value({PANEL}._film._path, {str(first)!r}); dpg.set_value({PANEL}._film._width, '160');"
               f"dpg.set_value({PANEL}._film._height, '90'); dpg.set_value({PANEL}._film._fps, '5')")
    window.frames(4)
    begun = window.get("shell.model.snapshot.iteration")
    press(window, "Export film")
    window.wait_for("any('40 frames of 160 x 90 px' in n.text for n in shell.model.notices)")
    assert window.get("shell.model.snapshot.iteration") > begun
    assert imageio_ffmpeg.count_frames_and_secs(str(first))[0] == 40
    window.run(f"dpg.set_value({PANEL}._film._path, {str(second)!r}); dpg.set_value({PANEL}._film._width, '1920');"
               f"dpg.set_value({PANEL}._film._height, '1080'); dpg.set_value({PANEL}._film._fps, '60')")
    window.frames(4)
    press(window, "Export film")
    window.wait_for("shell.model.job is not None and shell.model.job.name == 'film' and shell.model.job.fraction > 0")
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0
    assert [p.name for p in tmp_path.iterdir()] == ["first.mp4"]
