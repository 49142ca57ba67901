"""Rendering that can be given up: whoever waits for the thread that renders asks, and it stops within milliseconds.

A thread listens to one Request, and marks the work that changes nothing as interruptible. In such work the kernels look
at the request between two tiles (cuda_src/parallel.h) and the reference does so too. An optimiser step, once begun, is
finished. Threads that listen to nothing are never interrupted.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """The work was given up; nothing that it computed may be used."""


class Request:
    """One number that the kernels can read: whether the listening thread's interruptible work is to end."""

    def __init__(self) -> None:
        self._asked = ctypes.c_int32(0)
        self.address = ctypes.addressof(self._asked)

    def __bool__(self) -> bool:
        return bool(self._asked.value)

    def make(self) -> None:
        """From any thread. Holds until clear()."""
        self._asked.value = 1

    def clear(self) -> None:
        """The listening thread has seen it."""
        self._asked.value = 0


class _Thread(threading.local):
    listened: Request | None = None   # what this thread would end for
    armed: Request | None = None      # the same, while its work may be given up


_thread = _Thread()
watchers: list[Callable[[int | None], object]] = []
"""Told in the thread concerned which address its kernels are to look at from now on, None = none."""


def listen(request: Request | None) -> None:
    """Interruptible work of this thread ends when `request` is made."""
    _thread.listened = request


@contextmanager
def interruptible() -> Iterator[None]:
    """Work in the block may be given up: check() and the kernels' launches then raise Interrupted."""
    before = _thread.armed
    _arm(_thread.listened)
    try:
        yield
    finally:
        _arm(before)


def _arm(request: Request | None) -> None:
    if request is not _thread.armed:
        _thread.armed = request
        for watch in watchers:
            watch(request.address if request is not None else None)


def check() -> None:
    """Raises Interrupted in work that may be given up when somebody asked."""
    if _thread.armed:
        raise Interrupted
