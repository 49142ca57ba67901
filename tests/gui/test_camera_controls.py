"""The viewport's camera: every motion keeps what it promises to keep."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gui import camera_controls as controls
from app.gui.camera_controls import Rig
from app.gui.view_state import ViewState, request_key
from render.types import Camera
from tests.gui.fake_engine import ring_of_views, scene

angles = st.floats(-3.0, 3.0)
pixels = st.floats(-400.0, 400.0)


@st.composite
def rigs(draw: st.DrawFn) -> Rig:
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    up = rng.normal(size=3)
    return Rig(rng.normal(size=3) * 3, draw(st.floats(0.5, 10.0)), draw(angles), draw(st.floats(-1.4, 1.4)),
               up / np.linalg.norm(up), draw(angles), extent=draw(st.floats(0.5, 20.0)))


def project(point: np.ndarray, camera: Camera) -> np.ndarray:
    local = camera.viewmat[:3, :3] @ point + camera.viewmat[:3, 3]
    assert local[2] > 0
    return (camera.K @ local)[:2] / local[2]


@given(rigs())
def test_rotation_is_a_rotation_and_camera_looks_at_the_focus(rig: Rig) -> None:
    R = rig.rotation
    assert np.allclose(R @ R.T, np.eye(3), atol=1e-12) and np.isclose(np.linalg.det(R), 1.0)
    assert np.allclose(project(rig.focus, rig.camera(640, 360)), [320, 180], atol=1e-6)


@given(rigs(), pixels, pixels)
def test_orbit_keeps_focus_distance_and_tilt(rig: Rig, dx: float, dy: float) -> None:
    turned = controls.orbit(rig, dx, dy)
    assert np.allclose(turned.focus, rig.focus, atol=1e-8)
    assert turned.distance == rig.distance and turned.roll == rig.roll
    back = controls.orbit(turned, -dx, 0)
    assert np.isclose(math.remainder(back.yaw - rig.yaw, 2 * math.pi), 0, atol=1e-9)


@given(rigs(), pixels, pixels)
def test_look_keeps_the_eye(rig: Rig, dx: float, dy: float) -> None:
    assert np.array_equal(controls.look(rig, dx, dy).eye, rig.eye)


@given(rigs(), st.floats(-100, 100), st.floats(-100, 100))
def test_pan_keeps_the_focus_under_the_pointer(rig: Rig, dx: float, dy: float) -> None:
    moved = controls.pan(rig, dx, dy, 360)
    assert np.allclose(project(rig.focus, moved.camera(640, 360)), [320 + dx, 180 + dy], atol=1e-5)
    assert np.array_equal(moved.rotation, rig.rotation)


def test_drag_directions() -> None:
    """The scene follows the hand when orbiting; the head follows it when looking."""
    rig = controls.focus_on(Rig(np.zeros(3), 5.0, 0.0, 0.0, np.array([0, 0, 1.0])), np.zeros(3))
    near = rig.focus - 0.5 * rig.forward  # in front of the focus, towards the eye
    before = project(near, rig.camera(640, 360))
    assert project(near, controls.orbit(rig, 20, 0).camera(640, 360))[0] > before[0]
    assert project(near, controls.orbit(rig, 0, 20).camera(640, 360))[1] > before[1]
    assert project(near, controls.look(rig, 20, 0).camera(640, 360))[0] < before[0]
    assert project(near, controls.look(rig, 0, 20).camera(640, 360))[1] < before[1]


@given(rigs(), st.floats(-8, 8))
def test_dolly_approaches_the_focus_and_never_stops(rig: Rig, notches: float) -> None:
    near = controls.dolly(rig, notches)
    assert near.distance >= 0.02 * rig.extent * (1 - 1e-9)
    near = controls.dolly(near, 200)
    assert near.distance > 0 and np.isfinite(near.eye).all()
    assert not np.array_equal(controls.dolly(near, 1).eye, near.eye)


def test_near_plane_never_cuts_the_focus_and_leaves_scene_views_alone() -> None:
    rig = controls.dolly(Rig(np.zeros(3), 4.0, 0.3, 0.2, np.array([0, 1.0, 0]), extent=6.0), 500)
    assert 0.01 < rig.camera(64, 64).near <= rig.distance * (1 + 1e-9)
    camera = opened().camera(0.0, training=False)
    assert camera is not None and camera.near == ring_of_views(2)[1].camera.near


def test_dolly_out_undoes_in() -> None:
    rig = Rig(np.zeros(3), 4.0, 0.3, 0.2, np.array([0, 1.0, 0]))
    assert np.allclose(controls.dolly(controls.dolly(rig, 3), -3).eye, rig.eye)


def test_fly_goes_where_the_keys_say() -> None:
    rig = Rig(np.zeros(3), 4.0, 0.3, 0.4, np.array([0, 0, 1.0]), extent=2.0)
    ahead = controls.fly(rig, 0, 0, 1, 0.5).eye
    assert np.allclose(ahead / np.linalg.norm(ahead), rig.forward)
    assert np.isclose(np.linalg.norm(ahead), 0.5 * 2.0 * controls.FLY_EXTENTS_PER_SECOND)
    assert controls.fly(rig, 0, -1, 0, 0.5).eye @ rig.up > 0
    assert np.linalg.norm(controls.fly(rig, 1, 0, 0, 0.5, fast=True).eye) > np.linalg.norm(ahead)


@given(rigs())
def test_U02_up_from_view_changes_no_pixel(rig: Rig) -> None:
    """The picture stays, the tilt is gone, and orbiting sideways now turns around the picture's vertical."""
    changed = controls.up_from_view(rig)
    assert np.allclose(changed.rotation, rig.rotation, atol=1e-9) and np.array_equal(changed.eye, rig.eye)
    assert abs(changed.roll) < 1e-9
    assert np.allclose(changed.up, -rig.rotation[1])
    assert np.isclose(controls.orbit(changed, 50, 0).rotation[1] @ changed.up, -1.0)


@given(rigs())
def test_free_camera_starts_where_the_scene_view_stands(rig: Rig) -> None:
    camera = rig.camera(640, 360)
    again = controls.rig_from_camera(camera, rig.up, rig.focus, rig.extent)
    # Short of the pole every attitude survives the way to angles and back.
    assert np.allclose(again.camera(640, 360).viewmat, camera.viewmat, atol=1e-6)
    assert np.isclose(again.fov_y, rig.fov_y)


@settings(max_examples=200)
@given(st.integers(16, 2000), st.integers(16, 1200), st.integers(50, 2000), st.integers(50, 1200), st.floats(0, 0.999),
       st.floats(0, 0.999))
def test_G28_fit_maps_there_and_back(width: int, height: int, area_width: int, area_height: int, u: float, v: float) -> None:
    fit = controls.fit(width, height, area_width, area_height)
    assert fit.shown_width <= area_width + 2 and fit.shown_height <= area_height + 2
    picked = fit.to_picture(fit.x + u * fit.shown_width, fit.y + v * fit.shown_height)
    assert picked is not None and np.allclose(picked, [u * width, v * height], atol=1e-6 * max(width, height))
    back = fit.to_area(np.array(picked))
    assert np.allclose(back, [fit.x + u * fit.shown_width, fit.y + v * fit.shown_height], atol=1e-6 * area_width)
    assert fit.to_picture(fit.x - 0.01, fit.y) is None and fit.to_picture(fit.x + fit.shown_width + 0.01, fit.y) is None


def test_fit_refuses_nothing() -> None:
    with pytest.raises(ValueError, match="0x5"):
        controls.fit(0, 5, 100, 100)


# ------------------------------------------------------------------------------------------- the view state
def opened() -> ViewState:
    state = ViewState(area=(700, 430))
    state.open_scene(scene())
    return state


def test_U01_first_view_is_a_training_camera_and_up_is_the_cameras_up() -> None:
    state = opened()
    assert state.view_index == 1 and state.views[1].split == "train"
    camera = state.camera(10.0, training=False)
    assert camera is not None
    expected = state.views[1].camera
    assert np.array_equal(camera.viewmat, expected.viewmat)
    # The whole photograph, letterboxed: same field of view, aspect kept to a pixel.
    assert np.allclose(camera.K[0, 0] / camera.width, expected.K[0, 0] / expected.width)
    assert abs(camera.width / camera.height - expected.width / expected.height) < 0.01
    assert state.rig is not None and np.array_equal(state.rig.up, [0, 0, 1])


def test_U02_up_that_was_remembered_is_used() -> None:
    state = ViewState(area=(700, 430))
    state.open_scene(scene(), np.array([0, 1.0, 0]))
    assert state.rig is not None and np.array_equal(state.rig.up, [0, 1, 0])


def test_stepping_goes_round_and_on_from_where_the_camera_left() -> None:
    state = opened()
    assert state.step_view(-1) is not None and state.view_index == 0
    state.step_view(-1)
    assert state.view_index == len(state.views) - 1
    assert state.rig is not None
    state.move(state.rig, 5.0)
    assert state.view_index is None
    state.step_view(1)
    assert state.view_index == 0


def test_error_needs_a_photograph() -> None:
    """It goes to the nearest view, and leaves the mode when the camera leaves the view."""
    state = opened()
    assert state.rig is not None
    state.move(controls.orbit(state.rig, 3, 0), 1.0)
    assert state.set_mode("error") is None and state.view_index == 1
    state.toggle_mode("truth")
    assert state.mode == "truth" and state.view_index == 1
    state.move(controls.orbit(state.rig, 300, 0), 2.0)
    assert state.mode == "color" and state.view_index is None
    bare = ViewState(area=(700, 430))
    bare.open_scene(scene(views=()))
    sentence = bare.set_mode("error")
    assert sentence is not None and "photograph" in sentence and bare.mode == "color"
    assert bare.camera(0.0, training=False) is not None


def test_request_says_moving_and_shrinks() -> None:
    state = opened()
    assert state.rig is not None
    rest = state.request(10.0, training=False, hidden=False, histogram=True)
    state.move(controls.orbit(state.rig, 3, 0), 11.0)
    moving = state.request(11.05, training=False, hidden=False, histogram=True)
    settled = state.request(12.0, training=False, hidden=False, histogram=True)
    assert rest is not None and moving is not None and settled is not None
    assert moving.moving and not settled.moving and not rest.moving
    assert moving.camera.width * moving.camera.height < settled.camera.width * settled.camera.height
    assert (settled.camera.width, settled.camera.height) == (700, 430)
    again = state.request(12.5, training=False, hidden=False, histogram=True)
    assert again is not None and request_key(again) == request_key(settled) != request_key(moving)


def test_no_room_no_request() -> None:
    state = opened()
    state.area = (0, 0)
    assert state.request(0.0, training=False, hidden=False, histogram=True) is None


def test_rotated_up_is_normalised() -> None:
    views = ring_of_views(4)
    opened_scene = replace(scene(views=views), up=np.array([0, 0, 7.0]))
    state = ViewState(area=(100, 100))
    state.open_scene(opened_scene)
    assert state.rig is not None and np.isclose(np.linalg.norm(state.rig.up), 1.0)
    state.open_scene(replace(opened_scene, up=np.zeros(3)))
    assert np.isfinite(state.rig.rotation).all()
