"""Files that are either the old version or the whole new one, also after a crash or a full disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from app.data.scene import SceneError


def write_atomic(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk and rename it over `path`.

    Missing parent folders are made. Whatever goes wrong, the old file stays and the temporary one is removed;
    an operating-system error (disk full, read-only folder) becomes a SceneError that names the file.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise SceneError(f"{path} cannot be written ({error.strerror or error}); any older file there is unchanged: "
                         "free some space or choose another folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable. Windows cannot open folders, and needs no such step."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems refuse fsync on a folder; the file itself is safe by then.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
