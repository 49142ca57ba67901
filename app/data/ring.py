"""Which checkpoints stay when there is not room for all: the newest, the first, and others farther apart the older."""

from __future__ import annotations

from collections.abc import Sequence

NEWEST = 2
"""So many of the newest always stay, whatever the budget: should one be damaged, the one before it is there."""


def surplus(entries: Sequence[tuple[int, int]], budget: int, newest: int = NEWEST) -> list[int]:
    """Indices to drop of `entries` (iteration, bytes), oldest first, so that the rest takes at most `budget` bytes; the last
    `newest` stay in any case.

    Dropped first is what leaves the smallest gap for its age, so that the kept ones thin out evenly towards the past.
    """
    kept = list(range(len(entries)))
    total = sum(size for _, size in entries)
    dropped: list[int] = []
    while total > budget and len(kept) > newest:
        last = entries[kept[-1]][0]
        inner = range(1, len(kept) - newest)
        at = min(inner, key=lambda k: (entries[kept[k + 1]][0] - entries[kept[k - 1]][0])
                 / (last - entries[kept[k]][0] + 1)) if inner else 0
        index = kept.pop(at)
        dropped.append(index)
        total -= entries[index][1]
    return sorted(dropped)
