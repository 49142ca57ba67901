"""What the window remembers: nothing in its file is lost, understood or not, whoever else writes it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.data.scene import SceneError
from app.gui import preferences
from app.gui.preferences import Preferences
from tests.gui.conftest import Window
from tests.gui.test_laboratory import open_tab


def test_preferences_survive_and_damage_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a folder ä" / "window.json"
    wanted = Preferences(ui_scale=1.5, recent=["/b", "/a"], scene_up={"/b": [0.0, 1.0, 0.0]})
    preferences.save(wanted, path)
    assert preferences.load(path) == (wanted, None)
    assert [p.name for p in path.parent.iterdir()] == ["window.json"], "no temporary file is left"
    for number, damage in enumerate(('{"ui_scale":', "[1]", "\x00")):
        path.write_text(damage)
        got, complaint = preferences.load(path)
        assert got == Preferences() and complaint is not None and str(path) in complaint
        aside = f"window.json{f'-{number + 1}' if number else ''}.damaged"
        assert complaint.endswith(f"which otherwise renames it to {aside}.")
        assert preferences.save(wanted, path).endswith(f"; it is called {aside} now.")
        assert path.with_name(aside).read_text() == damage and preferences.load(path) == (wanted, None)
    path.write_text(json.dumps({"left": "wide", "right": 500, "unknown": 1, "scene_up": {"/x": [1, 2]}, "ui_scale": 2}))
    got, complaint = preferences.load(path)
    assert complaint is None and got.left == Preferences().left and got.right == 500 and got.scene_up == {}
    assert got.ui_scale == 2.0


def test_preferences_that_this_version_cannot_use_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "window.json"
    stored = {"left": "wide", "right": 500, "unknown": {"a": [1]}, "scene_up": {"/x": [1, 2]}, "view_share": 7.0,
              "camera_paths": {"/x": {"version": 9}, "/y": 3}}
    path.write_text(json.dumps(stored))
    loaded, _ = preferences.load(path)
    now = copy.deepcopy(loaded)
    now.bottom, now.scene_up["/z"] = 300, [0.0, 1.0, 0.0]
    now.remember_path("/z", {"version": 1})
    assert preferences.save(now, path, loaded) == ""
    stored["scene_up"]["/z"], stored["camera_paths"]["/z"] = [0.0, 1.0, 0.0], {"version": 1}   # type: ignore[index]
    written = json.loads(path.read_text())
    assert {name: written[name] for name in stored} == stored and written["bottom"] == 300


def test_two_windows_keep_each_others_preferences(tmp_path: Path) -> None:
    path = tmp_path / "window.json"
    preferences.save(Preferences(recent=["/old"], camera_paths={"/old": {"n": 1}, "/gone": {"n": 2}}), path)
    loaded, _ = preferences.load(path)
    first, second = copy.deepcopy(loaded), copy.deepcopy(loaded)
    first.left = 300
    first.remember_scene("/a")
    first.remember_path("/a", {"n": 3})
    first.remember_path("/old", {"n": 4})
    second.right = 500
    second.remember_scene("/b")
    second.remember_path("/b", {"n": 5})
    second.remember_path("/gone", None)
    preferences.save(first, path, loaded)
    preferences.save(second, path, loaded)
    both, _ = preferences.load(path)
    assert (both.left, both.right, both.recent) == (300, 500, ["/b", "/a", "/old"])
    assert both.camera_paths == {"/old": {"n": 4}, "/a": {"n": 3}, "/b": {"n": 5}}


def test_the_newest_camera_paths_stay_when_two_windows_have_too_many(tmp_path: Path) -> None:
    path, limit = tmp_path / "window.json", preferences.RECENT_LIMIT
    preferences.save(Preferences(camera_paths={f"/{k}": {"n": k} for k in range(limit)}), path)
    loaded, _ = preferences.load(path)
    for scene in ("/a", "/b"):
        window = copy.deepcopy(loaded)
        window.remember_path(scene, {})
        preferences.save(window, path, loaded)
    assert list(preferences.load(path)[0].camera_paths) == [*(f"/{k}" for k in range(2, limit)), "/a", "/b"]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "window.json"
    preferences.save(Preferences(left=300), path)

    def full(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.data.atomic.os.fsync", full)
    with pytest.raises(SceneError, match="space"):
        preferences.save(Preferences(left=400), path)
    monkeypatch.undo()
    assert preferences.load(path)[0].left == 300 and len(list(tmp_path.iterdir())) == 1


def test_recent_scenes_are_each_once_newest_first() -> None:
    wanted = Preferences()
    for i in range(15):
        wanted.remember_scene(f"/{i % 12}")
    assert wanted.recent[:3] == ["/2", "/1", "/0"] and len(wanted.recent) == len(set(wanted.recent)) == 10


def test_scale_is_held_between_one_and_two() -> None:
    assert preferences.scale_from({}, Preferences(ui_scale=1.25)) == (1.25, None)
    assert preferences.scale_from({"SPLATSCOPE_UI_SCALE": "150%"}, Preferences())[0] == 1.5
    assert preferences.scale_from({"SPLATSCOPE_UI_SCALE": "9"}, Preferences())[0] == 2.0
    scale, complaint = preferences.scale_from({"SPLATSCOPE_UI_SCALE": "big"}, Preferences())
    assert scale == 1.0 and complaint is not None and "big" in complaint


# ------------------------------------------------------------------------------------------- in a real window
@pytest.mark.thorough
def test_a_damaged_file_is_renamed_when_the_window_closes(make_window: Callable[..., Window], tmp_path: Path) -> None:
    path = tmp_path / "window.json"
    path.write_text('{"camera_paths": {"/x": ')
    window = make_window(folder=tmp_path, alone=True)
    window.wait_for("any('which otherwise renames it to window.json.damaged.' in n.text for n in shell.model.notices)")
    assert window.close() == 0
    assert (tmp_path / "window.json.damaged").read_text() == '{"camera_paths": {"/x": '
    assert json.loads(path.read_text())["recent"] == ["/somewhere/fake scene ä"]
    assert window.errors is not None and f"splatscope: {path} could not be read (" in window.errors.read_text()


@pytest.mark.thorough
def test_a_camera_path_of_another_version_is_kept_until_there_is_a_new_one(make_window: Callable[..., Window],
                                                                           tmp_path: Path) -> None:
    path, scene = tmp_path / "window.json", "/somewhere/fake scene ä"
    newer = {"format": "splatscope camera path", "version": 9, "knots": [1, 2]}
    path.write_text(json.dumps({"camera_paths": {scene: newer}}))
    for adds in (False, True):
        window = make_window(folder=tmp_path)
        window.wait_for("shell.model.frame is not None")
        open_tab(window, "camera")
        window.wait_for("any('It is kept until you make another' in n.text for n in shell.model.notices)")
        panel = "next(p for n, p in shell._tabs.values() if n == 'camera')"
        window.frames(3)
        if adds:
            window.run(f"{panel}._on_add()")
            window.wait_for(f"shell.preferences.camera_paths[{scene!r}]['version'] == 1")
            window.run(f"{panel}._on_undo()")
            window.wait_for(f"shell.preferences.camera_paths[{scene!r}]['version'] == 9")
            window.run(f"{panel}._on_add()")
            window.wait_for(f"shell.preferences.camera_paths[{scene!r}]['version'] == 1")
        assert window.get("list(shell._complained)") == []
        assert window.close() == 0
        stored = json.loads(path.read_text())["camera_paths"][scene]
        assert len(stored["keys"]) == 1 if adds else stored == newer
