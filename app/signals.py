"""What ends a run from outside: Ctrl-C, SIGTERM, a terminal that is closed. Nothing of it may be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def whole_steps() -> Iterator[None]:
    """Ctrl-C or SIGTERM in the block takes effect at its end, so that no half-made step is saved; a second one acts at once."""
    if threading.current_thread() is not threading.main_thread():   # only the main thread may set handlers, or gets signals
        yield
        return
    pressed: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    before = {number: handler for number, handler in before.items() if callable(handler)}   # ignored ones stay so

    def note(number: int, frame: object) -> None:
        pressed.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pressed:
        before[pressed[0]](pressed[0], None)


@contextmanager
def terminated_politely() -> Iterator[None]:
    """SIGTERM, and the end of the terminal, raise SystemExit in the block, so that what has been reached is saved first."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
