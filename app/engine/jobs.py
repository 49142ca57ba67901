"""Long work in small bites: a job is a generator that the engine advances for at most 50 ms a turn.

A job yields (fraction, text) when there is progress to show, or None when it waits for a helper thread or for the next
turn.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from app.messages import Event, JobProgress

BUDGET = 0.05
"""Seconds of job work in one turn."""
Work = Generator["tuple[float, str] | None", None, None]


class Refused(ValueError):
    """What the user asked for cannot be done; the message is one sentence for them."""


@dataclass
class Job:
    """`exclusive` work wants the model to stand still: no training step is taken while it runs. A job of minutes
    `gives_way`: others that come later run before it goes on."""

    name: str
    work: Work
    exclusive: bool = True
    gives_way: bool = False


class Jobs:
    """The queue of jobs. One runs at a time; the others wait in order."""

    def __init__(self, emit: Callable[[Event], None], failed: Callable[[str, BaseException], None]) -> None:
        self._queue: deque[Job] = deque()
        self._emit = emit
        self._failed = failed
        self.progress: JobProgress | None = None   # of the running job
        self.waiting = False                       # for a helper thread, which wakes the engine up

    @property
    def current(self) -> Job | None:
        return self._queue[0] if self._queue else None

    @property
    def exclusive(self) -> bool:
        return bool(self._queue) and self._queue[0].exclusive

    @property
    def free(self) -> bool:
        """Whether a new job would run at once."""
        return all(job.gives_way for job in self._queue)

    def has(self, name: str) -> bool:
        return any(job.name == name for job in self._queue)

    def add(self, job: Job) -> None:
        self._queue.append(job)
        if len(self._queue) == 1:
            self._report(JobProgress(job.name, 0.0))

    def cancel(self) -> bool:
        """Stop the running job; False when there is none."""
        if not self._queue:
            return False
        job = self._queue[0]
        job.work.close()
        self._end(job, "cancelled")
        return True

    def cancel_named(self, *names: str) -> None:
        """Stop, or take out of the queue, every job of these names."""
        for job in [job for job in self._queue if job.name in names]:
            job.work.close()
            self._end(job, "cancelled")

    def cancel_all(self) -> None:
        while self.cancel():
            pass

    def finish(self, name: str) -> None:
        """Work off every job of this name, whatever waits before it: the engine is about to stop."""
        for job in [job for job in self._queue if job.name == name]:
            try:
                for _ in job.work:
                    time.sleep(0.005)
            except Exception as error:  # noqa: BLE001 - the engine tells the user
                self._failed(job.name, error)
            self._end(job, "")

    def advance(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Work on the running job for BUDGET seconds, or until it waits or ends."""
        self.waiting = False
        if len(self._queue) > 1 and self._queue[0].gives_way:
            self._queue.rotate(-1)
            self._report(JobProgress(self._queue[0].name, 0.0))
        deadline = clock() + BUDGET
        while self._queue:
            job = self._queue[0]
            try:
                news = next(job.work)
            except StopIteration:
                self._end(job, "")
                continue
            except Exception as error:  # noqa: BLE001 - the engine tells the user
                self._end(job, "failed")
                self._failed(job.name, error)
                continue
            if news is None:
                self.waiting = True
                return
            self._report(JobProgress(job.name, *news))
            if clock() >= deadline:
                return

    def _report(self, progress: JobProgress) -> None:
        if progress != self.progress:
            self.progress = progress
            self._emit(progress)

    def _end(self, job: Job, text: str) -> None:
        was_running = self._queue[0] is job
        self._queue.remove(job)
        if was_running:
            self.progress = None
        self._emit(JobProgress(job.name, 1.0 if not text else 0.0, text, done=True))
        if was_running and self._queue:
            self._report(JobProgress(self._queue[0].name, 0.0))
