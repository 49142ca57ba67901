"""From names in a model to files on the disk: tolerant look-up, headers, and what is missing."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from app.data.images import IMAGE_SUFFIXES, ImageHeader, read_header
from app.data.lens import Lens
from app.data.scene import SceneError

Progress = Callable[[float, str], None]
"""Called with the share done in [0,1] and a text. An exception raised in it cancels the load and reaches the caller."""


@dataclass(frozen=True)
class Photo:
    """One image of a scene before it becomes a View: file, camera model and pose."""

    name: str
    path: Path
    header: ImageHeader
    lens: Lens
    viewmat: np.ndarray  # [4,4] world -> camera, OpenCV axes
    split: str | None = None  # "train" or "test" where the files say so; None = by position


@dataclass(frozen=True)
class Found:
    path: Path
    header: ImageHeader


@dataclass
class Located:
    """Result of looking for a list of image names."""

    files: dict[str, Found] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    links: dict[Path, Path] = field(default_factory=dict)  # text files that stand for a folder, see follow_link

    def warnings(self) -> list[str]:
        """Sentences for what is absent: a count and the first five names (D03)."""
        result = [f"{link.name} is a text file where a link to {target} was; that folder is used."
                  for link, target in self.links.items()]
        for names, what in ((self.missing, "listed images are missing"), (self.unreadable, "images are unreadable")):
            if names:
                total = len(self.files) + len(self.missing) + len(self.unreadable)
                result.append(f"{len(names)} of {total} {what}: {first_names(names)}; the others are used.")
        return result


def first_names(names: Sequence[str], count: int = 5) -> str:
    """'a, b, c, d, e and 12 more'."""
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more} more" if more > 0 else "")


def locate(names: Iterable[str], folders: Sequence[Path], progress: Progress | None = None) -> Located:
    """Find each name in the first folder that has it, and read its header.

    A name resolves without its extension, in another case, with another image extension, with a leading "./" or
    Windows separators (D14). Names that are absolute paths are tried as they are, then by their last part.
    """
    finder = _Finder(folders)
    result = Located(links=finder.links)
    names = list(names)
    for index, name in enumerate(names):
        if progress is not None and index % 20 == 0:
            progress(index / len(names), f"looking for images: {index} of {len(names)}")
        path = finder.find(name)
        if path is None:
            result.missing.append(name)
            continue
        try:
            result.files[name] = Found(path, read_header(path))
        except SceneError:
            result.unreadable.append(name)
    return result


def follow_link(path: Path) -> Path | None:
    """The folder that `path` is or stands for; None where there is none.

    A checkout or an archive without symbolic links (git on Windows, some zips) leaves small text files in their place
    that hold the target, relative to the file.
    """
    for _ in range(8):
        if path.is_dir():
            return path
        try:
            if path.suffix or not path.is_file() or path.stat().st_size > 1024:
                return None
            target = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if not target or "\n" in target or "\0" in target:
            return None
        path = Path(os.path.normpath(path.parent / target))
    return None


def count_images(folder: Path) -> int:
    """Image files in a folder and below it."""
    return sum(1 for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)


class _Finder:
    """Case-blind look-up that lists each folder once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._listings: dict[Path, dict[str, str]] = {}
        self.links: dict[Path, Path] = {}
        self._folders = [self._real(folder) for folder in folders]

    def find(self, name: str) -> Path | None:
        clean = PurePosixPath(name.replace("\\", "/"))
        absolute = Path(name)
        if absolute.is_absolute() and absolute.is_file():
            return absolute
        if absolute.is_absolute() or PureWindowsPath(name).is_absolute():
            clean = PurePosixPath(clean.name)  # written on another machine
        for folder in self._folders:
            found = self._walk(folder, clean.parts)
            if found is not None:
                return found
        return None

    def _walk(self, folder: Path, parts: Sequence[str]) -> Path | None:
        if not parts:
            return None
        direct = folder.joinpath(*parts)
        if direct.suffix and direct.is_file():
            return direct
        for part in parts[:-1]:
            if part == "..":
                folder = folder.parent
                continue
            actual = self._listing(folder).get(_key(part))
            if actual is None:
                return None
            folder = self._real(folder / actual)
        listing, last = self._listing(folder), _key(parts[-1])
        candidates = [last]
        candidates += [last + suffix for suffix in IMAGE_SUFFIXES]
        suffix = PurePosixPath(last).suffix
        if suffix in IMAGE_SUFFIXES:
            stem = last[: -len(suffix)]
            candidates += [stem, *(stem + other for other in IMAGE_SUFFIXES)]
        for candidate in candidates:
            if candidate in listing and (folder / listing[candidate]).is_file():
                return folder / listing[candidate]
        return None

    def _real(self, folder: Path) -> Path:
        target = follow_link(folder)
        if target is None or target == folder:
            return folder
        self.links[folder] = target
        return target

    def _listing(self, folder: Path) -> dict[str, str]:
        if folder not in self._listings:
            try:
                self._listings[folder] = {_key(entry.name): entry.name for entry in sorted(folder.iterdir())}
            except OSError:
                self._listings[folder] = {}
        return self._listings[folder]


def _key(name: str) -> str:
    """Equal for names that differ in case or, as between macOS and the rest, in how accents are composed."""
    return unicodedata.normalize("NFC", name).casefold()
