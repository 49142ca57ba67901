"""The record of one run while it goes on: a folder that a helper thread writes, so that training never waits for a disk.

config.json        what the run started with: options, scene, seed, versions, machine
metrics.jsonl      a line per logged step; metrics.csv is made of it
events.jsonl       densifications, changed options, evaluations, saves, stops ..., each with iteration and time
eval.jsonl         a line per evaluation, with the scores of each view; eval.csv is made of it
plots/             loss.png, psnr.png, count.png
thumbnails/        BRANCH/iteration_N/VIEW.png: render and photograph side by side
.lock              who writes into the folder (app/records/lock.py)
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.data.atomic import write_atomic
from app.data.checkpoints import MAIN
from app.data.scene import SceneError
from app.records.lines import EVALUATIONS, EVENTS, METRICS, Lines
from app.records.lock import lost
from app.records.place import CONFIG

if TYPE_CHECKING:
    import numpy as np

FLUSH_SECONDS = 1.0
"""A killed process loses the lines of so long a time."""
EVERY = 10
EVERY_STEP_UNTIL = 100
SPARSER_FROM = 100_000
"""Steps are logged one by one at first, then every 10th; from this iteration on half as often each time it doubles."""
GROWTH = 1.3
"""Pictures and plots are made again when the run is so many times as long: some twenty times in 30,000 iterations."""
DRAW_SECONDS = 20.0
"""And plots no sooner than after so long: three of them take a second of one core."""
PICTURED_VIEWS = 3


def log_interval(iteration: int) -> int:
    """Iterations between two logged steps around an iteration: 10,000 lines in 100,000 iterations, then 5,000 a doubling."""
    if iteration <= EVERY_STEP_UNTIL:
        return 1
    return EVERY << max(0, (iteration // SPARSER_FROM).bit_length())


class RunRecord:
    """Writes into `folder`, which exists. Every method returns at once; flush() and close() wait for the thread.

    What cannot be written is said once, and again at the end, as a sentence in `problems`; the run is not disturbed.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = False, flush_seconds: float = FLUSH_SECONDS) -> None:
        self.folder = folder
        self.problems: deque[str] = deque(maxlen=100)
        self._flush_seconds = flush_seconds
        self._metrics, self._events, self._evaluations = (Lines(folder / name) for name in (METRICS, EVENTS, EVALUATIONS))
        self._board = None
        self._wants_board = tensorboard
        self._tasks: deque[Callable[[], object]] = deque()
        self._wake, self._hurry, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failing = False
        self._ending = False                 # nothing more comes, so what cannot be written now never is
        self._unfinished = False             # tables and plots could not be made at the end
        self._used = False                   # by a run that began in this record
        self._config = b""                   # of config.json, while it is not written
        self._branch = MAIN                  # that the thread writes about
        self._last = 0                       # iteration logged last
        self._rate_from = (0, 0.0)           # (iteration, seconds) that the rate is counted from
        self._pictured = self._drawn = 0     # iteration of the last thumbnails and plots
        self._drawn_at = -math.inf           # and when that was
        self._seen_step = False
        self._afterwards: Callable[[], object] | None = None

    # ------------------------------------------------------------------ what the run tells

    def begin(self, about: Mapping[str, Any], *, branch: str = MAIN, parent: str = "", new: bool = False, iteration: int = 0,
              seconds: float = 0.0) -> None:
        """The run begins at an iteration, on a branch; a `new` one has the past of its `parent`. What the branch had after that
        iteration no longer counts; other branches stay. Its event is started, restarted or resumed.
        """
        def task() -> None:
            before = self._used or any((self.folder / name).exists() for name in (METRICS, EVENTS, EVALUATIONS))
            self._used = True
            self._config = (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode()
            self._go_on(iteration, branch, parent, new)
            self._event("resumed" if iteration else "restarted" if before else "started", iteration, seconds, now,
                        _named(branch, parent))

        now = time.time()
        self._from(iteration, seconds)
        self._put(self._set_aside)
        self._put(task)

    def go_on(self, iteration: int, seconds: float, *, branch: str, parent: str = "", new: bool = False,
              config: Mapping[str, Any]) -> None:
        """The run goes on from an iteration, on a branch as in begin(), with the options `config`. The event is "branch"."""
        def task() -> None:
            self._go_on(iteration, branch, parent, new)
            self._event("branch", iteration, seconds, now, {**_named(branch, parent), "config": config})

        now = time.time()
        self._from(iteration, seconds)
        self._put(task)

    def wants(self, iteration: int) -> bool:
        """Whether this step is to be logged. Cheap: it is asked in every step."""
        return iteration - self._last >= EVERY or iteration <= EVERY_STEP_UNTIL and iteration > self._last

    def step(self, iteration: int, *, seconds: float, loss: float, l1: float, psnr: float, ssim: float, gaussians: int,
             sh_degree: int, means_lr: float, memory: int | None, last: bool = False) -> None:
        """One logged step; `seconds` of training since iteration 0, `memory` bytes at most so far.

        Left out where it is not due, unless it is the `last` of the run.
        """
        if iteration - self._last < (1 if last else log_interval(iteration)):
            return
        then, since = self._rate_from
        rate = (iteration - then) / (seconds - since) if seconds > since else math.nan
        self._last, self._rate_from, self._seen_step = iteration, (iteration, seconds), True
        row = {"iteration": iteration, "loss": loss, "l1": l1, "psnr": psnr, "ssim": ssim, "gaussians": gaussians,
               "seconds": seconds, "iterations_per_second": rate, "sh_degree": sh_degree, "means_lr": means_lr,
               "memory": memory}
        self._put(lambda: self._row(row))

    def note(self, event: str, iteration: int, seconds: float, **fields: Any) -> None:
        """A line in events.jsonl; the values are whatever JSON has."""
        now = time.time()
        self._put(lambda: self._event(event, iteration, seconds, now, fields))

    def evaluated(self, iteration: int, seconds: float, *, psnr: float, ssim: float, lpips: float | None = None,
                  gaussians: int = 0, views: Sequence[Mapping[str, Any]] = (), last: bool = False) -> None:
        """Scores of held-out views; each of `views` has name, psnr, ssim and, where it is known, lpips."""
        now = time.time()
        means = {"psnr": psnr, "ssim": ssim, "lpips": lpips}

        def task() -> None:
            self._evaluations.add({"iteration": iteration, "seconds": seconds, **means, "gaussians": gaussians,
                                   "views": list(views)})
            self._event("evaluated", iteration, seconds, now, means)
            if self._board is not None:
                self._board.evaluated(iteration, {**means, "num_GS": gaussians}, now)
            due = iteration >= max(self._drawn * GROWTH, EVERY_STEP_UNTIL)
            if not last and due and time.monotonic() >= self._drawn_at + DRAW_SECONDS:
                self._draw()
                self._drawn, self._drawn_at = iteration, time.monotonic()

        self._put(task)

    def wants_pictures(self, iteration: int) -> bool:
        """Whether thumbnails are due: the first, then whenever the run has become so much longer (GROWTH)."""
        return iteration >= self._pictured * GROWTH

    def picture(self, iteration: int, view: str, render: np.ndarray, photograph: Callable[[], np.ndarray],
                background: tuple[float, float, float]) -> None:
        """A thumbnail of a render [H,W,3] uint8 beside its photograph, which the helper thread loads."""
        def task() -> None:
            self._require_folder()
            from app.records.thumbnails import file_name, side_by_side

            path = self.folder / "thumbnails" / self._branch / f"iteration_{iteration}" / file_name(view)
            data = side_by_side(render, photograph(), background)
            write_atomic(path, lambda stream: stream.write(data))

        self._pictured = iteration
        self._put(task)

    def later(self, task: Callable[[], object]) -> None:
        """Work for the helper thread that belongs to the record."""
        def work() -> None:
            self._require_folder()
            task()

        self._put(work)

    @property
    def whole(self) -> bool:
        """Whether all that was told is written, tables and plots included; known after close()."""
        return not (self.going or self._failing or self._unfinished)

    @property
    def going(self) -> bool:
        """Whether the thread has something left to do."""
        return self._thread is not None and self._thread.is_alive()

    # ------------------------------------------------------------------ waiting for it

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all that was told is written, or could not be; False when that took longer than `timeout` seconds."""
        done = threading.Event()

        def task() -> None:
            try:
                self._write()
            finally:
                done.set()

        self._put(task)
        self._hurry.set()
        return done.wait(timeout)

    def end(self, then: Callable[[], object] | None = None) -> None:
        """Nothing more comes: tables and plots are made, and the thread calls `then` and ends. Returns at once."""
        if not self._closing.is_set():
            self._afterwards = then
            self._put(self._finish)
            self._closing.set()
            self._hurry.set()

    def close(self, timeout: float = 30.0) -> bool:
        """end(), and wait for the thread."""
        self.end()
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    # ------------------------------------------------------------------ the thread

    def _put(self, task: Callable[[], object]) -> None:
        if self._closing.is_set():
            return
        self._tasks.append(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="record", daemon=True)
            self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        if self._wants_board:
            self._attempt(self._open_board)
        while not (self._closing.is_set() and not self._tasks):
            self._wake.wait()
            self._hurry.wait(self._flush_seconds)   # what comes meanwhile is written with it
            self._wake.clear()
            self._hurry.clear()
            if self._closing.is_set():
                self._wake.set()
            while self._tasks:
                self._attempt(self._tasks.popleft())
            self._attempt(self._write)
        if self._afterwards is not None:
            self._attempt(self._afterwards)

    def _attempt(self, task: Callable[[], object]) -> bool:
        try:
            task()
            return True
        except (OSError, SceneError) as error:
            self._complain(error)
        except Exception as error:  # noqa: BLE001 - a record must not end a run; it says what went wrong
            self._say(f"A part of the run's record in {self.folder} could not be made ({type(error).__name__}: {error}).")
        return False

    def _complain(self, error: OSError | SceneError) -> None:
        if not self._failing or self._ending:
            self._failing = True
            cause = error.__cause__ if isinstance(error, SceneError) else error
            reason = (getattr(cause, "strerror", None) or str(error)).lower()
            then = ("what was still to be written is missing" if self._ending else
                    "training goes on, and the figures are written as soon as that is possible again")
            self._say(f"The run's record in {self.folder} cannot be written ({reason}): {then}.")

    def _say(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)

    def _require_folder(self) -> None:
        """Raises OSError where the folder is gone: what writes there would make it anew, without what was in it."""
        if lost(self.folder) or not self.folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "it was moved or deleted")

    def _write(self) -> None:
        self._require_folder()
        config = self._config
        if config:
            write_atomic(self.folder / CONFIG, lambda stream: stream.write(config))
            self._config = b""
        for lines in (self._metrics, self._events, self._evaluations):
            lines.write()
        self._failing = False   # else one of them had raised

    # ------------------------------------------------------------------ tasks

    def _from(self, iteration: int, seconds: float) -> None:
        self._last, self._rate_from = iteration, (iteration, seconds)
        self._pictured, self._drawn = min(self._pictured, iteration), min(self._drawn, iteration)

    def _set_aside(self) -> None:
        from app.records.read import set_aside

        for sentence in set_aside(self.folder):
            self._say(sentence)

    def _row(self, row: dict[str, Any]) -> None:
        self._metrics.add(row)
        if self._board is not None:
            self._board.step(row, time.time())

    def _event(self, event: str, iteration: int, seconds: float, now: float, fields: Mapping[str, Any]) -> None:
        stamp = datetime.fromtimestamp(now).astimezone().isoformat(timespec="milliseconds")
        self._events.add({"event": event, "iteration": iteration, "seconds": seconds, "time": stamp, **fields})

    def _go_on(self, iteration: int, branch: str, parent: str, new: bool) -> None:
        for lines in (self._metrics, self._events, self._evaluations):
            lines.add({"cut": iteration, **_named(branch, parent)} | ({"new": True} if new else {}))
        kept = 0 if new else iteration   # nothing of a deleted one that had the name
        if self._board is not None:
            self._board.go_on(kept, branch)
        self._branch = branch
        for folder in (self.folder / "thumbnails" / branch).glob("iteration_*"):
            number = folder.name.removeprefix("iteration_")
            if number.isdigit() and int(number) > kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _open_board(self) -> None:
        from app.records.tensorboard import Board

        self._board = Board(self.folder / "tb")

    def _draw(self) -> None:
        from app.records.derived import write_derived

        self._write()
        write_derived(self.folder)

    def _finish(self) -> None:
        self._ending = True
        if self._seen_step:
            self._unfinished = not self._attempt(self._draw)
        if self._board is not None:
            with contextlib.suppress(OSError):
                self._board.close()


def _named(branch: str, parent: str) -> dict[str, str]:
    return {"branch": branch, "parent": parent} if parent else {"branch": branch}
