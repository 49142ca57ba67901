"""Frames on their way to the disk: an MP4 that appears when it is complete, or a folder of PNGs that fills up.

Both take uint8 RGB frames [H,W,3]. Encoding is imageio-ffmpeg's, the extra `video`.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from app.data.atomic import write_atomic
from app.data.scene import SceneError

VIDEO = ".mp4"
OTHER_FILES = {".avi", ".gif", ".jpeg", ".jpg", ".m4v", ".mkv", ".mov", ".mpg", ".png", ".webm", ".webp", ".wmv"}
QUALITY = 8        # of imageio-ffmpeg, 1 to 10: crf 10 of x264, in which no block can be seen
FULL = 1 << 20     # bytes; with less free space a failed encoder is put down to the disk
FPS = (1.0, 240.0)
KILLED_SECONDS = 5.0
"""How long a killed encoder may keep its file, on systems where an open file cannot be removed."""
BT709 = ["-vf", "scale=out_color_matrix=bt709:out_range=tv", "-colorspace", "bt709", "-color_primaries", "bt709",
         "-color_trc", "bt709", "-color_range", "tv"]
"""Without these tags a player guesses the matrix by the size of the picture, and the colours come out shifted."""


class Film(Protocol):
    def add(self, rgb: np.ndarray) -> None:
        """The next frame. Raises SceneError where it cannot be written."""
        ...

    def finish(self) -> None:
        """All frames are there. Raises SceneError."""
        ...

    def abort(self) -> None:
        """No more frames come: a video vanishes, PNGs that are finished stay. Harmless at any time."""
        ...


def is_video(path: str | Path) -> bool:
    return Path(path).suffix.lower() == VIDEO


def older_pictures(folder: str | Path, names: Sequence[str]) -> int:
    """How many other PNGs lie in a folder, which whoever makes a film of all that is there would take for frames."""
    return len({path.name for path in Path(folder).expanduser().glob("*.png")} - set(names))


def film_size(path: str | Path, width: int, height: int) -> tuple[int, int]:
    """The size to draw: a video's sides are even, since its colours have half the resolution (4:2:0), so they round up."""
    return (width + width % 2, height + height % 2) if is_video(path) else (width, height)


def open_film(path: str | Path, names: Sequence[str], width: int, height: int, fps: float, *, overwrite: bool = False) -> Film:
    """An .mp4, in place of an older one, or else a folder with a PNG of each name; with `overwrite` some may be there already.
    Raises SceneError, before any work, where that cannot be."""
    check_film(path)
    if is_video(path):
        return VideoFile(Path(path).expanduser(), width, height, fps)
    return PictureFolder(Path(path).expanduser(), names, overwrite=overwrite)


def in_the_way(path: str | Path, names: Sequence[str] = ()) -> str:
    """What is there already of a video, or of a folder with PNGs of these names, in words; empty where nothing is."""
    where = Path(path).expanduser()
    if is_video(where):
        return f"{path} exists already" if where.exists() else ""
    taken = [name for name in names if (where / name).exists()]
    return f"{path} already holds {taken[0]}{f' and {len(taken) - 1} more' if len(taken) > 1 else ''}" if taken else ""


def check_film(path: str | Path, fps: float = FPS[0]) -> None:
    """Raises SceneError, one sentence, for a target that cannot be."""
    where = Path(path).expanduser()
    if not FPS[0] <= fps <= FPS[1]:
        raise SceneError(f"{fps:g} frames per second cannot be; choose {FPS[0]:g} to {FPS[1]:g}")
    if where.suffix.lower() in OTHER_FILES:
        raise SceneError(f"{path} ends in {where.suffix}; name a video that ends in .mp4, or a folder for PNGs")
    if is_video(where):
        if where.is_dir():
            raise SceneError(f"{path} is a folder; name a file")
        problem = video_problem()
        if problem:
            raise SceneError(problem)
    elif where.exists() and not where.is_dir():
        raise SceneError(f"{path} is a file; name a video that ends in .mp4, or a folder for PNGs")


def video_problem() -> str:
    """Why no video can be encoded here, one sentence with what to do; empty where it can."""
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except ImportError:
        return "a video needs imageio-ffmpeg: pip install 'splatscope[video]', or name a folder for PNGs"
    except RuntimeError:
        return "imageio-ffmpeg finds no ffmpeg here: install ffmpeg, or name a folder for PNGs"
    return ""


class VideoFile:
    """H.264 in MP4, written beside its place and put there when complete and read back."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        import imageio_ffmpeg

        self.path, self.shape = path, (height, width, 3)
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._temporary.touch()
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        self._frames = 0
        self._encoder: Any = None
        try:
            self._encoder = imageio_ffmpeg.write_frames(
                str(self._temporary), (width, height), quality=QUALITY, macro_block_size=1,
                fps=float(fps),   # type: ignore[arg-type] - it takes 29.97 too
                ffmpeg_log_level="quiet", output_params=[*BT709, "-movflags", "+faststart", "-f", "mp4"])
            self._encoder.send(None)   # looks for an encoder, which takes a moment in which Ctrl-C may come
        except BaseException:
            self.abort()
            raise

    def add(self, rgb: np.ndarray) -> None:
        if rgb.shape != self.shape or rgb.dtype != np.uint8:
            raise ValueError(f"frame: expected uint8 {self.shape}, got {rgb.dtype} {rgb.shape}")
        try:
            self._encoder.send(np.ascontiguousarray(rgb))
        except OSError as error:   # the encoder has ended; its message is many lines
            self.abort()
            raise self._error("the encoder ended early") from error
        self._frames += 1

    def finish(self) -> None:
        import imageio_ffmpeg

        try:
            self._encoder.close()   # waits for the encoder, which may fail without a word
            try:
                found = imageio_ffmpeg.count_frames_and_secs(str(self._temporary))[0]
            except RuntimeError:
                found = 0
            if found != self._frames:
                raise self._error(f"{found} of {self._frames} frames came out of the encoder")
            with open(self._temporary, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(self._temporary, self.path)
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        finally:
            self.abort()

    def abort(self) -> None:
        with contextlib.suppress(_Stop, StopIteration, AttributeError):
            self._encoder.throw(_Stop)   # kills the encoder instead of waiting for it
        end = time.monotonic() + KILLED_SECONDS
        while self._temporary.exists():
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)
                return
            if time.monotonic() > end:
                return
            time.sleep(0.05)

    def _error(self, what: str) -> SceneError:
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.path.parent).free < FULL:
                what = "the disk is full"
        return SceneError(f"{self.path} cannot be written ({what}); any older file there is unchanged: free some space or "
                          "choose another folder")


class _Stop(BaseException):
    """Not an Exception: imageio-ffmpeg then kills the encoder."""


class PictureFolder:
    """PNGs, each whole or not there."""

    def __init__(self, folder: Path, names: Sequence[str], *, overwrite: bool = False) -> None:
        self.folder, self._names = folder, list(names)
        if len(set(self._names)) != len(self._names):
            raise ValueError("two frames have one name")
        if not overwrite and (there := in_the_way(folder, names)):
            raise SceneError(f"{there}; choose another folder, or empty it")
        self._next = 0

    def add(self, rgb: np.ndarray) -> None:
        from PIL import Image

        data = io.BytesIO()
        Image.fromarray(rgb).save(data, "PNG")
        write_atomic(self.folder / self._names[self._next], lambda stream: stream.write(data.getvalue()))
        self._next += 1

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass


def frame_names(count: int) -> list[str]:
    """frame_00000.png and so on, as ffmpeg's frame_%05d.png reads them."""
    return [f"frame_{k:05d}.png" for k in range(count)]
