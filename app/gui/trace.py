"""--trace FILE: one JSON object per drawn frame, readable while the window runs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from app.messages import Snapshot

FLUSH_SECONDS = 0.5


class Trace:
    """Writes JSONL. Keys: time (s since the first frame), frame_ms, iteration, loss, gaussians, backend, view_mode.

    Raises OSError when the file cannot be opened; the caller turns that into its one sentence.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: IO[str] = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - open as long as the window
        self._start: float | None = None
        self._flushed = 0.0

    def frame(self, now: float, frame_ms: float, snapshot: Snapshot, view_mode: str, *, moving: bool,
              shown_size: tuple[int, int]) -> None:
        """One drawn frame. `frame_ms` is the work of the frame, without the pause that paces the loop."""
        if self._start is None:
            self._start = now
        record = {
            "time": round(now - self._start, 4),
            "frame_ms": round(frame_ms, 3),
            "iteration": snapshot.iteration,
            "loss": snapshot.loss if math.isfinite(snapshot.loss) else None,
            "gaussians": snapshot.gaussians,
            "backend": snapshot.backend,
            "view_mode": view_mode,
            "moving": moving,
            "state": snapshot.state,
            "picture": list(shown_size),
        }
        self._file.write(json.dumps(record) + "\n")
        if now - self._flushed > FLUSH_SECONDS:
            self._flushed = now
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class Recorder:
    """The trace of a window, if it keeps one: where writing fails, as on a full disk, it ends and the window goes on."""

    def __init__(self, trace: Trace | None, notify: Callable[[str, str], None]) -> None:
        self.trace, self._notify = trace, notify

    def record(self, now: float, frame_ms: float, snapshot: Snapshot, view_mode: str, **named: Any) -> None:
        """As Trace.frame()."""
        if self.trace is None:
            return
        try:
            self.trace.frame(now, frame_ms, snapshot, view_mode, **named)
        except OSError as error:
            self._notify(f"The trace ends here: it cannot be written ({error.strerror or error}).", "warning")
            self.end(quietly=True)

    def end(self, *, quietly: bool = False) -> None:
        trace, self.trace = self.trace, None
        try:
            if trace is not None:
                trace.close()
        except OSError as error:
            if not quietly:
                print(f"splatscope: the end of the trace was not written ({error.strerror or error})", file=sys.stderr)
