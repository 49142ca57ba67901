"""Photographs as uint8 arrays: header, decode, area downscale, and a cache bounded in bytes."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from scipy import sparse

from app.data.scene import SceneError

DEFAULT_CACHE_BYTES = 2 << 30
"""Decoded pixels kept by one scene: about 400 photographs of 1600x1067."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
"""Endings tried, in this order, for a name that has none, and counted as photographs in a folder."""

_UNREADABLE = (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError)
"""What Pillow raises for broken files; SyntaxError is its word for a broken PNG."""


@dataclass(frozen=True)
class ImageHeader:
    """What a file says about itself before it is decoded."""

    width: int
    height: int
    has_alpha: bool
    turned: bool  # EXIF orientation would swap width and height; it is never applied, as COLMAP does not


def read_header(path: Path) -> ImageHeader:
    """Size and alpha of an image file; SceneError when it is not an image that Pillow reads."""
    try:
        with _quiet_open(path) as image:
            alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
            turned = image.format in ("JPEG", "MPO", "WEBP", "TIFF") and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            return ImageHeader(image.width, image.height, alpha, turned)
    except _UNREADABLE as error:
        raise SceneError(f"{path} is not a readable image ({_first_line(error)}); replace it or remove it") from error


def decode(path: Path) -> np.ndarray:
    """Decode to C-contiguous uint8 [H,W,3] RGB or, where the file has alpha, [H,W,4] RGBA with straight alpha.

    EXIF orientation is not applied, because COLMAP's cameras describe the stored pixels.
    16-bit grey is scaled to 8 bits; palettes, grey and CMYK become RGB. A broken file is a SceneError.
    """
    try:
        with _quiet_open(path) as image:
            if image.mode.startswith("I"):
                # Pillow's own conversion clips 16-bit grey at 255 instead of scaling it.
                grey = (np.asarray(image, np.float64) / 257.0 + 0.5).clip(0, 255).astype(np.uint8)
                return np.ascontiguousarray(np.repeat(grey[..., None], 3, axis=2))
            alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
            return np.array(image.convert("RGBA" if alpha else "RGB"), dtype=np.uint8, order="C")
    except _UNREADABLE as error:
        raise SceneError(f"{path} cannot be decoded ({_first_line(error)}); replace it or remove it") from error


def _quiet_open(path: Path) -> Image.Image:
    with warnings.catch_warnings():
        # A 100-megapixel photograph is no attack here; Pillow's hard limit (twice that) still holds.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(path)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def premultiply(pixels: np.ndarray) -> np.ndarray:
    """Straight [H,W,4] uint8 to float32 [H,W,4]: colour times alpha/255, alpha unchanged."""
    result = pixels.astype(np.float32)
    result[..., :3] *= result[..., 3:] / 255.0
    return result


def unpremultiply(pixels: np.ndarray) -> np.ndarray:
    """The inverse of premultiply, rounded to uint8; colour is 0 where alpha is."""
    alpha = pixels[..., 3:]
    color = np.divide(pixels[..., :3] * 255.0, alpha, out=np.zeros_like(pixels[..., :3]), where=alpha > 0.0)
    return _to_uint8(np.concatenate([color, alpha], axis=2))


def downscale(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """Exact area average of uint8 [H,W,C] to [height,width,C], also for ratios that are not whole numbers.

    Colours are averaged weighted by alpha, so that the colour hidden under alpha 0 never bleeds into an edge.
    Never enlarges: ValueError if asked to.
    """
    rows, columns, channels = pixels.shape
    if (columns, rows) == (width, height):
        return pixels
    if width > columns or height > rows or width < 1 or height < 1:
        raise ValueError(f"cannot downscale {columns}x{rows} to {width}x{height}")
    values = premultiply(pixels) if channels == 4 else pixels.astype(np.float32)
    values = _area_weights(rows, height) @ values.reshape(rows, columns * channels)
    values = values.reshape(height, columns, channels).transpose(1, 0, 2).reshape(columns, height * channels)
    values = (_area_weights(columns, width) @ values).reshape(width, height, channels).transpose(1, 0, 2)
    return unpremultiply(values) if channels == 4 else _to_uint8(values)


def _area_weights(n_in: int, n_out: int) -> sparse.csr_matrix:
    """[n_out,n_in] share of each input sample in each output sample; rows sum to 1."""
    edges = np.arange(n_out + 1) * (n_in / n_out)
    span = int(np.ceil(n_in / n_out)) + 1
    index = np.floor(edges[:-1, None] + 1e-9).astype(np.int64) + np.arange(span)
    overlap = np.minimum(index + 1, edges[1:, None]) - np.maximum(index, edges[:-1, None])
    overlap = np.where(index < n_in, overlap.clip(0.0), 0.0)
    overlap /= overlap.sum(1, keepdims=True)
    row = np.repeat(np.arange(n_out), span)
    keep = overlap.ravel() > 1e-9
    entries = overlap.ravel()[keep].astype(np.float32)
    return sparse.csr_matrix((entries, (row[keep], index.ravel()[keep])), shape=(n_out, n_in))


def _to_uint8(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray((values + 0.5).clip(0.0, 255.0).astype(np.uint8))


class ImageCache:
    """Least-recently-used cache of decoded images; safe to share between threads.

    The arrays are shared: whoever gets one must not write into it.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self._held: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels held now; never more than max_bytes."""
        return self._bytes

    def get(self, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The cached image, or make() and remember it if it fits."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        pixels = make()
        with self._lock:
            if key not in self._held and pixels.nbytes <= self.max_bytes:
                self._held[key] = pixels
                self._bytes += pixels.nbytes
                while self._bytes > self.max_bytes:
                    self._bytes -= self._held.popitem(last=False)[1].nbytes
        return pixels
