"""A helper thread for what must not hold up the engine: reading files, decoding images, compiling kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Report = Callable[[float, str], None]
"""Called by the work with the share done in [0,1] and a text."""


class Cancelled(Exception):
    """Raised inside background work when nobody waits for it any more."""


class Background:
    """Runs `work(report)` in a daemon thread; `poll()` tells the engine how far it is.

    `report(fraction, text)` may be called from the work; it raises Cancelled once `cancel()` was called, which ends the
    work at its next report. `wake` is called whenever there is something new to poll.
    """

    def __init__(self, work: Callable[[Report], Any], wake: Callable[[], None], name: str) -> None:
        self.name = name
        self.progress: tuple[float, str] = (0.0, "")
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._cancelled = threading.Event()
        self._wake = wake
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def report(self, fraction: float, text: str = "") -> None:
        if self._cancelled.is_set():
            raise Cancelled
        self.progress = (min(max(float(fraction), 0.0), 1.0), text)
        self._wake()

    def cancel(self) -> None:
        self._cancelled.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self.result = self._work(self.report)
        except BaseException as error:  # noqa: BLE001 - handed to the engine, which decides what the user sees
            self.error = error
        finally:
            self.done.set()
            self._wake()

    def wait(self, scale: tuple[float, float] = (0.0, 1.0)):
        """A generator that yields (fraction, text) until the work is done and returns its result or raises its error.

        `scale` = (start, length) places this work inside a longer job. Closing the generator cancels the work.
        """
        start, length = scale
        last: tuple[float, str] | None = None
        try:
            while not self.done.is_set():
                fresh, last = self.progress != last, self.progress
                yield (start + length * last[0], last[1]) if fresh else None
        finally:
            if not self.done.is_set():
                self.cancel()
        if self.error is not None:
            raise self.error
        return self.result
