"""transforms.json scenes: instant-ngp, nerfstudio, Blender."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from app.data.open import open_scene, recognise
from app.data.ply import write_points
from app.data.scene import PointCloud, SceneError
from tests.data.synthetic import NAMES, H, W, colmap_scene, frames, picture, transforms_scene, write_images
from tests.data.test_colmap import said


def edit(root, **keys):
    """Change keys of the scene's JSON; None removes."""
    file = root / "transforms.json"
    meta = {**json.loads(file.read_text()), **keys}
    file.write_text(json.dumps({key: value for key, value in meta.items() if value is not None}))
    return root


def edit_frame(root, index, **keys):
    meta = json.loads((root / "transforms.json").read_text())
    return edit(root, frames=[{**frame, **(keys if row == index else {})} for row, frame in enumerate(meta["frames"])])


def test_the_same_cameras_as_the_colmap_scene(tmp_path):
    """OpenGL axes become OpenCV axes."""
    colmap, transforms = open_scene(colmap_scene(tmp_path / "a")), open_scene(transforms_scene(tmp_path / "b"))
    assert transforms.kind == "transforms"
    for ours, theirs in zip(transforms.views, colmap.views, strict=True):
        assert ours.name == f"images/{theirs.name}"
        np.testing.assert_allclose(ours.camera.viewmat, theirs.camera.viewmat, atol=1e-12)
        np.testing.assert_allclose(ours.camera.K, theirs.camera.K)
        np.testing.assert_array_equal(ours.load(), theirs.load())


@pytest.mark.parametrize("path", ["./images/a", "images/a.png", "a.PNG", "images\\a.png", "images/A.Png", "images/a.jpg",
                                  "/somewhere/else/images/a.png", "C:\\data\\images\\a.png"])
def test_d14_paths_resolve(tmp_path, path):
    scene = open_scene(transforms_scene(tmp_path, ["a.png"], paths=[path]))
    np.testing.assert_array_equal(scene.views[0].load(), picture())


def test_d14_every_frame_missing_is_an_error(tmp_path):
    transforms_scene(tmp_path, paths=["gone/a", "gone/b"])
    with pytest.raises(SceneError, match=r"none of the 2 images .*gone/a, gone/b"):
        open_scene(tmp_path)


def test_d03_missing_frames_are_counted_and_named(tmp_path):
    transforms_scene(tmp_path, ["a.png"], paths=["images/a.png", *(f"images/x{i}" for i in range(7))])
    scene = open_scene(tmp_path)
    assert len(scene.views) == 1 and len(scene.missing) == 7
    assert said(scene, "7 of 8 listed images are missing: images/x0, ", "images/x4 and 2 more")


def test_d11_the_pair_in_the_json_decides(tmp_path):
    half = open_scene(transforms_scene(tmp_path / "a", w=2 * W, h=2 * H))
    np.testing.assert_allclose(half.views[0].camera.K, [[30, 0, 16.5], [0, 30.5, 11], [0, 0, 1]])
    assert said(half, "64x48 instead of 128x96")
    for size in ({"w": W, "h": W}, {"w": 2 * W, "h": H}):
        with pytest.raises(SceneError, match="another aspect ratio"):
            open_scene(transforms_scene(tmp_path / "b", **size))


def test_without_w_and_h_the_image_decides(tmp_path):
    camera = open_scene(transforms_scene(tmp_path, w=None, h=None, cx=None, cy=None)).views[0].camera
    np.testing.assert_allclose(camera.K, [[60, 0, 32], [0, 61, 24], [0, 0, 1]])


@pytest.mark.parametrize(("keys", "fx", "fy"), [
    ({"camera_angle_x": 0.7}, 32 / math.tan(0.35), 32 / math.tan(0.35)),
    ({"camera_angle_y": 0.7}, 24 / math.tan(0.35), 24 / math.tan(0.35)),
    ({"fl_x": 60.0, "camera_angle_y": 0.7}, 60.0, 24 / math.tan(0.35)),
    ({"fl_x": 60.0, "camera_angle_x": 0.7, "camera_angle_y": 0.7}, 60.0, 24 / math.tan(0.35)),
    ({"fl_x": 60.0}, 60.0, 60.0), ({"fl_y": 61.0}, 61.0, 61.0)])
def test_focal_lengths(tmp_path, keys, fx, fy):
    scene = open_scene(transforms_scene(tmp_path, **{"fl_x": None, "fl_y": None, **keys}))
    np.testing.assert_allclose(np.diag(scene.views[0].camera.K), [fx, fy, 1.0])


def test_per_frame_intrinsics_win(tmp_path):
    edit_frame(transforms_scene(tmp_path), 3, fl_x=80.0, cx=30.0)
    scene = open_scene(tmp_path)
    assert [view.camera.K[0, 0] for view in scene.views] == [60, 60, 60, 80, *[60] * 6]
    assert scene.views[3].camera.K[0, 2] == 30.0


@pytest.mark.parametrize(("keys", "model"), [
    ({}, "PINHOLE"), ({"k1": 0.05, "k2": 0.01, "p1": 0.001, "p2": -0.002}, "OPENCV"), ({"k1": 0.0, "k2": 0.0}, "PINHOLE"),
    ({"k1": 0.05, "k3": 0.01}, "FULL_OPENCV"), ({"k1": 0.02, "camera_model": "OPENCV_FISHEYE"}, "OPENCV_FISHEYE"),
    ({"k1": 0.02, "is_fisheye": True}, "OPENCV_FISHEYE"), ({"camera_model": "SIMPLE_PINHOLE"}, "PINHOLE")])
def test_distortion(tmp_path, keys, model):
    scene = open_scene(transforms_scene(tmp_path, **keys))
    assert scene.camera_models == {model: 10}
    camera = scene.views[0].camera
    assert scene.views[0].load().shape == (camera.height, camera.width, 3)
    assert said(scene, "undistorted in memory") == (model != "PINHOLE")


@pytest.mark.parametrize(("keys", "words"), [
    ({"camera_model": "EQUIRECTANGULAR"}, "images/000.png in .*transforms.json uses the camera model EQUIRECTANGULAR"),
    ({"camera_model": "FISHEYE624"}, "FISHEYE624, which is not read"), ({"ftheta_p0": 0.1}, "f-theta"),
    ({"k4": 0.1}, "k4"), ({"fl_x": None, "fl_y": None}, "neither fl_x nor camera_angle_x"),
    ({"fl_x": "wide"}, "fl_x of images/000.png in .* is 'wide', not a number"), ({"cx": float("nan")}, "not a number"),
    ({"fl_x": None, "fl_y": None, "camera_angle_x": 45.0}, "radians"), ({"w": 0, "h": 0}, "0x0"),
    ({"frames": []}, 'no list "frames"'), ({"frames": [{}]}, "frame 0 .* has no file_path"),
    ({"frames": [{"file_path": "images/000.png"}]}, "frame 0 .* has no transform_matrix"),
    ({"frames": [{"file_path": "images/000.png", "transform_matrix": [[1, 2], [3, 4]]}]}, "4x4"),
    ({"frames": [{"file_path": "images/000.png", "transform_matrix": np.diag([1e300, 1, 1, 1]).tolist()}]}, "below 1e.15"),
    ({"frames": [{"file_path": "images/000.png", "transform_matrix": np.diag([1, 1, 0, 1]).tolist()}]}, "singular"),
    ({"frames": [{"file_path": "images/000.png", "transform_matrix": np.diag([-1, 1, 1, 1]).tolist()}]}, "mirrored"),
])
def test_what_cannot_be_used_is_one_sentence(tmp_path, keys, words):
    edit(transforms_scene(tmp_path), **keys)
    with pytest.raises(SceneError, match=words) as caught:
        open_scene(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ['{"frames": [', "[]", "", "\xff", "[" * 100_000])
def test_bad_json_is_one_sentence(tmp_path, content):
    transforms_scene(tmp_path)
    (tmp_path / "transforms.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(SceneError, match=r"transforms\.json"):
        open_scene(tmp_path)


def test_a_scaled_matrix_is_made_a_rotation_aloud(tmp_path):
    transforms_scene(tmp_path)
    meta = json.loads((tmp_path / "transforms.json").read_text())
    plain = [view.camera.viewmat for view in open_scene(tmp_path).views]
    for frame in meta["frames"][:4]:
        matrix = np.array(frame["transform_matrix"])
        matrix[:3, :3] *= 2.5
        frame["transform_matrix"] = matrix.tolist()
    scene = open_scene(edit(tmp_path, frames=meta["frames"]))
    np.testing.assert_allclose([view.camera.viewmat for view in scene.views], plain, atol=1e-9)
    assert said(scene, "4 transform matrices are not pure rotations")


def test_initial_points_by_ply_file_path_or_beside_the_json(tmp_path):
    cloud = PointCloud(np.eye(3, dtype=np.float32), np.full((3, 3), 7, np.uint8))
    transforms_scene(tmp_path, ply_file_path="pts/cloud.ply")
    scene = open_scene(tmp_path)
    assert scene.points is None and said(scene, "pts/cloud.ply, which is not there") and not said(scene, "random")
    write_points(tmp_path / "pts" / "cloud.ply", cloud)
    points = open_scene(tmp_path).points
    assert points is not None
    np.testing.assert_array_equal(points.positions, cloud.positions)
    np.testing.assert_array_equal(points.colors, cloud.colors)
    edit(tmp_path, ply_file_path=None)
    assert open_scene(tmp_path).points is None and not said(open_scene(tmp_path), "points")   # whoever trains says it
    assert any("no 3D points" in warning for warning in recognise(tmp_path).warnings)
    write_points(tmp_path / "init.ply", cloud)
    scene = open_scene(tmp_path)
    assert scene.points is not None and said(scene, "taken from init.ply")
    write_points(tmp_path / "init.ply", PointCloud(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8)))
    assert open_scene(tmp_path).points is None


def test_D21_masks_and_depths_are_not_used_and_that_is_said(tmp_path):
    edit_frame(transforms_scene(tmp_path), 0, mask_path="m.png", depth_file_path="d.png")
    scene = open_scene(tmp_path)
    assert said(scene, "masks of 1 images are not used") and said(scene, "depth maps of 1 images are not used")


def blender(root, train=NAMES[:6], test=NAMES[6:], **keys):
    for split, names in (("train", train), ("test", test)):
        write_images(root / split, names, channels=4)
        meta = {"camera_angle_x": 0.7, **keys, "frames": frames([f"./{split}/{name[:-4]}" for name in names])}
        (root / f"transforms_{split}.json").write_text(json.dumps(meta))
    return root


def test_blender_test_file_is_the_held_out_split(tmp_path):
    scene = open_scene(blender(tmp_path), eval_every=8)
    assert [view.name for view in scene.test] == [f"test/{name[:-4]}" for name in NAMES[6:]]
    assert [view.name for view in scene.train] == [f"train/{name[:-4]}" for name in NAMES[:6]]
    assert scene.has_alpha and scene.views[0].load().shape == (H, W, 4)
    assert scene.views[0].camera.K[0, 0] == pytest.approx(32 / math.tan(0.35))
    assert open_scene(tmp_path).test == [], "without --eval all views train, as in graphdeco"


def test_blender_points_and_global_intrinsics(tmp_path):
    blender(tmp_path, w=W, h=H, fl_x=60.0, fl_y=61.0, cx=33.0, cy=22.0, ply_file_path="points.ply")
    write_points(tmp_path / "points.ply", PointCloud(np.eye(3, dtype=np.float32), np.zeros((3, 3), np.uint8)))
    scene = open_scene(tmp_path, eval_every=8)
    assert scene.points is not None and len(scene.points.positions) == 3
    np.testing.assert_allclose(scene.test[0].camera.K, [[60, 0, 33], [0, 61, 22], [0, 0, 1]])


def test_blender_train_alone_holds_out_every_eighth(tmp_path):
    blender(tmp_path, train=NAMES)
    (tmp_path / "transforms_test.json").unlink()
    assert [view.name for view in open_scene(tmp_path, eval_every=8).test] == ["train/000", "train/008"]


def test_nerfstudio_split_lists(tmp_path):
    transforms_scene(tmp_path, test_filenames=["./images/002.png"], val_filenames=["images/005.png"])
    assert [view.name for view in open_scene(tmp_path, eval_every=8).test] == ["images/002.png", "images/005.png"]


def test_the_json_file_itself_opens_and_colmap_wins_in_a_folder_with_both(tmp_path):
    transforms_scene(tmp_path)
    colmap_scene(tmp_path)
    assert open_scene(tmp_path / "transforms.json").kind == "transforms"
    assert open_scene(tmp_path).kind == "colmap"


def test_images_folder_option(tmp_path):
    transforms_scene(tmp_path)
    write_images(tmp_path / "images_2", NAMES, 32, 24)
    scene = open_scene(tmp_path, images="images_2")
    assert scene.views[0].camera.width == 32 and scene.views[0].name == "images/000.png"
    with pytest.raises(SceneError, match="is not a folder"):
        open_scene(tmp_path, images="nothing")
