"""Milliseconds that each stage took in the last step; the engine thread is the only writer.

A GPU works behind the host's back, so there marks are put into its queue, and read a step later, when it is long past them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OTHER = "other"
STAGES = ("project", "sh", "binning", "rasterize", "loss", "backward", "adam", OTHER)
"""`other` is the rest of a step: activations, the target, densification. So the stages add up to the step."""


MarkNow = Callable[[], Any]
"""Puts a point into a GPU's queue: a torch.cuda.Event, or what has its elapsed_time(later) in ms."""
Span = tuple[str, Any, Any]

_last: dict[str, float] = dict.fromkeys(STAGES, 0.0)
_in_step = False
_mark: MarkNow | None = None      # of the step under way, on a GPU
_spans: list[Span] = []           # of the step under way
_before: list[Span] = []          # of the one before


@contextmanager
def step(mark: MarkNow | None = None) -> Iterator[dict[str, float]]:
    """Within the block every stage adds up what it takes, over all views and parameter groups of a training step.

    Yields the dictionary that holds the figures (ms) once the block has ended: with `mark`, those of the step before.
    """
    global _in_step, _mark, _before
    _last.update(dict.fromkeys(STAGES, 0.0))
    _in_step, _mark, start = True, mark, time.perf_counter()
    whole = mark() if mark is not None else None
    figures: dict[str, float] = {}
    try:
        yield figures
    except BaseException:   # the host may not have waited in this step, so the marks of the one before cannot be read
        _spans.clear()
        mark = None
        raise
    finally:
        total = 1e3 * (time.perf_counter() - start)
        _in_step, _mark = False, None
        if mark is not None and whole is not None:
            _spans.append((OTHER, whole, mark()))
            _before, done = list(_spans), _before
            _spans.clear()
            total = _add_up(done)
        _last[OTHER] = max(0.0, total - sum(ms for stage, ms in _last.items() if stage != OTHER))
        figures.update(_last)


def _add_up(spans: list[Span]) -> float:
    """The figures of a step that the GPU has finished; returns what the whole of it took."""
    _last.update(dict.fromkeys(STAGES, 0.0))
    whole = 0.0
    for stage, begin, end in spans:
        took = begin.elapsed_time(end)
        if stage == OTHER:
            whole = took
        else:
            _last[stage] += took
    return whole


@contextmanager
def measure(stage: str) -> Iterator[None]:
    """Record the time of the block under `stage`."""
    if _mark is not None:
        begin = _mark()
        try:
            yield
        finally:
            _spans.append((_known(stage), begin, _mark()))
        return
    start = time.perf_counter()
    try:
        yield
    finally:
        record(stage, 1e3 * (time.perf_counter() - start))


def record(stage: str, milliseconds: float) -> None:
    """Add to the stage's time in this step; outside a step, as when a view is drawn, the newest figure stands alone."""
    _last[_known(stage)] = milliseconds + (_last[stage] if _in_step else 0.0)


def _known(stage: str) -> str:
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; choose one of {', '.join(STAGES)}")
    return stage


def last_stage_ms() -> dict[str, float]:
    """A copy of the latest figures, ms."""
    return dict(_last)
