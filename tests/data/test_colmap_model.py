"""The strict reader of COLMAP's files: equal to pycolmap where that is right, one sentence where a file is not."""

from __future__ import annotations

import struct
import time

import numpy as np
import pycolmap
import pytest

from app.data.colmap_model import count_poses, model_files, read_cameras, read_points, read_poses, used_lenses
from app.data.scene import SceneError
from tests.data.synthetic import OPENCV, PINHOLE, write_model
from tests.realdata import real_data

MODELS = ["scenes/banana/sparse/0", "scenes/fountain/sparse/0", "scenes/kermit/sparse/0", "scenes/fox_colmap/sparse/0",
          "odd/colmap_rig_synth/sparse/0", "odd/colmap_rig_synth/sparse_txt/0", "odd/kermit_odd_names/sparse/0",
          "odd/banana_two_models/sparse/0", "odd/banana_undistorted_flat/sparse", "odd/berlin_3_masks/sparse/0",
          *(f"odd/colmap_camera_models/{name}/sparse/0"
            for name in ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV"))]


@pytest.mark.parametrize("where", MODELS)
def test_equal_to_pycolmap_on_real_models(where):
    folder = real_data(*where.split("/"))
    reference = pycolmap.Reconstruction(str(folder))
    camera_file, image_file = model_files(folder)
    cameras, poses, points = read_cameras(camera_file), read_poses(image_file), read_points(folder)
    assert len(poses) == reference.num_reg_images() == count_poses(image_file) > 0
    by_name = {image.name: image for image in reference.images.values()}
    for pose in poses:
        image = by_name[pose.name]
        np.testing.assert_allclose(pose.viewmat()[:3], image.cam_from_world().matrix(), atol=1e-9)
        lens, camera = cameras[pose.camera_id], reference.cameras[image.camera_id]
        assert (lens.model, lens.width, lens.height) == (camera.model_name, camera.width, camera.height)
        np.testing.assert_array_equal(lens.params, camera.params)
    expected = {tuple(np.float32(point.xyz)) + tuple(point.color) for point in reference.points3D.values()}
    found = {tuple(xyz) + tuple(rgb) for xyz, rgb in zip(points.positions, points.colors, strict=True)}
    assert found == expected


@pytest.mark.parametrize("text", [True, False])
def test_d05_names_with_blanks_and_parentheses_survive(tmp_path, text):
    names = ["left cam/IMG (1) copy.JPG", "dépôt/字 05.png", "a  b.png"]
    write_model(tmp_path, names, text=text)
    assert [pose.name for pose in read_poses(model_files(tmp_path)[1])] == names


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("camera", [PINHOLE, OPENCV])
def test_text_and_binary_say_the_same(tmp_path, text, camera):
    positions = write_model(tmp_path, text=text, camera=camera)
    cameras, images = model_files(tmp_path)
    lens = read_cameras(cameras)[7]
    assert (lens.model, lens.params) == (camera[0], camera[2])
    points = read_points(tmp_path)
    np.testing.assert_allclose(points.positions, positions, rtol=1e-6)
    assert points.colors[3].tolist() == [3, 20, 30]
    center = -read_poses(images)[0].viewmat()[:3, :3].T @ read_poses(images)[0].viewmat()[:3, 3]
    np.testing.assert_allclose(center, [0, 0, -4], atol=1e-12)


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_every_truncation_is_refused_at_once(tmp_path, name):
    write_model(tmp_path, names=["a.png", "b.png", "c.png"], points=3)
    whole = (tmp_path / name).read_bytes()
    read = {"cameras.bin": lambda: read_cameras(tmp_path / name), "images.bin": lambda: read_poses(tmp_path / name),
            "points3D.bin": lambda: read_points(tmp_path)}[name]
    read()
    for length in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:length])
        with pytest.raises(SceneError, match=f"{name} is cut short or damaged"):
            read()


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_an_absurd_count_neither_allocates_nor_waits(tmp_path, name):
    write_model(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(struct.pack("<Q", 2**60) + data[8:])
    started = time.perf_counter()
    with pytest.raises(SceneError, match="cut short"):
        {"c": read_cameras, "i": read_poses, "p": lambda path: read_points(path.parent)}[name[0]](tmp_path / name)
    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(("name", "content", "words"), [
    ("cameras.txt", "1 PINHOLE 64\n", "line 1"),
    ("cameras.txt", "hello world\n", "CAMERA_ID MODEL"),
    ("images.txt", "# c\n1 1 0 0 0 0 0 4 7\n\n", "line 2"),
    ("images.txt", "1 0 0 0 0 0 0 4 7 a.png\n\n", "not a finite rotation"),
    ("images.txt", "1 nan 0 0 0 0 0 4 7 a.png\n\n", "not a finite rotation"),
    ("images.txt", "1 1 0 0 0 1e300 0 4 7 a.png\n\n", "a translation below 1e.15"),
    ("points3D.txt", "1 0 0 zero 1 2 3 0.1\n", "line 1"),
    ("points3D.txt", "1 0 0\n", "POINT3D_ID"),
])
def test_a_bad_line_is_named(tmp_path, name, content, words):
    write_model(tmp_path, text=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(SceneError, match=words) as caught:
        {"c": read_cameras, "i": read_poses, "p": lambda path: read_points(path.parent)}[name[0]](tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_camera_is_named(tmp_path):
    write_model(tmp_path, text=True)
    (tmp_path / "cameras.txt").write_text("3 PINHOLE 64 48 60 60 32 24\n")
    with pytest.raises(SceneError, match="no camera 7, which image 000.png refers to"):
        used_lenses(read_cameras(tmp_path / "cameras.txt"), read_poses(tmp_path / "images.txt"), tmp_path)


def test_no_points_file_or_an_empty_one_is_none(tmp_path):
    write_model(tmp_path, points=0)
    assert read_points(tmp_path) is None
    (tmp_path / "points3D.bin").unlink()
    assert read_points(tmp_path) is None
