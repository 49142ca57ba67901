"""Videos are whole or not there, their colours right; PNGs of a sequence are each whole."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from app.data import films
from app.data.films import check_film, film_size, frame_names, open_film, video_problem
from app.data.scene import SceneError


def frames(count: int = 6, width: int = 64, height: int = 48) -> list[np.ndarray]:
    """Flat colours, each another: lossy coding changes them little."""
    made = []
    for k in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:] = (40 + 30 * (k % 7), 200 - 25 * (k % 7), 90)
        frame[:, width // 2:] = (230, 30, 60)
        made.append(frame)
    return made


def read_back(path: Path) -> tuple[dict, list[np.ndarray]]:
    reader = imageio_ffmpeg.read_frames(str(path), input_params=["-colorspace", "bt709"])
    meta = next(reader)
    width, height = meta["size"]
    return meta, [np.frombuffer(data, np.uint8).reshape(height, width, 3) for data in reader]


def test_a_video_brings_its_frames_and_colours_back(tmp_path: Path) -> None:
    path = tmp_path / "Film ä b.mp4"
    film = open_film(path, [], 64, 48, 24)
    for frame in frames():
        film.add(frame)
    assert not path.exists()
    film.finish()
    meta, found = read_back(path)
    assert meta["fps"] == 24 and meta["codec"] == "h264" and meta["pix_fmt"].startswith("yuv420p(tv, bt709")
    assert len(found) == 6
    for frame, again in zip(frames(), found):
        for part in (np.s_[8:40, 4:28], np.s_[8:40, 36:60]):
            assert np.abs(frame[part].astype(int) - again[part]).max() <= 4
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_video_given_up_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    film = open_film(path, [], 64, 48, 24)
    film.add(frames()[0])
    assert len(list(tmp_path.iterdir())) == 2
    film.abort()
    film.abort()
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_an_encoder_that_fails_is_a_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    """One that dies between two frames, and one whose last words are lost."""
    path = tmp_path / "film.mp4"
    film = open_film(path, [], 64, 48, 24)
    film._encoder.gi_frame.f_locals["p"].kill()   # type: ignore[attr-defined]
    film._encoder.gi_frame.f_locals["p"].wait()   # type: ignore[attr-defined]
    with pytest.raises(SceneError, match=r"film.mp4 cannot be written \(the encoder ended early\)") as caught:
        for frame in frames(200):
            film.add(frame)
    assert "\n" not in str(caught.value)
    film = open_film(path, [], 64, 48, 24)
    film.add(frames()[0])
    film._encoder.gi_frame.f_locals["p"].kill()   # type: ignore[attr-defined]
    with pytest.raises(SceneError, match=r"0 of 1 frames"):
        film.finish()
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_it_opens_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args, **named):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(imageio_ffmpeg, "write_frames", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_film(tmp_path / "film.mp4", [], 64, 48, 24)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=0))
    film = open_film(tmp_path / "film.mp4", [], 64, 48, 24)
    film.add(frames()[0])
    film._encoder.gi_frame.f_locals["p"].kill()   # type: ignore[attr-defined]
    with pytest.raises(SceneError, match="the disk is full"):
        film.finish()


def test_a_frame_of_another_size_is_refused(tmp_path: Path) -> None:
    film = open_film(tmp_path / "film.mp4", [], 64, 48, 24)
    with pytest.raises(ValueError, match=r"expected uint8 \(48, 64, 3\)"):
        film.add(frames(1, 66, 48)[0])
    film.abort()


def test_a_folder_fills_with_pngs_and_keeps_what_is_there(tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "new" / "frames"
    film = open_film(folder, frame_names(3), 64, 48, 24)
    for frame in frames(2):
        film.add(frame)
    film.abort()
    assert sorted(p.name for p in folder.iterdir()) == ["frame_00000.png", "frame_00001.png"]
    np.testing.assert_array_equal(np.asarray(Image.open(folder / "frame_00001.png")), frames()[1])
    with pytest.raises(SceneError, match="already holds frame_00000.png and 1 more"):
        open_film(folder, frame_names(3), 64, 48, 24)


def test_targets_that_cannot_be_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "notes"
    file.write_text("x")
    (tmp_path / "folder.mp4").mkdir()
    wrong = ((tmp_path / "a.avi", 30, "ends in .avi"), (file, 30, "is a file"), (tmp_path / "x", 0, "0 frames per"),
             (tmp_path / "folder.mp4", 30, "is a folder"), (tmp_path / "x", float("nan"), "nan frames per"))
    for path, fps, says in wrong:
        with pytest.raises(SceneError, match=says):
            check_film(path, fps)
    with pytest.raises(SceneError, match="cannot be written"):
        open_film(file / "film.mp4", [], 64, 48, 24)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert video_problem().startswith("a video needs imageio-ffmpeg: pip install 'splatscope[video]'")
    with pytest.raises(SceneError, match="splatscope.video"):
        check_film(tmp_path / "a.mp4")
    check_film(tmp_path / "folder")   # PNGs need nothing


def test_sides_of_a_video_are_even() -> None:
    assert film_size("a.MP4", 641, 480) == (642, 480) and film_size("folder", 641, 481) == (641, 481)
