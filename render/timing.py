"""Milliseconds that each stage took in the last step; the engine thread is the only writer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("project", "sh", "binning", "rasterize", "loss", "backward", "adam")

_last: dict[str, float] = dict.fromkeys(STAGES, 0.0)
_open_sums: set[str] = set()


@contextmanager
def measure(stage: str, *, add: bool = False) -> Iterator[None]:
    """Record the time of the block under `stage`; `add` sums blocks since the last close_sums()."""
    start = time.perf_counter()
    try:
        yield
    finally:
        record(stage, 1e3 * (time.perf_counter() - start), add=add)


def record(stage: str, milliseconds: float, *, add: bool = False) -> None:
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; choose one of {', '.join(STAGES)}")
    _last[stage] = milliseconds + (_last[stage] if add and stage in _open_sums else 0.0)
    if add:
        _open_sums.add(stage)


def close_sums() -> None:
    """A new step begins: what was summed so far (adam, one call per parameter group) starts over at its next block."""
    _open_sums.clear()


def last_stage_ms() -> dict[str, float]:
    """A copy of the latest figures, ms."""
    return dict(_last)
