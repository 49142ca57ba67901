"""The curve of a camera path: through its keys, continuous, even, the short way round; and its files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import splines
from app.camera_path import CameraPath, Key, Lens, framed, looking, turntable
from app.data.camera_paths import from_dict, load_path, save_path, to_dict
from app.data.scene import SceneError
from render.types import Camera


def key(position, quat=(1, 0, 0, 0), time=0.0, fov=50.0, lens: Lens | None = None) -> Key:
    quat = np.asarray(quat, float)
    return Key(np.asarray(position, float), quat / np.linalg.norm(quat), math.radians(fov), time, lens)


def away(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angle [rad] between orientations."""
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    return 2 * np.arcsin(np.minimum(1.0, 0.5 * np.minimum(np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1)))) * 1.0


@st.composite
def paths(draw, least: int = 2) -> CameraPath:
    """Any path: keys in one place, turned over, far apart; with times as they come."""
    n = draw(st.integers(least, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    positions = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-2, 3)
    quats = rng.normal(size=(n, 4))
    for k in range(1, n):
        what = rng.integers(0, 6)
        if what == 0:
            positions[k] = positions[k - 1]
        if what in (0, 1):
            quats[k] = rng.choice([-1.0, 1.0]) * quats[k - 1]
        if what == 2:   # half a turn
            quats[k] = splines.multiply(quats[k - 1], np.array([0.0, *rng.permutation([1.0, 0.0, 0.0])]))
    times = np.cumsum(rng.uniform(0.1, 3.0, n))
    keys = tuple(key(p, q, t, rng.uniform(10, 100)) for p, q, t in zip(positions, quats, times))
    return CameraPath(keys, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([0.25, 1.0, 3.0])))


@settings(deadline=None, max_examples=80)
@given(paths())
def test_a_path_passes_through_its_keys_with_unit_quaternions(path: CameraPath) -> None:
    times = path.key_times
    assert len(times) == len(path.keys) + path.closed and times[0] == 0 and math.isclose(times[-1], path.duration, rel_tol=1e-9)
    assert (np.diff(times) > 0).all()
    if not path.constant_speed:
        given_times = np.array([k.time for k in path.keys])
        np.testing.assert_allclose(times[:len(path.keys)], (given_times - given_times[0]) / path.speed, atol=1e-9)
    found = path.at(times)
    size = np.abs([k.position for k in path.keys]).max()
    for k, (position, quat, fov) in enumerate(zip(found.positions, found.quats, found.fovs)):
        wanted = path.keys[k % len(path.keys)]
        np.testing.assert_allclose(position, wanted.position, atol=1e-6 * size)
        assert away(quat, wanted.quat)[0] < 1e-5 and math.isclose(fov, wanted.fov_y, rel_tol=1e-6)
    everywhere = path.at(np.linspace(-1.0, path.duration + 1.0, 400))
    np.testing.assert_allclose(np.linalg.norm(everywhere.quats, axis=1), 1.0, atol=1e-9)
    fovs = [k.fov_y for k in path.keys]
    assert everywhere.fovs.min() >= min(fovs) - 1e-9 and everywhere.fovs.max() <= max(fovs) + 1e-9   # no overshoot


@settings(deadline=None, max_examples=40)
@given(paths())
def test_a_path_is_continuous(path: CameraPath) -> None:
    """Twice as many samples, half the largest step, in places and in orientations: there is no jump."""
    def steps(count: int) -> tuple[float, float]:
        found = path.at(np.linspace(0.0, path.duration, count) if not path.closed else
                        np.linspace(0.3 * path.duration, 1.3 * path.duration, count))
        return (float(np.linalg.norm(np.diff(found.positions, axis=0), axis=1).max()),
                float(away(found.quats[:-1], found.quats[1:]).max()))

    size = path.length + 1e-6 * max(np.abs(k.position).max() for k in path.keys)
    coarse, fine = steps(1001), steps(16001)
    for rough, smooth, floor in zip(coarse, fine, (1e-5 * size, 1e-5)):
        assert smooth <= max(0.5 * rough, floor), (coarse, fine)


@settings(deadline=None, max_examples=40)
@given(paths(least=3))
def test_constant_speed_is_constant(path: CameraPath) -> None:
    path = replace(path, constant_speed=True)
    times = path.key_times
    speeds, whole = [], 0.0
    for begin, end in zip(times[:-1], times[1:]):
        at = np.linspace(begin, end, 3000)
        steps = np.linalg.norm(np.diff(path.at(at).positions, axis=0), axis=1)
        whole += steps.sum()
        if steps.sum() > 1e-7 * path.length + 1e-9:   # else the camera stands still and only turns
            speeds.append(steps.sum() / (end - begin))
            middle = steps[:-1].reshape(-1, 2).sum(1) if len(steps) % 2 else steps.reshape(-1, 2).sum(1)
            assert middle.max() < 1.05 * middle.mean() + 1e-9 * path.length
    if path.length > 1e-9:
        assert math.isclose(whole, path.length, rel_tol=1e-3)
        assert max(speeds) < 1.001 * min(speeds)


def test_speed_is_smooth_at_the_keys_of_a_bent_path() -> None:
    """No kink where a segment begins: velocity and turning rate agree on both sides, at either kind of speed."""
    turns = [(1, 0, 0, 0), (1, 0.3, 0, 0), (1, 0.2, 0.5, 0), (1, -0.4, 0.3, 0.2)]
    places = [(0, 0, 0), (1, 0, 0), (1.5, 2, 0), (4, 2, 1)]
    keys = tuple(key(p, q, t) for p, q, t in zip(places, turns, (0.0, 1.0, 1.7, 4.0)))
    for even in (False, True):
        for closed in (False, True):
            path = CameraPath(keys, closed, even)
            for t in path.key_times[1:-1]:
                h = 1e-4
                p = path.at([t - 2 * h, t - h, t + h, t + 2 * h])
                before, after = (p.positions[1] - p.positions[0]) / h, (p.positions[3] - p.positions[2]) / h
                assert np.linalg.norm(before - after) < 0.03 * np.linalg.norm(before)
                turning = [(p.quats[k + 1] - p.quats[k]) / h for k in (0, 2)]
                assert np.linalg.norm(turning[0] - turning[1]) < 0.03 * np.linalg.norm(turning[0])


def test_the_tangent_is_that_of_a_circle_for_keys_on_a_circle() -> None:
    """Hand-computed: equal chords make the knots even, so the tangent at a key is (p2 - p0) / 2."""
    four = np.array([[[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]]])
    steps = np.full((1, 3), 2.0**0.25)
    middle = splines.catmull_rom(four, steps, np.array([0.5]))[0]
    np.testing.assert_allclose(middle, [-0.625, 0.625, 0], atol=1e-12)   # (9 (p1 + p2) - (p0 + p3)) / 16
    h = 1e-6
    ahead = splines.catmull_rom(four, steps, np.array([h]))[0]
    np.testing.assert_allclose((ahead - four[0, 1]) / h, [-1.0, 0.0, 0.0], atol=1e-4)


def test_squad_is_shoemakes_for_even_times() -> None:
    quats = splines.aligned(np.random.default_rng(3).normal(size=(4, 4)))
    leaving, arriving = splines.quadrangle(quats, np.arange(4.0))
    for k in (1, 2):
        inverse = splines.conjugate(quats[k])
        logs = splines.log(splines.multiply(inverse, quats[k + 1])) + splines.log(splines.multiply(inverse, quats[k - 1]))
        wanted = splines.multiply(quats[k], splines.exp(-logs / 4))
        np.testing.assert_allclose(leaving[k], wanted, atol=1e-12)
        np.testing.assert_allclose(arriving[k], wanted, atol=1e-12)


def test_turning_goes_the_short_way() -> None:
    """From 10 to 350 degrees about y over 0, whichever signs the quaternions have."""
    def about_y(degrees: float, sign: float) -> tuple[float, ...]:
        half = math.radians(degrees) / 2
        return (sign * math.cos(half), 0.0, sign * math.sin(half), 0.0)

    for sign in (1.0, -1.0):
        path = CameraPath((key((0, 0, 0), about_y(10, 1), 0.0), key((0, 0, 0), about_y(350, sign), 1.0)))
        assert away(path.at([0.5]).quats, np.array([1.0, 0, 0, 0]))[0] < 1e-9   # standing still, it turns in its own time
        assert (away(path.at(np.linspace(0, 1, 50)).quats, np.array([1.0, 0, 0, 0])) < math.radians(10.001)).all()


def test_turning_over_and_back_has_a_way() -> None:
    """Half a turn about the same axis, there and back, where the inner points of Shoemake's would be opposite."""
    keys = tuple(key((k, 0, 0), (1, 0, 0, 0) if k % 2 == 0 else (0, 1, 0, 0), float(k)) for k in range(5))
    found = CameraPath(keys).at(np.linspace(0, 4, 4001))
    assert np.isfinite(found.quats).all() and away(found.quats[:-1], found.quats[1:]).max() < 0.02


def test_none_one_and_two_keys() -> None:
    empty = CameraPath()
    assert empty.duration == empty.length == 0 and len(empty.key_times) == 0
    with pytest.raises(SceneError, match="no keys"):
        empty.sample(30, 64, 48)
    one = empty.with_key(key((1, 2, 3), (0, 0, 1, 0)))
    cameras = one.sample(30, 64, 48)
    assert len(cameras) == 1 and one.duration == 0
    np.testing.assert_allclose(cameras[0].center, [1, 2, 3], atol=1e-12)
    two = one.with_key(key((1, 2, 5), (0, 0, 1, 0)))
    assert two.duration == 2.0 and len(two.sample(10, 64, 48)) == 21
    np.testing.assert_allclose(two.at([0.5]).positions, [[1, 2, 3.5]], atol=1e-6)   # a straight line, evenly
    around = replace(two, closed=True)
    assert around.duration == 4.0 and len(around.sample(10, 64, 48)) == 40
    np.testing.assert_allclose(around.at([2.0, 4.0]).positions, [[1, 2, 5], [1, 2, 3]], atol=1e-6)


def test_two_equal_keys_are_a_stop() -> None:
    a, b, c = (0, 0, 0), (2, 0, 0), (2, 3, 0)
    for even in (True, False):
        path = CameraPath((key(a, time=0), key(b, time=1), key(b, time=3), key(c, time=4)), constant_speed=even)
        begin, end = path.key_times[1:3]
        assert math.isclose(end - begin, 2.0)
        found = path.at(np.linspace(begin, end, 20))
        np.testing.assert_allclose(found.positions, np.tile(b, (20, 1)), atol=1e-9)
        np.testing.assert_allclose(found.quats, np.tile([1, 0, 0, 0], (20, 1)), atol=1e-9)


def test_times_and_speed_that_cannot_be_are_refused() -> None:
    with pytest.raises(SceneError, match="key 2 .* not after key 1"):
        CameraPath((key((0, 0, 0), time=1.0), key((1, 0, 0), time=1.0)))
    for speed in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SceneError, match="speed"):
            CameraPath(speed=speed)


def test_speed_and_duration() -> None:
    path = CameraPath((key((0, 0, 0)), key((4, 0, 0), time=8.0)), speed=2.0)
    assert path.duration == 4.0 and path.lasting(2.0).duration == 2.0 and path.lasting(2.0).speed == 2.0
    assert path.lasting(math.nan) is path
    assert [k.time for k in path.with_keys(path.keys[::-1]).keys] == [0.0, 8.0]
    assert path.with_keys(path.keys[::-1]).keys[0].position[0] == 4


# ---------------------------------------------------------------- cameras


def off_centre(width: int = 320, height: int = 240) -> Camera:
    viewmat = np.eye(4)
    viewmat[:3, :3] = splines.rotation_of(splines.aligned(np.array([[1.0, 0.2, -0.3, 0.4]])))[0]
    viewmat[:3, 3] = 1, 2, 3
    return Camera(viewmat, np.array([[310.0, 0, 150], [0, 290, 130], [0, 0, 1]]), width, height)


def test_a_key_of_a_camera_is_that_camera_again() -> None:
    """fx != fy and the off-centre principal point are kept, at any size of the same shape."""
    camera = off_centre()
    for by in (1, 2):
        again = Key.of(camera).camera(320 * by, 240 * by)
        np.testing.assert_allclose(again.viewmat, camera.viewmat, atol=1e-12)
        np.testing.assert_allclose(again.K, camera.resized(320 * by, 240 * by).K, atol=1e-9)


def test_lenses_count_where_every_key_has_one() -> None:
    camera = off_centre()
    path = CameraPath((Key.of(camera, 0.0), Key.of(camera, 1.0)))
    np.testing.assert_allclose(path.cameras_at([0.5], 320, 240)[0].K, camera.K, atol=1e-9)
    mixed = CameraPath((Key.of(camera, 0.0), replace(Key.of(camera, 1.0), lens=None)))
    K = mixed.cameras_at([0.5], 640, 240)[0].K
    assert math.isclose(K[0, 0], K[1, 1]) and K[0, 2] == 320 and K[1, 2] == 120
    assert math.isclose(K[1, 1], camera.K[1, 1])   # the field of view stays


def test_another_shape_shows_the_same_height_and_is_not_stretched() -> None:
    camera = off_centre()
    wide = framed(camera, 1000, 480)
    assert math.isclose(wide.K[1, 1], 580) and math.isclose(wide.K[0, 0], 620) and wide.K[1, 2] == 260
    assert math.isclose(wide.K[0, 2], 500 + 2 * (150 - 160))
    np.testing.assert_allclose(framed(camera, 640, 480).K, camera.resized(640, 480).K)


def test_a_turntable_goes_around_and_looks_at_its_centre() -> None:
    center, up = np.array([1.0, -2.0, 0.5]), np.array([0.0, -3.0, 0.0])
    path = turntable(center, up, 2.0, 0.7, 24, seconds=6.0)
    assert path.closed and math.isclose(path.duration, 6.0) and len(path.sample(10, 80, 60)) == 60
    for camera in path.sample(10, 80, 60):
        out = camera.center - center
        assert math.isclose(-out[1], 0.7, abs_tol=1e-9) and math.isclose(math.hypot(out[0], out[2]), 2.0, rel_tol=1e-3)
        pixel = camera.K @ (camera.viewmat[:3, :3] @ center + camera.viewmat[:3, 3])
        np.testing.assert_allclose(pixel[:2] / pixel[2], [40, 30], atol=0.1)
        assert camera.viewmat[1, :3] @ up < 0   # upright: the picture's y points down
    angles = np.unwrap([math.atan2(c.center[2] - 0.5, c.center[0] - 1.0) for c in path.sample(10, 80, 60)])
    assert abs(abs(angles[-1] - angles[0]) - 2 * math.pi * 59 / 60) < 1e-3
    for bad in (dict(radius=0.0), dict(up=np.zeros(3)), dict(frames=2), dict(center=np.full(3, np.nan)), dict(height=math.inf)):
        with pytest.raises(SceneError):
            turntable(**{**dict(center=center, up=up, radius=1.0, height=0.0, frames=8), **bad})


def test_looking_straight_down_is_an_orientation() -> None:
    quat = looking(np.array([0.0, 0, -2]), np.array([0.0, 0, 1]))
    np.testing.assert_allclose(splines.rotation_of(quat[None])[0][:, 2], [0, 0, -1], atol=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_matrices_and_quaternions_are_each_others_inverse(seed: int) -> None:
    q = np.random.default_rng(seed).normal(size=4)
    q = np.where(np.random.default_rng(seed + 1).random(4) < 0.3, 0.0, q) + np.array([0, 0, 0, 1e-3])
    q = q / np.linalg.norm(q)
    assert away(splines.quat_of(splines.rotation_of(q[None])[0]), q)[0] < 1e-7


# ---------------------------------------------------------------- files


def sample_path() -> CameraPath:
    keys = (key((0, 1, 2), (1, 2, 3, 4), 0.0, 40.0), key((3, 1, 2), (1, 0, 3, 4), 1.5, 60.0, Lens(1.1, 0.01, -0.02)))
    return CameraPath(keys, True, False, 1.5, 0.2)


def test_a_file_brings_the_path_back(tmp_path: Path) -> None:
    file = tmp_path / "Weg ä.json"
    save_path(file, sample_path())
    again = load_path(file)
    assert to_dict(again) == to_dict(from_dict(json.loads(json.dumps(to_dict(sample_path()))), "x"))
    np.testing.assert_allclose(again.at([0.3, 1.7]).positions, sample_path().at([0.3, 1.7]).positions, rtol=1e-12)
    assert (again.closed, again.constant_speed, again.speed, again.near) == (True, False, 1.5, 0.2)
    assert again.keys[0].lens is None and again.keys[1].lens == Lens(1.1, 0.01, -0.02)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(("change", "says"), [
    (lambda d: d.update(format="x"), "no camera path"),
    (lambda d: d.update(version=2), "version 2"),
    (lambda d: d.pop("keys"), "'keys' is missing"),
    (lambda d: d.update(keys=3), "damaged"),
    (lambda d: d.update(closed="yes"), "closed is not true or false"),
    (lambda d: d.update(speed=0), "speed"),
    (lambda d: d.update(near=-1), "near is -1"),
    (lambda d: d["keys"][0].update(position=[1, 2]), "position of key 1 is not 3 finite numbers"),
    (lambda d: d["keys"][1].update(position=[1, 2, math.nan]), "position of key 2"),
    (lambda d: d["keys"][1].update(quaternion_wxyz=[0, 0, 0, 0]), "key 2 is zero"),
    (lambda d: d["keys"][1].update(time=-1), "not after key 1"),
    (lambda d: d["keys"][0].update(fov_y_degrees=180), "170"),
    (lambda d: d["keys"][1].update(lens={}), "pixel_aspect"),
    (lambda d: d["keys"].append("key"), "damaged")])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, change, says: str) -> None:
    file = tmp_path / "path.json"
    content = json.loads(json.dumps(to_dict(sample_path())))
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(SceneError, match=says) as caught:
        load_path(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [
    ('{"frames": []}', "is no camera path"), ("{", "is not valid JSON"),
    (json.dumps({"format": "splatscope camera path", "version": 2}), "of version 2")])
def test_only_a_camera_path_is_overwritten_by_one(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "transforms.json"
    file.write_text(text)
    with pytest.raises(SceneError, match=f"{says}.*, so it is not overwritten; choose another name, or remove it"):
        save_path(file, sample_path())
    assert file.read_text() == text
    file.unlink()
    for path in (sample_path(), CameraPath((key((0, 0, 0)),))):
        save_path(file, path)
        assert len(load_path(file).keys) == len(path.keys)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="cannot be read"):
        load_path(tmp_path / "nowhere.json")
    (tmp_path / "x.json").write_bytes(b"\xff{")
    with pytest.raises(SceneError, match="not valid JSON"):
        load_path(tmp_path / "x.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(SceneError, match="no camera path"):
        load_path(tmp_path / "list.json")
    with pytest.raises(SceneError, match="cannot be written"):
        save_path(tmp_path / "x.json" / "y.json", sample_path())
