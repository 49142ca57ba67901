"""Camera models: what COLMAP calls a camera, its rectified pinhole, and the undistortion in between.

Models that are not a pinhole are handed to pycolmap: its undistortion is the one that `colmap image_undistorter` runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np

from app.data.images import premultiply, unpremultiply
from app.data.scene import SceneError

PINHOLES = ("PINHOLE", "SIMPLE_PINHOLE")


@dataclass(frozen=True)
class Lens:
    """A camera model with its parameters in COLMAP's order, in px; pixel centres at +0.5."""

    model: str
    width: int
    height: int
    params: tuple[float, ...]
    origin: str = field(default="", compare=False)  # for messages: "camera 3 in sparse/0/cameras.bin"

    @property
    def is_pinhole(self) -> bool:
        return self.model in PINHOLES

    def rescaled(self, width: int, height: int) -> Lens:
        """The same lens for an image of another resolution."""
        if (width, height) == (self.width, self.height):
            return self
        if self.is_pinhole:
            K = pinhole_matrix(self)
            scale_x, scale_y = width / self.width, height / self.height
            params = (K[0, 0] * scale_x, K[1, 1] * scale_y, K[0, 2] * scale_x, K[1, 2] * scale_y)
            return Lens("PINHOLE", width, height, params, self.origin)
        camera = _camera(self)
        camera.rescale(width, height)
        return Lens(self.model, width, height, tuple(map(float, camera.params)), self.origin)


@cache
def _pycolmap():
    """pycolmap, without the handler that its logging library sets for SIGTERM: it prints a C++ stack, and the run would end
    unsaved. Done in C, for signal.signal() is for the main thread only, and the window opens scenes in another."""
    libc, before = ctypes.CDLL(None) if os.name == "posix" else None, None
    if libc is not None:
        libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        before = libc.signal(signal.SIGTERM, None)   # None is SIG_DFL
    import pycolmap

    if libc is not None:
        libc.signal(signal.SIGTERM, before)
    return pycolmap


def model_name(model_id: int) -> str | None:
    """COLMAP's name for a numeric camera model, or None if the installed pycolmap does not know it."""
    for name, member in _pycolmap().CameraModelId.__members__.items():
        if int(member) == model_id and name != "INVALID":
            return name
    return None


def param_count(model: str) -> int | None:
    """How many parameters a model has; None for a name that the installed pycolmap does not know."""
    pycolmap = _pycolmap()
    if model not in pycolmap.CameraModelId.__members__ or model == "INVALID":
        return None
    return len(pycolmap.Camera.create_from_model_name(1, model, 1.0, 2, 2).params)


def unknown_model(model: str | int, origin: str) -> SceneError:
    return SceneError(f"{origin} uses the camera model {model}, which pycolmap {_pycolmap().__version__} does not know; "
                      "update pycolmap, or run `colmap image_undistorter` and open its output")


def check_lens(lens: Lens) -> None:
    """Refuse what cannot become a pinhole image: SceneError naming model, file and remedy."""
    if lens.model == "EQUIRECTANGULAR":
        raise SceneError(f"{lens.origin} uses the camera model EQUIRECTANGULAR, which no pinhole view can represent; "
                         "cut the panoramas into perspective images, solve those with COLMAP and open that model")
    expected = param_count(lens.model)
    if expected is None:
        raise unknown_model(lens.model, lens.origin)
    if len(lens.params) != expected:
        raise SceneError(f"{lens.origin} has {len(lens.params)} parameters where {lens.model} needs {expected}; "
                         "export the model again")
    if lens.width < 1 or lens.height < 1 or not np.isfinite(lens.params).all():
        raise SceneError(f"{lens.origin} is {lens.width}x{lens.height} with parameters {list(lens.params)}; "
                         "sizes must be positive and parameters finite: export the model again")
    if min(_camera(lens).focal_length_x, _camera(lens).focal_length_y) <= 0.0:
        raise SceneError(f"{lens.origin} has a focal length of {min(lens.params[:2])}; it must be positive: "
                         "export the model again")


def pinhole_matrix(lens: Lens) -> np.ndarray:
    """[3,3] float64 K of a PINHOLE or SIMPLE_PINHOLE lens."""
    fx, fy, cx, cy = lens.params if lens.model == "PINHOLE" else (lens.params[0], *lens.params)
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


@lru_cache(maxsize=4096)
def rectified(lens: Lens) -> Lens:
    """The PINHOLE lens of the undistorted image: known before any image is decoded.

    Like `colmap image_undistorter` with its defaults: as large as it can be without blank pixels.
    """
    if lens.is_pinhole:
        return Lens("PINHOLE", lens.width, lens.height, _fx_fy_cx_cy(pinhole_matrix(lens)), lens.origin)
    pycolmap = _pycolmap()
    try:
        camera = pycolmap.undistort_camera(pycolmap.UndistortCameraOptions(), _camera(lens))
    except (ValueError, RuntimeError, IndexError) as error:
        raise _undistortion_failed(lens, error) from error
    return Lens("PINHOLE", camera.width, camera.height, tuple(map(float, camera.params)), lens.origin)


def undistort(lens: Lens, pixels: np.ndarray) -> np.ndarray:
    """uint8 [H,W,3] or straight-alpha [H,W,4] as seen by the lens -> the same scene as seen by rectified(lens)."""
    if lens.is_pinhole:
        return pixels
    if pixels.shape[2] == 3:
        return _undistort_channels(lens, pixels)
    # pycolmap's Bitmap refuses 4 channels. Colour goes through multiplied by alpha: interpolating straight colour
    # would pull in whatever is stored under alpha 0.
    multiplied = (premultiply(pixels) + 0.5).astype(np.uint8)
    color = _undistort_channels(lens, multiplied[..., :3])
    alpha = _undistort_channels(lens, multiplied[..., 3])
    return unpremultiply(np.concatenate([color, alpha.reshape(*color.shape[:2], 1)], axis=2).astype(np.float32))


def _undistort_channels(lens: Lens, pixels: np.ndarray) -> np.ndarray:
    pycolmap = _pycolmap()
    bitmap = pycolmap.Bitmap.from_array(np.ascontiguousarray(pixels))
    try:
        image, _ = pycolmap.undistort_image(pycolmap.UndistortCameraOptions(), bitmap, _camera(lens))
    except (ValueError, RuntimeError, IndexError) as error:
        raise _undistortion_failed(lens, error) from error
    return np.ascontiguousarray(image.to_array())


def _undistortion_failed(lens: Lens, error: Exception) -> SceneError:
    return SceneError(f"{lens.origin} ({lens.model}) cannot be undistorted ({str(error).splitlines()[0]}); "
                      "run `colmap image_undistorter` and open its output")


def _camera(lens: Lens):
    return _pycolmap().Camera(model=lens.model, width=lens.width, height=lens.height, params=list(lens.params))


def _fx_fy_cx_cy(K: np.ndarray) -> tuple[float, ...]:
    return float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2])
