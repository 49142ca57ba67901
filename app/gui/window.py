"""Entry point of the window. Imports Dear PyGui only after it is known that a window can open."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.gui.display import HEADLESS_HINT, display_problem
from app.gui.trace import Trace
from app.mailbox import Fifo, Latest
from app.messages import Command, Event, InspectRequest, Snapshot, ViewRequest


def run_window(commands: Fifo[Command], view_requests: Latest[ViewRequest], events: Fifo[Event],
               snapshots: Latest[Snapshot], *, inspect_requests: Latest[InspectRequest] | None = None,
               trace: str | None = None, on_close: Callable[[], Any],
               title: str = "Splatscope", preferences_path: Path | None = None,
               on_frame: Callable[[Any], None] | None = None) -> int:
    """Open the window and stay until it is closed; call on the main thread, once per process (G13, G26).

    `on_close` must stop and join the engine: it runs after the last frame and before Dear PyGui is taken down (G14).
    `on_frame(shell)` runs after every drawn frame, on this thread: tests and screenshots use it.
    Returns the exit code: 0, or 2 after one sentence on stderr when no window can open or FILE of --trace cannot be
    written. In these cases on_close has run too.
    """
    problem = display_problem()
    if problem is not None:
        return _refuse(problem, on_close)
    try:
        from app.gui.shell import Shell
    except ImportError as error:
        return _refuse(f"Dear PyGui cannot be loaded ({error}); install the packages libgl1 and libgl1-mesa-dri, or "
                       f"`pip install 'dearpygui>=2.3'`. {HEADLESS_HINT}", on_close)
    try:
        file = Trace(trace) if trace else None
    except OSError as error:
        return _refuse(f"--trace: {trace} cannot be written ({error.strerror}); name a file in an existing folder.",
                       on_close)
    # Mesa's software renderer starts a thread per core; one is as fast for a window and leaves the rest to training.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    shell = Shell(commands, view_requests, events, snapshots, inspect_requests or Latest(), trace=file, title=title,
                  preferences_path=preferences_path, on_frame=on_frame)
    return shell.run(on_close)


def _refuse(problem: str, on_close: Callable[[], Any]) -> int:
    print(f"splatscope: {problem}", file=sys.stderr)
    on_close()
    return 2
