"""Every camera model becomes a pinhole, or one sentence (D01)."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pycolmap
import pytest
from PIL import Image

from app.data.lens import Lens, check_lens, pinhole_matrix, rectified, undistort
from app.data.open import open_scene
from app.data.scene import SceneError
from tests.data.synthetic import PINHOLE, colmap_scene, picture, write_model

MODELS = [name for name in pycolmap.CameraModelId.__members__ if name not in ("INVALID", "EQUIRECTANGULAR")]


def lens_of(model: str, width: int = 64, height: int = 48) -> Lens:
    """A mildly distorted lens of the model, focal length 60 px."""
    camera = pycolmap.Camera.create_from_model_name(1, model, 60.0, width, height)
    params = camera.params.copy()
    for index in camera.extra_params_idxs():
        params[index] = 0.02
    if model in ("FOV", "EUCM"):
        params[list(camera.extra_params_idxs())] = (0.5,) if model == "FOV" else (0.5, 1.0)
    return Lens(model, width, height, tuple(params), f"camera 1 ({model})")


@pytest.mark.parametrize("model", MODELS)
def test_d01_every_model_is_rectified_and_its_pixels_land_where_its_camera_says(model):
    """A bright spot at a 3D point's distorted place is found at K X/Z of the rectified pinhole."""
    lens = lens_of(model)
    check_lens(lens)
    straight = rectified(lens)
    assert straight.model == "PINHOLE"
    camera = pycolmap.Camera(model=model, width=64, height=48, params=list(lens.params))
    point = np.array([[0.11, -0.07, 1.0]])
    u, v = camera.img_from_cam(point)[0]
    y, x = np.mgrid[0:48, 0:64] + 0.5
    spot = 250.0 * np.exp(-((x - u) ** 2 + (y - v) ** 2) / 8.0)
    pixels = np.repeat(spot[..., None], 3, axis=2).astype(np.uint8)
    image = undistort(lens, pixels)
    assert image.shape == (straight.height, straight.width, 3) and image.max() > 150
    weights = image[..., 0].astype(float)
    y, x = np.mgrid[0:straight.height, 0:straight.width] + 0.5
    found = np.array([(weights * x).sum(), (weights * y).sum()]) / weights.sum()
    K = pinhole_matrix(straight)
    expected = (K @ point[0])[:2]
    assert np.abs(found - expected).max() < 0.25


@pytest.mark.parametrize("model", MODELS)
def test_d01_a_scene_of_every_model_loads_and_says_so(tmp_path, model):
    lens = lens_of(model)
    colmap_scene(tmp_path, camera=(model, 0, lens.params), text=True)
    scene = open_scene(tmp_path)
    assert scene.camera_models == {model: 10}
    pixels = scene.views[0].load()
    camera = scene.views[0].camera
    assert pixels.shape == (camera.height, camera.width, 3) and pixels.std() > 10
    said = any("undistorted in memory" in text and model in text for text in scene.warnings)
    assert said == (model not in ("PINHOLE", "SIMPLE_PINHOLE"))


def test_d01_equirectangular_is_one_sentence_with_model_file_and_remedy(tmp_path):
    colmap_scene(tmp_path, camera=("EQUIRECTANGULAR", 0, (64.0, 48.0)), text=True)
    with pytest.raises(SceneError, match=r"camera 7 in .*cameras\.txt uses .* EQUIRECTANGULAR.*cut the panoramas"):
        open_scene(tmp_path)


@pytest.mark.parametrize(("text", "camera", "word"), [
    (True, ("HYPERBOLIC", 0, (1.0,)), "HYPERBOLIC"), (False, ("?", 99, (1.0,)), "number 99")])
def test_d01_an_unknown_model_is_one_sentence(tmp_path, text, camera, word):
    colmap_scene(tmp_path, camera=camera, text=text)
    with pytest.raises(SceneError, match=f"cameras.* uses the camera model {word}, which pycolmap .* image_undistorter"):
        open_scene(tmp_path)


@pytest.mark.parametrize(("params", "word"), [
    ((60.0, 60.0, 32.0), "3 parameters where PINHOLE needs 4"), ((float("nan"), 60.0, 32.0, 24.0), "finite"),
    ((-60.0, 60.0, 32.0, 24.0), "focal length")])
def test_impossible_parameters_are_refused(params, word):
    with pytest.raises(SceneError, match=word):
        check_lens(Lens("PINHOLE", 64, 48, params, "camera 1 in x"))


def test_rgba_is_undistorted_by_colour_and_alpha_without_dark_or_foreign_fringes():
    """D01: what lies under alpha 0 never reaches a visible pixel."""
    lens = lens_of("OPENCV")
    pixels = np.zeros((48, 64, 4), np.uint8)
    pixels[:, :32] = (200, 100, 50, 255)
    pixels[:, 32:, :3] = (0, 255, 0)  # invisible
    image = undistort(lens, pixels)
    visible = image[..., 3] > 16
    assert 0.3 < visible.mean() < 0.7
    assert np.abs(image[visible][:, :3].astype(int) - (200, 100, 50)).max() <= 8
    opaque = image[..., 3] == 255
    assert np.abs(image[opaque][:, :3].astype(int) - (200, 100, 50)).max() <= 1


def test_rgba_scene_with_distortion_loads(tmp_path):
    colmap_scene(tmp_path, channels=4, camera=("OPENCV", 4, lens_of("OPENCV").params))
    view = open_scene(tmp_path).views[0]
    assert view.load().shape == (view.camera.height, view.camera.width, 4)


def test_rescaling_a_lens_scales_its_rectified_camera():
    whole, half = rectified(lens_of("OPENCV")), rectified(lens_of("OPENCV").rescaled(32, 24))
    assert abs(half.width - whole.width / 2) <= 1 and half.params[0] == pytest.approx(whole.params[0] / 2)


@pytest.mark.parametrize(("model", "resolution", "divisor"), [
    ("OPENCV", 2, 1), ("OPENCV", 4, 2), ("SIMPLE_RADIAL", 8, 4), ("OPENCV_FISHEYE", 8, 4), ("PINHOLE", 8, 1)])
def test_large_factors_undistort_at_twice_the_final_size(tmp_path, model, resolution, divisor):
    """The cheap way shows the same picture as undistorting whole: a spot lies where the view's own camera says."""
    lens = lens_of(model, 640, 480)
    lens = Lens(model, 640, 480, tuple(pycolmap.Camera(
        model=model, width=640, height=480, params=[600.0 if p == 60.0 else p for p in lens.params]).params))
    colmap_scene(tmp_path, ["a.png"], size=(640, 480), camera=(model, 0, lens.params), text=True)
    point = np.array([[0.11, -0.07, 1.0]])
    u, v = pycolmap.Camera(model=model, width=640, height=480, params=list(lens.params)).img_from_cam(point)[0]
    y, x = np.mgrid[0:480, 0:640] + 0.5
    spot = 250.0 * np.exp(-((x - u) ** 2 + (y - v) ** 2) / 128.0)
    Image.fromarray(np.repeat(spot[..., None], 3, axis=2).astype(np.uint8)).save(tmp_path / "images" / "a.png")
    view = open_scene(tmp_path, resolution=resolution).views[0]
    straight = rectified(lens)
    assert (view.camera.width, view.camera.height) == (round(straight.width / resolution), round(straight.height / resolution))
    assert view.load.args[1].lens.width == 640 // divisor
    weights = view.load()[..., 0].astype(float)
    y, x = np.mgrid[0:view.camera.height, 0:view.camera.width] + 0.5
    found = np.array([(weights * x).sum(), (weights * y).sum()]) / weights.sum()
    assert np.abs(found - (view.camera.K @ point[0])[:2]).max() < 0.05


def test_an_anisotropic_rescale_of_a_pinhole_keeps_both_focal_lengths():
    lens = Lens("SIMPLE_PINHOLE", 64, 48, (60.0, 32.0, 24.0)).rescaled(32, 48)
    np.testing.assert_allclose(pinhole_matrix(lens), [[30, 0, 16], [0, 60, 24], [0, 0, 1]])


def test_pinhole_pixels_are_untouched():
    pixels = picture()
    assert undistort(Lens("PINHOLE", 64, 48, PINHOLE[2]), pixels) is pixels


def test_d02_an_undistorted_model_beside_a_distorted_one_is_offered(tmp_path):
    colmap_scene(tmp_path, camera=("OPENCV", 4, lens_of("OPENCV").params))
    colmap_scene(tmp_path / "dense", model="sparse")
    offers = [text for text in open_scene(tmp_path).warnings if "PINHOLE model lies in dense/sparse" in text]
    assert len(offers) == 1 and str(tmp_path / "dense") in offers[0]
    assert open_scene(tmp_path / "dense").camera_models == {"PINHOLE": 10}


def test_d02_a_flat_pinhole_model_is_offered_and_opens(tmp_path):
    colmap_scene(tmp_path, camera=("OPENCV", 4, lens_of("OPENCV").params))
    write_model(tmp_path / "sparse")
    scene = open_scene(tmp_path)
    assert scene.camera_models == {"OPENCV": 10}
    assert any("PINHOLE model lies in sparse;" in text for text in scene.warnings)
    assert open_scene(tmp_path / "sparse").camera_models == {"PINHOLE": 10}


def test_d02_nothing_is_offered_without_distortion(tmp_path):
    colmap_scene(tmp_path)
    colmap_scene(tmp_path / "dense", model="sparse")
    assert not any("dense" in text for text in open_scene(tmp_path).warnings)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM is a matter of POSIX")
def test_a_process_that_is_told_to_end_says_nothing():
    """pycolmap's logging library would print a C++ stack."""
    code = ("import os, signal, threading; from app.data.lens import model_name\n"
            "helper = threading.Thread(target=model_name, args=(1,)); helper.start(); helper.join()\n"
            "os.kill(os.getpid(), signal.SIGTERM)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")
