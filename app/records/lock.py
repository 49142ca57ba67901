"""One process at a time trains into a run folder.

The lock is the operating system's, on the file .lock in the folder, so that it goes with the process however that ends. It
holds between processes: one that has it may take it again. Those that only read a run take none.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.data.scene import SceneError

FILE = ".lock"
_FAR = 1 << 30
"""Windows locks bytes, which nobody else may read then: one behind all that is written."""


@dataclass
class _Held:
    file: int
    problem: str
    count: int = 0


_held: dict[Path, _Held] = {}
_guard = threading.Lock()


class RunLock:
    """A run folder that this process may write into, until release() or the end of the process."""

    def __init__(self, folder: Path, key: Path, problem: str) -> None:
        self.folder = folder
        self.problem = problem   # one sentence where the file system has no locks
        self._key: Path | None = key

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        key, self._key = self._key, None
        if key is None:
            return
        with _guard:
            held = _held[key]
            held.count -= 1
            if not held.count:
                del _held[key]
                os.close(held.file)   # which unlocks; the file stays, since another may have it open by now

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()


def take(folder: Path) -> RunLock:
    """The lock of a folder, which exists. Raises SceneError, one sentence, where another process trains into it."""
    key = folder.resolve()
    with _guard:
        held = _held.get(key)
        if held is None:
            held = _held[key] = _locked(folder)
        held.count += 1
    return RunLock(folder, key, held.problem)


def require_free(folder: Path) -> None:
    """Raises SceneError where another process trains into a folder; makes nothing, also where there is no such folder."""
    if (folder / FILE).is_file():
        take(folder).release()


def in_use(folder: Path) -> bool:
    """Whether a process trains into a folder, this one or another."""
    with _guard:
        if folder.resolve() in _held:
            return True
    try:
        require_free(folder)
    except SceneError:
        return True
    return False


def lost(folder: Path) -> bool:
    """Whether a folder that this process has taken is not there any more, or another one stands in its place."""
    with _guard:
        held = _held.get(folder.resolve())
    if held is None:
        return False
    try:
        return not os.path.samestat(os.stat(folder / FILE), os.fstat(held.file))
    except OSError:
        return True


def _locked(folder: Path) -> _Held:
    problem = ""
    try:
        file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SceneError(f"{folder} cannot be written ({(error.strerror or str(error)).lower()}); "
                         "choose another folder with -m") from None
    try:
        _lock(file)
    except (BlockingIOError, PermissionError):
        holder = os.read(file, 32).decode("ascii", "replace").strip()
        os.close(file)
        process = f" (process {holder})" if holder.isdigit() else ""
        raise SceneError(f"{folder} is in use by another Splatscope{process}; close it or choose another folder with -m"
                         ) from None
    except OSError as error:
        problem = (f"{folder} is on a file system without locks ({(error.strerror or str(error)).lower()}), so nothing would "
                   "keep another Splatscope from training into it.")
    with contextlib.suppress(OSError):   # a full disk: the lock holds without a number in it
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, f"{os.getpid()}\n".encode())
    return _Held(file, problem)


def _lock(file: int) -> None:
    """Raises BlockingIOError or PermissionError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(file, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
