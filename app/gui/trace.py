"""--trace FILE: one JSON object per drawn frame, readable while the window runs."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import IO

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
