"""JSON files that a user keeps: one that cannot be understood is renamed before its place is written, never overwritten."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.data.atomic import write_atomic
from app.data.regular import regular
from app.data.scene import SceneError


class Unreadable(ValueError):
    """Why a file cannot be understood; words for the brackets of a sentence."""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no file. Raises Unreadable."""
    try:
        found = json.loads(regular(path).read_bytes())   # bytes, since some editors begin a file with a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Unreadable((error.strerror or str(error)).lower()) from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable("it holds no JSON object")
    return found


def write_object(path: Path, values: Mapping[str, Any], damaged: str = "") -> str:
    """Atomic. `damaged` says why what is there cannot be read: it is renamed first; returns a sentence about that, or ''.

    Raises SceneError; what was there is there then, under its own name.
    """
    text = json.dumps(values, indent=1, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:   # the name of a file in no known encoding
        data = json.dumps(values, indent=1).encode()
    aside = set_aside(path) if damaged else None
    try:
        write_atomic(path, lambda stream: stream.write(data))
    except SceneError:
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.rename(path)
        raise
    return f"{path} could not be read ({damaged}); it is called {aside.name} now." if aside is not None else ""


def set_aside(path: Path) -> Path:
    """Give a file its name_aside(), which is returned. Raises SceneError."""
    aside = name_aside(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        return path.rename(aside)
    except OSError as error:
        raise SceneError(f"{path} cannot be understood, and it cannot be renamed either "
                         f"({(error.strerror or str(error)).lower()}): rename or remove it") from error


def name_aside(path: Path) -> Path:
    """What a file that cannot be understood is to be called: NAME.damaged, or the next such name that is free."""
    return free_name(path.with_name(f"{path.name}.damaged"))


def free_name(path: Path) -> Path:
    """The path itself, or the first of STEM-2.END, STEM-3.END, ... that is no file yet."""
    free, number = path, 2
    while os.path.lexists(free):
        free, number = path.with_name(f"{path.stem}-{number}{path.suffix}"), number + 1
    return free
