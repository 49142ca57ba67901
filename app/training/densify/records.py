"""Who took part in past events, within a budget of memory."""

from __future__ import annotations

from collections import deque

from app.training.densify.base import DensifyRecord

BUDGET = 64 << 20
"""Bytes of uids and values; older events keep their counts alone."""


def nbytes(record: DensifyRecord) -> int:
    arrays = (record.cloned, record.split, record.pruned, record.born, record.parents, record.relocated)
    return sum(a.nbytes for a in arrays) + sum(why.uids.nbytes + why.values.nbytes for why in record.why)


def keep_within(records: deque[DensifyRecord], budget: int = BUDGET) -> None:
    """Strip the oldest where all together take more; the newest stays whole."""
    total = 0
    for place in range(len(records) - 1, -1, -1):
        total += nbytes(records[place])
        if total > budget and place < len(records) - 1 and nbytes(records[place]):
            total -= nbytes(records[place])
            records[place] = DensifyRecord(records[place].event, histogram=records[place].histogram)
