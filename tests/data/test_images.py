"""Decoding, area downscale and the bounded cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.data.images import ImageCache, decode, downscale, read_header
from app.data.scene import SceneError
from tests.data.synthetic import picture


def test_modes_become_rgb_or_straight_rgba(tmp_path):
    rgba = picture(channels=4)
    for mode, channels in (("RGB", 3), ("L", 3), ("CMYK", 3), ("RGBA", 4), ("LA", 4), ("P", 3), ("1", 3)):
        path = tmp_path / f"{mode}.tif" if mode == "CMYK" else tmp_path / f"{mode}.png"
        Image.fromarray(rgba).convert("RGBA" if channels == 4 else "RGB").convert(mode).save(path)
        pixels, header = decode(path), read_header(path)
        assert pixels.shape == (48, 64, channels) and pixels.dtype == np.uint8 and pixels.flags.c_contiguous
        assert (header.width, header.height, header.has_alpha) == (64, 48, channels == 4)
    np.testing.assert_array_equal(decode(tmp_path / "RGBA.png"), rgba)


def test_16_bit_grey_is_scaled_not_clipped(tmp_path):
    Image.fromarray(picture()[..., 0].astype(np.uint16) * 257).save(tmp_path / "a.png")
    np.testing.assert_array_equal(decode(tmp_path / "a.png")[..., 1], picture()[..., 0])


def test_a_palette_with_transparency_has_alpha(tmp_path):
    image = Image.fromarray(picture()).convert("P")
    image.info["transparency"] = 0
    image.save(tmp_path / "a.png", transparency=0)
    assert read_header(tmp_path / "a.png").has_alpha and decode(tmp_path / "a.png").shape[2] == 4


def test_exif_orientation_is_not_applied(tmp_path):
    image = Image.fromarray(picture())
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    assert decode(tmp_path / "a.jpg").shape == (48, 64, 3)
    assert read_header(tmp_path / "a.jpg").turned


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_broken_files_are_one_sentence(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for read in (read_header, decode):
        with pytest.raises(SceneError, match=r"a\.png .*replace it or remove it") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_truncated_image_is_one_sentence(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(SceneError, match="cannot be decoded"):
        decode(path)


def test_downscale_by_two_is_the_mean_of_four():
    pixels = picture()
    expected = pixels.reshape(24, 2, 32, 2, 3).mean(axis=(1, 3))
    assert np.abs(downscale(pixels, 32, 24) - expected).max() <= 0.5 + 1e-4


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_downscale_equals_the_integral_over_each_output_pixel(rows, columns, data):
    """Against brute force: every pixel repeated until the output grid divides the input."""
    height, width = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    pixels = np.random.default_rng(rows * 100 + columns).integers(0, 256, (rows, columns, 3)).astype(np.uint8)
    fine = pixels.repeat(height, axis=0).repeat(width, axis=1).astype(np.float64)
    expected = fine.reshape(height, rows, width, columns, 3).mean(axis=(1, 3))
    result = downscale(pixels, width, height)
    assert result.shape == (height, width, 3) and result.flags.c_contiguous
    assert np.abs(result - expected).max() <= 0.51


def test_downscale_weighs_colour_by_alpha():
    pixels = np.array([[[200, 100, 50, 255], [0, 255, 0, 0]], [[200, 100, 50, 255], [0, 255, 0, 0]]], np.uint8)
    np.testing.assert_array_equal(downscale(pixels, 1, 1), [[[200, 100, 50, 128]]])
    clear = np.zeros((2, 2, 4), np.uint8) + np.array([9, 9, 9, 0], np.uint8)
    np.testing.assert_array_equal(downscale(clear, 1, 1), [[[0, 0, 0, 0]]])


def test_downscale_never_enlarges():
    assert downscale(picture(), 64, 48) is not None
    with pytest.raises(ValueError, match="cannot downscale 64x48 to 65x48"):
        downscale(picture(), 65, 48)


def test_d17_the_cache_stays_below_its_bytes_and_drops_the_least_recent():
    cache, made = ImageCache(3 * 1000), []

    def get(key: str) -> np.ndarray:
        return cache.get(key, lambda: made.append(key) or np.zeros(1000, np.uint8))

    for key in "abcabd":   # d pushes out c, the least recently used
        get(key)
    assert cache.nbytes == 3000 and made == list("abcd")
    get("a"), get("b")
    assert made == list("abcd")
    get("c")
    assert made == list("abcdc") and cache.nbytes == 3000


def test_d17_an_image_larger_than_the_cache_is_returned_and_not_kept():
    cache = ImageCache(10)
    assert cache.get("big", lambda: np.zeros(100, np.uint8)).nbytes == 100
    assert cache.nbytes == 0


def test_the_cache_may_be_shared_by_threads():
    cache = ImageCache(5 * 100)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(300):
            key = (step * 7 + seed) % 11
            if cache.get(key, lambda key=key: np.full(100, key, np.uint8))[0] != key:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong and 0 < cache.nbytes <= 500
