"""COLMAP scenes: which model, which images, which size, and what is said aloud."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from app.data.open import open_scene, recognise
from app.data.scene import SceneError
from tests.data.synthetic import NAMES, PINHOLE, H, W, colmap_scene, picture, write_images, write_model


def said(scene, *words: str) -> bool:
    return any(all(word in text for word in words) for text in scene.warnings)


@pytest.mark.parametrize("model", ["sparse/0", "sparse", "sparse/3", "colmap/sparse/0", "distorted/sparse/0"])
@pytest.mark.parametrize("text", [True, False])
def test_layouts(tmp_path, model, text):
    scene = open_scene(colmap_scene(tmp_path, model=model, text=text))
    assert [view.name for view in scene.views] == list(NAMES)
    assert scene.kind == "colmap" and scene.points is not None and len(scene.points.positions) == 50
    camera = scene.views[0].camera
    np.testing.assert_allclose(camera.K, [[60, 0, 33], [0, 61, 22], [0, 0, 1]])
    np.testing.assert_allclose(camera.center, [0, 0, -4], atol=1e-12)
    np.testing.assert_array_equal(scene.views[3].load(), picture(seed=3))


def test_the_model_folder_itself_opens(tmp_path):
    colmap_scene(tmp_path)
    assert len(open_scene(tmp_path / "sparse" / "0").views) == 10


def test_d03_missing_images_are_counted_and_the_first_five_named(tmp_path):
    colmap_scene(tmp_path)
    for name in NAMES[:7]:
        (tmp_path / "images" / name).unlink()
    scene = open_scene(tmp_path)
    assert len(scene.views) == 3 and scene.missing == list(NAMES[:7])
    assert said(scene, "7 of 10 listed images are missing: 000.png, 001.png, 002.png, 003.png, 004.png and 2 more")


def test_d03_no_image_at_all_is_an_error(tmp_path):
    colmap_scene(tmp_path)
    shutil.rmtree(tmp_path / "images")
    with pytest.raises(SceneError, match=r"none of the 10 images .* \(000\.png.* and 5 more\).*--images"):
        open_scene(tmp_path)


def test_unreadable_images_are_left_out_aloud(tmp_path):
    colmap_scene(tmp_path)
    (tmp_path / "images" / "004.png").write_bytes(b"broken")
    scene = open_scene(tmp_path)
    assert len(scene.views) == 9 and said(scene, "1 of 10 images are unreadable: 004.png")


@pytest.mark.parametrize("text", [True, False])
def test_d04_the_model_with_most_registered_images_is_used(tmp_path, text):
    colmap_scene(tmp_path, model="sparse/10", text=text)
    write_model(tmp_path / "sparse" / "0", NAMES[:3])
    write_model(tmp_path / "sparse" / "2", NAMES[:5])
    write_images(tmp_path / "images", ["extra.png"])
    scene = open_scene(tmp_path)
    assert len(scene.views) == 10
    assert said(scene, "3 models: sparse/10 with the most registered images is used (0 has 3, 2 has 5)")
    assert said(scene, "Registered 10 of 11 images.")


def test_d06_any_path_works(tmp_path):
    names = ["left cam (1)/字 ä.png", "b é.JPG", "c.png"]
    root = colmap_scene(tmp_path / "a folder named データ ä é", names)
    scene = open_scene(root)
    assert sorted(view.name for view in scene.views) == sorted(names)
    assert all(view.load().shape == (H, W, 3) for view in scene.views)


def test_names_differing_in_case_extension_or_accents_resolve(tmp_path):
    colmap_scene(tmp_path, ["IMG_1.JPG", "cafe\u0301.png", "sub/c.png"])
    images = tmp_path / "images"
    (images / "IMG_1.JPG").rename(images / "img_1.jpg")
    (images / "cafe\u0301.png").rename(images / "caf\u00e9.png")
    (images / "sub").rename(images / "SUB")
    assert len(open_scene(tmp_path).views) == 3


def test_d12_without_images_2_images_are_downscaled_in_memory(tmp_path):
    colmap_scene(tmp_path)
    view = open_scene(tmp_path, resolution=2).views[1]
    assert view.load().shape == (24, 32, 3)
    np.testing.assert_allclose(view.camera.K, [[30, 0, 16.5], [0, 30.5, 11], [0, 0, 1]])
    expected = picture(seed=1).reshape(24, 2, 32, 2, 3).mean(axis=(1, 3))
    assert np.abs(view.load() - expected).max() <= 0.51


def test_d12_a_complete_images_2_is_used_for_r_2_and_an_incomplete_one_is_not(tmp_path):
    colmap_scene(tmp_path)
    write_images(tmp_path / "images_2", NAMES, 32, 24)
    scene = open_scene(tmp_path, resolution=2)
    assert said(scene, "prepared images_2") and not said(scene, "intrinsics are rescaled")
    assert scene.views[0].load().shape == (24, 32, 3)
    np.testing.assert_array_equal(scene.views[0].load(), picture(32, 24, seed=0))
    (tmp_path / "images_2" / NAMES[4]).unlink()
    scene = open_scene(tmp_path, resolution=2)
    assert not said(scene, "prepared") and len(scene.views) == 10 and scene.views[0].camera.width == 32


def test_only_images_4_is_used_and_said(tmp_path):
    colmap_scene(tmp_path)
    shutil.rmtree(tmp_path / "images")
    write_images(tmp_path / "images_4", NAMES, 16, 12)
    scene = open_scene(tmp_path)
    assert said(scene, "images_4 is used") and said(scene, "16x12 instead of 64x48")
    np.testing.assert_allclose(scene.views[0].camera.K, [[15, 0, 8.25], [0, 15.25, 5.5], [0, 0, 1]])


def test_the_image_folder_can_be_named(tmp_path):
    colmap_scene(tmp_path)
    (tmp_path / "images").rename(tmp_path / "photos")
    assert len(open_scene(tmp_path, images="photos").views) == 10
    with pytest.raises(SceneError, match="photo is not a folder; choose one of photos, sparse"):
        open_scene(tmp_path, images="photo")


@pytest.mark.parametrize(("resolution", "long_side", "size"), [
    (1, 0, (64, 48)), (2, 0, (32, 24)), (4, 0, (16, 12)), (8, 0, (8, 6)), (-1, 0, (64, 48)), (20, 0, (20, 15)),
    (1000, 0, (64, 48)), (-1, 30, (30, 22)), (2, 16, (16, 12)), (-1, 400, (64, 48))])
def test_resolution(tmp_path, resolution, long_side, size):
    view = open_scene(colmap_scene(tmp_path), resolution=resolution, long_side=long_side).views[0]
    assert (view.camera.width, view.camera.height) == size
    assert view.load().shape == (size[1], size[0], 3)
    np.testing.assert_allclose(view.camera.K[0], [60 * size[0] / W, 0, 33 * size[0] / W])
    np.testing.assert_allclose(view.camera.K[1], [0, 61 * size[1] / H, 22 * size[1] / H])


def test_long_side_of_portrait_images(tmp_path):
    camera = open_scene(colmap_scene(tmp_path, size=(48, 64)), long_side=32).views[0].camera
    assert (camera.width, camera.height) == (24, 32)


@pytest.mark.parametrize("resolution", [0, 3, 5, -2])
def test_a_meaningless_resolution_is_refused(tmp_path, resolution):
    with pytest.raises(SceneError, match=f"-r {resolution} means nothing"):
        open_scene(colmap_scene(tmp_path), resolution=resolution)


def test_wide_images_are_capped_at_1600_and_that_is_said(tmp_path):
    colmap_scene(tmp_path, ["a.png"], size=(2000, 100))
    scene = open_scene(tmp_path)
    assert (scene.views[0].camera.width, scene.views[0].camera.height) == (1600, 80)
    assert said(scene, "2000 px wide", "1600", "-r 1")
    assert open_scene(tmp_path, resolution=1).views[0].camera.width == 2000


def test_d11_another_aspect_is_an_error_and_rounding_is_not(tmp_path):
    colmap_scene(tmp_path / "a", image_size=(48, 64))
    with pytest.raises(SceneError, match=r"000\.png is 48x64 but camera 7 .* says 64x48, another aspect ratio"):
        open_scene(tmp_path / "a")
    colmap_scene(tmp_path / "b", size=(65, 49), image_size=(32, 24))
    scene = open_scene(tmp_path / "b")
    assert scene.views[0].camera.width == 32 and said(scene, "10 images differ in size")


def test_d11_a_turned_photograph_gets_a_hint(tmp_path):
    colmap_scene(tmp_path, ["a.jpg"], size=(48, 64), image_size=(64, 48))
    image = Image.open(tmp_path / "images" / "a.jpg")
    exif = image.getexif()
    exif[0x0112] = 6
    image.copy().save(tmp_path / "images" / "a.jpg", exif=exif)
    with pytest.raises(SceneError, match="EXIF orientation is not applied"):
        open_scene(tmp_path)


def test_d16_no_points_is_said_and_a_read_only_folder_opens(tmp_path):
    root = colmap_scene(tmp_path / "scene", points=0)
    before = sorted(path for path in root.rglob("*"))
    for path in [*before, root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        scene = open_scene(root)
        scene.views[0].load()
    finally:
        for path in [root, *before]:
            path.chmod(0o755)
    assert scene.points is None and not said(scene, "points")   # whoever trains says it
    assert [warning for warning in recognise(root).warnings if "no 3D points" in warning and "random" in warning]
    assert sorted(path for path in root.rglob("*")) == before, "opening a scene writes nothing"


def test_points_that_are_not_finite_are_left_out_aloud(tmp_path):
    colmap_scene(tmp_path, text=True)
    with open(tmp_path / "sparse/0/points3D.txt", "a") as stream:
        stream.write("90 nan 0 0 1 2 3 0.5\n91 inf 0 0 1 2 3 0.5\n")
    scene = open_scene(tmp_path)
    assert scene.points is not None and len(scene.points.positions) == 50
    assert said(scene, "2 of 52 3D points are not finite")


def test_d17_opening_decodes_nothing_and_the_cache_is_bounded(tmp_path, monkeypatch):
    import app.data.views as views

    colmap_scene(tmp_path)
    decoded, original = [], views.decode
    monkeypatch.setattr(views, "decode", lambda path: decoded.append(path.name) or original(path))
    scene = open_scene(tmp_path, cache_bytes=3 * H * W * 3)
    assert decoded == []
    for _ in range(2):
        for view in scene.views[:3]:
            view.load()
    assert decoded == list(NAMES[:3]), "three images fit and are decoded once"
    for view in scene.views:
        view.load()
    cache = scene.views[0].load.args[0]
    assert 0 < cache.nbytes <= 3 * H * W * 3


def test_d17_progress_is_told_and_can_cancel(tmp_path):
    colmap_scene(tmp_path)
    told: list[tuple[float, str]] = []
    open_scene(tmp_path, progress=lambda share, text: told.append((share, text)))
    assert told[0][0] == 0.0 and told[-1] == (1.0, "10 views") and sorted(told) == told

    class Cancelled(Exception):
        pass

    def cancel(share: float, text: str) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        open_scene(tmp_path, progress=cancel)


def test_d22_a_model_without_images_is_an_error(tmp_path):
    colmap_scene(tmp_path)
    write_model(tmp_path / "sparse/0", [])
    with pytest.raises(SceneError, match="no registered image"):
        open_scene(tmp_path)


def test_d07_alpha_and_its_rule_are_said(tmp_path):
    scene = open_scene(colmap_scene(tmp_path / "a", channels=4))
    assert scene.has_alpha and said(scene, "colour x alpha + background x (1 - alpha)")
    assert scene.views[0].load().shape == (H, W, 4)
    np.testing.assert_array_equal(scene.views[0].load(), picture(channels=4))
    assert not open_scene(colmap_scene(tmp_path / "b")).has_alpha


def test_a_file_that_changes_size_after_opening_is_an_error(tmp_path):
    scene = open_scene(colmap_scene(tmp_path))
    write_images(tmp_path / "images", NAMES[:1], 32, 24)
    with pytest.raises(SceneError, match="changed while it was in use"):
        scene.views[0].load()


def test_masks_are_not_used_and_that_is_said(tmp_path):
    colmap_scene(tmp_path)
    (tmp_path / "masks").mkdir()
    assert said(open_scene(tmp_path), "masks folder is not used")


def test_a_link_left_as_a_text_file_is_followed(tmp_path):
    colmap_scene(tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "sparse", tmp_path / "b" / "sparse")
    (tmp_path / "b" / "images").write_text("../c\n")
    (tmp_path / "c").write_text("a/images")
    scene = open_scene(tmp_path / "b")
    assert len(scene.views) == 10 and said(scene, "images is a text file where a link to")
    (tmp_path / "c").write_text("c")  # a link to itself ends
    with pytest.raises(SceneError, match="none of the 10 images"):
        open_scene(tmp_path / "b")


@pytest.mark.parametrize(("count", "test"), [(10, [0, 8]), (2, [0]), (1, [])])
def test_every_eighth_view_by_name_is_held_out(tmp_path, count, test):
    names = list(NAMES[:count])
    colmap_scene(tmp_path, names[::-1])  # the file's order does not matter
    scene = open_scene(tmp_path, eval_every=8)
    assert [view.name for view in scene.test] == [names[index] for index in test]
    assert len(scene.train) == count - len(test) >= 1
    assert said(scene, "No view is held out") == (count == 1)
    assert open_scene(tmp_path).test == []


def test_recognise_agrees_with_open_scene(tmp_path):
    colmap_scene(tmp_path, camera=PINHOLE)
    (tmp_path / "images" / NAMES[0]).unlink()
    found, scene = recognise(tmp_path), open_scene(tmp_path)
    assert (found.kind, found.views, found.listed, found.points) == ("colmap", len(scene.views), 10, 50)
    assert found.missing == scene.missing == [NAMES[0]]
    assert (found.width, found.height, found.camera_models) == (W, H, {"PINHOLE": 9})
