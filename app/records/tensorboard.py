"""The optional second copy of the curves, as TensorBoard reads them, under the tags that gsplat's trainer writes.

Tags after gsplat (examples/simple_trainer.py): train/loss, train/l1loss, train/ssimloss (= 1 - SSIM), train/num_GS, train/mem
(GiB at most), and val/psnr, val/ssim, val/lpips, val/num_GS at evaluations, in a folder `tb`, where each branch is a run of its
own. Ours are train/psnr,
train/sh_degree, train/means_lr and train/iterations_per_second. The step is the iteration, counted from 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MISSING = ("--tensorboard needs the package tensorboard, which is not installed; install it with "
           "`pip install 'splatscope[tensorboard]'`, or leave the flag out.")


def require_tensorboard() -> None:
    """Raises ValueError, one sentence, where the package is not installed."""
    try:
        import tensorboard.summary.writer.event_file_writer  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(MISSING) from None


class Board:
    """Event files in `folder`/BRANCH, from the first go_on(); written by a thread of the package, within `flush_seconds`."""

    def __init__(self, folder: Path, flush_seconds: int = 5) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # pyright: ignore[reportMissingImports]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # pyright: ignore[reportMissingImports]

        events: Any = event_pb2     # their classes are made when they are loaded, which no type checker sees
        summaries: Any = summary_pb2
        self._event, self._summary, self._log = events.Event, summaries.Summary, events.SessionLog
        self._branch = ""
        self._open = lambda branch: EventFileWriter(str(folder / branch), max_queue_size=1000, flush_secs=flush_seconds)
        self._writer: Any = None

    def step(self, row: Mapping[str, Any], now: float) -> None:
        """A logged step, as RunRecord.step has it."""
        memory = row["memory"]
        self._put(row["iteration"], now, {
            "train/loss": row["loss"], "train/l1loss": row["l1"], "train/ssimloss": 1.0 - row["ssim"],
            "train/num_GS": row["gaussians"], "train/mem": None if memory is None else memory / 2 ** 30,
            "train/psnr": row["psnr"], "train/sh_degree": row["sh_degree"], "train/means_lr": row["means_lr"],
            "train/iterations_per_second": row["iterations_per_second"]})

    def evaluated(self, iteration: int, scores: Mapping[str, float | None], now: float) -> None:
        self._put(iteration, now, {f"val/{name}": value for name, value in scores.items()})

    def go_on(self, iteration: int, branch: str) -> None:
        """The run goes on from an iteration, on a branch: TensorBoard drops what it has of that after it."""
        if branch != self._branch:
            self.close()
            self._branch, self._writer = branch, self._open(branch)
        self._writer.add_event(self._event(step=iteration + 1, session_log=self._log(status=self._log.START)))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _put(self, iteration: int, now: float, values: Mapping[str, float | None]) -> None:
        found = [self._summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()
                 if value is not None and math.isfinite(value)]
        self._writer.add_event(self._event(wall_time=now, step=iteration, summary=self._summary(value=found)))
