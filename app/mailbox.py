"""The two ways in and out of the engine thread: a FIFO and a newest-wins slot.

Several mailboxes may share one `threading.Event` as their signal: a reader that sleeps on the signal wakes up whichever
of them something is put into. The reader clears the signal before it reads, so that nothing put meanwhile is missed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A slot in which the newest value wins. `version` counts the values ever put."""

    def __init__(self, signal: threading.Event | None = None) -> None:
        self._lock = threading.Lock()
        self._value: T | None = None
        self._version = 0
        self._signal = signal

    def put(self, value: T) -> int:
        with self._lock:
            self._value = value
            self._version += 1
            version = self._version
        if self._signal is not None:
            self._signal.set()
        return version

    def get(self) -> tuple[int, T | None]:
        """(version, value); version 0 means nothing was ever put."""
        with self._lock:
            return self._version, self._value

    def newer_than(self, version: int) -> tuple[int, T | None]:
        """(version, value) when something newer than `version` is there, else (version, None)."""
        with self._lock:
            return (self._version, self._value) if self._version > version else (version, None)


class Fifo(Generic[T]):
    """First in, first out; nothing is lost. `wait` blocks until something is there or the time is over.

    `noticed` is called with each value, by the thread that puts it, once it can be read.
    """

    def __init__(self, signal: threading.Event | None = None, noticed: Callable[[T], None] | None = None) -> None:
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._signal = signal
        self._noticed = noticed

    def put(self, value: T) -> None:
        self._queue.put(value)
        if self._noticed is not None:
            self._noticed(value)
        if self._signal is not None:
            self._signal.set()

    def drain(self) -> list[T]:
        """All that is there now, oldest first."""
        items: list[T] = []
        while True:
            try:
                items.append(self._queue.get_nowait())
            except queue.Empty:
                return items

    def wait(self, timeout: float) -> T | None:
        """The oldest item, waiting up to `timeout` seconds; None when there is none."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
