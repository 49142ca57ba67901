"""Milliseconds that each stage took in the last step; the engine thread is the only writer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

OTHER = "other"
STAGES = ("project", "sh", "binning", "rasterize", "loss", "backward", "adam", OTHER)
"""`other` is the rest of a step: activations, the target, densification. So the stages add up to the step."""

_last: dict[str, float] = dict.fromkeys(STAGES, 0.0)
_in_step = False


@contextmanager
def step() -> Iterator[dict[str, float]]:
    """Within the block every stage adds up what it takes, over all views and parameter groups of a training step.

    Yields the dictionary that holds the figures (ms) once the block has ended.
    """
    global _in_step
    _last.update(dict.fromkeys(STAGES, 0.0))
    _in_step, start = True, time.perf_counter()
    figures: dict[str, float] = {}
    try:
        yield figures
    finally:
        _in_step = False
        _last[OTHER] = max(0.0, 1e3 * (time.perf_counter() - start) - sum(_last.values()))
        figures.update(_last)


@contextmanager
def measure(stage: str) -> Iterator[None]:
    """Record the time of the block under `stage`."""
    start = time.perf_counter()
    try:
        yield
    finally:
        record(stage, 1e3 * (time.perf_counter() - start))


def record(stage: str, milliseconds: float) -> None:
    """Add to the stage's time in this step; outside a step, as when a view is drawn, the newest figure stands alone."""
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; choose one of {', '.join(STAGES)}")
    _last[stage] = milliseconds + (_last[stage] if _in_step else 0.0)


def last_stage_ms() -> dict[str, float]:
    """A copy of the latest figures, ms."""
    return dict(_last)
