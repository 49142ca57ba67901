"""Real models: reprojection (D23), pixels that agree with it, and each odd dataset."""

from __future__ import annotations

import numpy as np
import pycolmap
import pytest

from app.data.colmap import find_models
from app.data.open import open_scene, recognise
from app.data.scene import Scene
from tests.realdata import real_data

COLMAP = ["scenes/banana", "scenes/fountain", "scenes/kermit", "scenes/fox_colmap", "odd/banana_two_models",
          "odd/banana_undistorted_flat", "odd/berlin_3_masks", "odd/colmap_rig_synth", "odd/colmap_rig_synth/sparse_txt/0",
          "odd/fountain_images_half_res", "odd/kermit_odd_names",
          *(f"odd/colmap_camera_models/{name}" for name in ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV"))]


def open_odd(name: str, **named) -> Scene:
    return open_scene(real_data(*name.split("/")), **named)


def project(view, points: np.ndarray) -> np.ndarray:
    """[P,2] px by our camera."""
    camera = view.camera
    inside = points @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    return (inside @ camera.K.T)[:, :2] / inside[:, 2:]


def observations(scene: Scene, name: str):
    """For each view: (view, its 3D points [P,3], their points2D [P,2] as stored, the COLMAP camera)."""
    best = max(find_models(real_data(*name.split("/"))), key=lambda model: model.registered)
    model = pycolmap.Reconstruction(str(best.folder))
    for view in scene.views:
        image = next(image for image in model.images.values() if image.name == view.name)
        seen = [point for point in image.points2D if point.has_point3D()]
        if seen:
            yield (view, np.stack([model.points3D[point.point3D_id].xyz for point in seen]),
                   np.stack([point.xy for point in seen]), model.cameras[image.camera_id])


@pytest.mark.parametrize("resolution", [1, 2])
@pytest.mark.parametrize("name", COLMAP)
def test_d23_reprojection_is_below_2_px(name, resolution):
    """Our rectified, resized camera against COLMAP's points2D, whose distortion pycolmap removes."""
    scene, errors = open_odd(name, resolution=resolution), []
    for view, points, points2d, camera in observations(scene, name):
        rays = camera.cam_from_img(points2d)
        expected = rays @ view.camera.K[:2, :2].T + view.camera.K[:2, 2]
        errors.append(np.linalg.norm(project(view, points) - expected, axis=1))
    assert len(errors) > 0.5 * len(scene.views) and sum(map(len, errors)) > 200
    assert np.concatenate(errors).mean() * resolution < 2.0


@pytest.mark.parametrize("name", ["scenes/fox_colmap", "scenes/kermit", "scenes/banana", "odd/colmap_rig_synth"])
def test_d23_the_pixels_are_where_the_camera_says(name):
    """Colour of the loaded image at K X/Z against the original file at the distorted observation: a shift or a swapped
    axis would decorrelate them."""
    from app.data.images import decode

    scene, ours, theirs = open_odd(name, resolution=1), [], []
    for view, points, points2d, _ in list(observations(scene, name))[:6]:
        pixels, original = view.load(), decode(view.load.args[1].path)
        places = np.floor(project(view, points)).astype(int)
        sources = np.floor(points2d).astype(int)
        inside = ((places >= 2) & (places < [pixels.shape[1] - 2, pixels.shape[0] - 2])).all(axis=1)
        inside &= ((sources >= 2) & (sources < [original.shape[1] - 2, original.shape[0] - 2])).all(axis=1)
        for (x, y), (u, v) in zip(places[inside], sources[inside], strict=True):
            ours.append(pixels[y - 1:y + 2, x - 1:x + 2].mean())
            theirs.append(original[v - 1:v + 2, u - 1:u + 2].mean())
    assert len(ours) > 100
    assert np.corrcoef(ours, theirs)[0, 1] > 0.97


@pytest.mark.parametrize(("name", "views", "models", "words"), [
    ("scenes/banana", 15, {"OPENCV": 15}, "Registered 15 of 16 images"),
    ("scenes/fountain", 11, {"PINHOLE": 11}, ""),
    ("scenes/kermit", 11, {"SIMPLE_RADIAL": 11}, "undistorted in memory"),
    ("scenes/fox_colmap", 50, {"OPENCV": 50}, "undistorted in memory"),
    ("scenes/fox", 50, {"OPENCV": 50}, "17 of 67 listed images are missing: images/0005.jpg"),
    ("scenes/lego_200_rgba", 100, {"PINHOLE": 100}, "alpha"),
    ("odd/banana_nerfstudio", 15, {"OPENCV": 15}, "undistorted"),
    ("odd/banana_two_models", 15, {"OPENCV": 15}, "2 models: sparse/1 with the most registered images is used (0 has 2)"),
    ("odd/banana_undistorted_flat", 15, {"PINHOLE": 15}, ""),
    ("odd/berlin_3_masks", 3, {"SIMPLE_RADIAL": 3}, "masks folder is not used"),
    ("odd/berlin_3_masks/transforms.json", 3, {"OPENCV": 3}, "masks of 3 images are not used"),
    ("odd/brush_one_frame", 1, {"PINHOLE": 1}, "Initial points are taken from init.ply"),
    ("odd/colmap_rig_synth", 24, {"OPENCV": 24}, "undistorted"),
    ("odd/fountain_images_half_res", 11, {"PINHOLE": 11}, "384x256 instead of 768x512"),
    ("odd/kermit_odd_names", 11, {"SIMPLE_RADIAL": 11}, "undistorted"),
    ("odd/kermit_per_frame_intrinsics", 11, {"OPENCV": 11}, "undistorted"),
])
def test_each_dataset_opens_loads_and_says_what_is_odd(name, views, models, words):
    scene = open_odd(name, eval_every=8)
    assert len(scene.views) == views and scene.camera_models == models and len(scene.train) >= 1
    for view in scene.views[:3]:
        pixels = view.load()
        assert pixels.shape[:2] == (view.camera.height, view.camera.width) and pixels.std() > 5
    assert any(words in text for text in scene.warnings) or not words
    assert not (scene.warnings and not words), "a scene in order has nothing to say"
    found = recognise(real_data(*name.split("/")))
    assert (found.kind, found.views, found.camera_models) == (scene.kind, views, models)


def test_lego_splits_and_alpha():
    scene = open_odd("scenes/lego_200_rgba", eval_every=8)
    assert (len(scene.train), len(scene.test)) == (87, 13)
    pixels = scene.views[0].load()
    assert pixels.shape == (200, 200, 4) and pixels[0, 0, 3] == 0 and pixels[..., 3].max() == 255


def test_nerfstudio_and_colmap_describe_the_same_scene():
    """The JSON's cameras and points are those of the COLMAP model in another world frame: distances agree."""
    colmap, nerfstudio = open_odd("scenes/banana"), open_odd("odd/banana_nerfstudio")
    for ours, theirs in zip(nerfstudio.views, colmap.views, strict=True):
        assert ours.name == f"images/{theirs.name}"
        np.testing.assert_allclose(ours.camera.K, theirs.camera.K, rtol=1e-6)
        assert nerfstudio.points is not None and colmap.points is not None
        assert project(ours, nerfstudio.points.positions).mean() == pytest.approx(
            project(theirs, colmap.points.positions).mean(), rel=1e-3)
        np.testing.assert_array_equal(ours.load(), theirs.load())


def test_instant_ngp_and_colmap_cameras_of_the_fox_agree():
    """Camera centres of the published JSON and of our SfM, after a similarity: within 1 % of the scene."""
    colmap, ngp = open_odd("scenes/fox_colmap"), open_odd("scenes/fox")
    a = {view.name.split("/")[-1]: view.camera.center for view in ngp.views}
    b = {view.name: view.camera.center for view in colmap.views}
    names = sorted(set(a) & set(b))
    assert len(names) == 50
    x, y = np.stack([a[name] for name in names]), np.stack([b[name] for name in names])
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    u, scales, vt = np.linalg.svd(y.T @ x)
    assert np.linalg.det(u @ vt) > 0, "no mirror image"
    fitted = (x @ (u @ vt).T) * scales.sum() / (x**2).sum()
    assert np.linalg.norm(fitted - y, axis=1).max() < 0.01 * np.linalg.norm(y, axis=1).max()


def test_d02_the_undistorted_flat_model_matches_our_undistortion():
    """COLMAP's own image_undistorter output against ours in memory: same sizes, same pixels up to JPEG."""
    ours, theirs = open_odd("scenes/banana", resolution=1), open_odd("odd/banana_undistorted_flat", resolution=1)
    for view, reference in zip(ours.views[:3], theirs.views[:3], strict=True):
        assert view.name == reference.name
        np.testing.assert_allclose(view.camera.K, reference.camera.K, rtol=1e-6)
        difference = np.abs(view.load().astype(int) - reference.load().astype(int))
        assert view.load().shape == reference.load().shape and difference.mean() < 3.0
