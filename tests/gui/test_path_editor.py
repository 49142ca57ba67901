"""The camera path being made, without a window: changes, undo, playing, and the line in the picture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from app.camera_path import turntable
from app.data.camera_paths import from_dict, to_dict
from app.gui import preferences as stored
from app.gui.path_editor import PathEditor
from app.gui.path_overlay import pieces
from app.gui.view_state import ViewState
from render.types import Camera
from tests.gui.fake_engine import ring_of_views, scene

CAMERAS = [view.camera for view in ring_of_views(8)]


def editor(count: int = 3) -> PathEditor:
    made = PathEditor()
    for camera in CAMERAS[:count]:
        made.add(camera, 0.05)
    return made


def places(made: PathEditor) -> list[int]:
    """Which cameras the keys stand at."""
    return [int(np.argmin([np.linalg.norm(key.position - camera.center) for camera in CAMERAS])) for key in made.path.keys]


def test_views_are_added_behind_the_selected_key() -> None:
    made = editor()
    assert places(made) == [0, 1, 2] and made.selected == 2 and made.path.near == 0.05 and made.path.duration == 4.0
    made.selected = 0
    made.add(CAMERAS[5], 0.05)
    assert places(made) == [0, 5, 1, 2] and made.selected == 1 and made.path.duration == 6.0
    made.update(CAMERAS[6])
    assert places(made) == [0, 6, 1, 2] and [k.time for k in made.path.keys] == [0, 2, 4, 6]
    made.shift(-1)
    assert places(made) == [6, 0, 1, 2] and made.selected == 0 and [k.time for k in made.path.keys] == [0, 2, 4, 6]
    made.shift(-1)   # there is nothing before it
    assert places(made) == [6, 0, 1, 2]
    made.delete()
    assert places(made) == [0, 1, 2] and made.selected == 0
    for wanted in ([6, 0, 1, 2], [0, 6, 1, 2], [0, 5, 1, 2], [0, 1, 2], [0, 1], [0], []):
        assert made.undo()
        assert places(made) == wanted
    assert not made.undo() and made.selected is None


def test_the_last_key_may_be_deleted() -> None:
    made = editor(1)
    made.delete()
    assert not made.path.keys and made.selected is None and made.camera(0.0) is None and len(made.line()) == 0
    made.delete()
    made.update(CAMERAS[0])
    assert not made.path.keys


def test_times_speed_and_duration_are_typed() -> None:
    made = editor()
    made.selected = 1
    assert made.set_time(3.0) is None and [k.time for k in made.path.keys] == [0, 3, 5]
    assert made.set_speed(2.0) is None and made.path.duration == 2.5
    assert made.set_time(1.0) is None and [k.time for k in made.path.keys] == [0, 2, 4]
    assert made.set_duration(8.0) is None and math.isclose(made.path.duration, 8.0)
    before = made.version
    for complaint in (made.set_time(0.0), made.set_speed(0.0), made.set_duration(-1.0), made.set_duration(math.nan)):
        assert complaint is not None and complaint.endswith(".") and complaint[0].isupper()
    assert made.version == before


def test_an_open_path_plays_once_and_a_closed_one_goes_around() -> None:
    made = editor()
    made.play(100.0)
    made.advance(101.5)
    assert made.playing and made.time == 1.5
    made.advance(109.0)
    assert not made.playing and made.time == 4.0
    made.play(200.0)   # from the beginning again
    made.advance(200.5)
    assert made.time == 0.5
    made.start_with(turntable(np.zeros(3), np.array([0, 0, 1.0]), 3.0, 1.0, 8, seconds=4.0))
    assert not made.playing or made.time == 0.0
    made.play(300.0)
    made.advance(309.0)
    assert made.playing and math.isclose(made.time, 1.0)
    made.replace(editor(1).path)
    assert not made.playing and made.time == 0.0
    made.play(400.0)
    assert not made.playing   # one key is no path


def test_the_line_goes_through_the_keys_and_ends_where_the_path_does() -> None:
    made = editor()
    line = made.line()
    assert made.line() is line
    for key in made.path.keys:
        assert np.linalg.norm(line - key.position, axis=1).min() < 1e-6
    np.testing.assert_allclose(line[[0, -1]], [made.path.keys[0].position, made.path.keys[-1].position], atol=1e-9)
    made.start_with(turntable(np.zeros(3), np.array([0, 0, 1.0]), 3.0, 1.0, 8))
    assert made.line() is not line
    np.testing.assert_allclose(made.line()[0], made.line()[-1], atol=1e-9)


def test_parts_behind_the_camera_are_left_out() -> None:
    camera = Camera(np.eye(4), np.array([[100.0, 0, 50], [0, 100, 50], [0, 0, 1]]), 100, 100)
    z = np.array([1.0, 1, 1, -1, -1, 2, 2, -1, 3])
    line = np.stack([np.arange(9.0), np.zeros(9), z], axis=1)
    found = pieces(line, camera)
    assert [len(piece) for piece in found] == [3, 2]
    np.testing.assert_allclose(found[1][:, 0], [50 + 100 * 5 / 2, 50 + 100 * 6 / 2])
    assert pieces(line[:1], camera) == [] and pieces(line[3:5], camera) == []


def test_the_whole_request_takes_any_size() -> None:
    """A photograph's place keeps its height and what lies off-centre; the free camera too; nothing is stretched."""
    view = ViewState()
    view.area = (640, 480)
    view.open_scene(scene())
    own = view.whole_request()
    assert own is not None and (own.camera.width, own.camera.height) == (640, 480)
    for index in (view.view_index, None):
        view.view_index = index
        wide = view.whole_request((2000, 500))
        assert wide is not None and (wide.camera.width, wide.camera.height) == (2000, 500)
        K, before = wide.camera.K, view.whole_request().camera.K   # type: ignore[union-attr]
        assert math.isclose(K[1, 1] / 500, before[1, 1] / 480) and math.isclose(K[0, 0] / K[1, 1], before[0, 0] / before[1, 1])


def test_a_path_is_remembered_for_its_scene(tmp_path: Path) -> None:
    file, preferences = tmp_path / "window.json", stored.Preferences()
    preferences.remember_path("/a scene", to_dict(editor().path))
    for k in range(stored.RECENT_LIMIT - 1):
        preferences.remember_path(f"/{k}", to_dict(editor(1).path))
    stored.save(preferences, file)
    again, complaint = stored.load(file)
    assert complaint is None and to_dict(from_dict(again.camera_paths["/a scene"], "x")) == to_dict(editor().path)
    again.remember_path("/one more", to_dict(editor(1).path))
    assert "/a scene" not in again.camera_paths and len(again.camera_paths) == stored.RECENT_LIMIT
    again.remember_path("/one more", None)
    assert "/one more" not in again.camera_paths


@pytest.mark.parametrize("index", [0, 3])
def test_the_view_goes_where_the_path_is(index: int) -> None:
    """The window's camera stands at the key and looks its way."""
    from app.gui.camera_controls import rig_from_camera

    made = editor(8)
    camera = made.camera(float(made.path.key_times[index]))
    assert camera is not None
    rig = rig_from_camera(camera, np.array([0, 0, 1.0]), np.zeros(3), 4.4)
    shown = rig.camera(320, 240)
    np.testing.assert_allclose(shown.viewmat, CAMERAS[index].viewmat, atol=1e-6)
    assert math.isclose(shown.K[1, 1], CAMERAS[index].K[1, 1], rel_tol=1e-6)
