"""How the number of Gaussians came about: births and deaths over the iterations, in bounded memory. No Dear PyGui."""

from __future__ import annotations

import numpy as np

from app.messages import Densified

LIMIT = 2000
"""Points at most; then neighbours are put together."""
FIELDS = ("iteration", "born", "split", "relocated", "pruned", "total")
"""Columns: born = clones and copies that add to the count, split = Gaussians replaced by two, total = afterwards."""
ITERATION, BORN, SPLIT, RELOCATED, PRUNED, TOTAL = range(len(FIELDS))


class Population:
    """Events as rows of FIELDS; opacity resets by their iterations."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rows = np.zeros((limit, len(FIELDS)))
        self._count = 0
        self._resets: list[int] = []

    def add(self, event: Densified) -> None:
        """One event; several of one iteration count as one."""
        if event.reset:
            self._resets.append(event.iteration)
            del self._resets[:-self._limit]
        counts = (event.cloned + event.added, event.split, event.relocated, event.pruned)
        if not any(counts) and self._count and self._rows[self._count - 1, TOTAL] == event.count:
            return
        if self._count and self._rows[self._count - 1, ITERATION] == event.iteration:
            row = self._rows[self._count - 1]
            row[BORN:TOTAL] += counts
            row[TOTAL] = event.count
            return
        if self._count == self._limit:
            self._halve()
        self._rows[self._count] = event.iteration, *counts, event.count
        self._count += 1

    def rewind(self, iteration: int) -> None:
        """What came later is no longer history."""
        self._count = int((self._rows[:self._count, ITERATION] <= iteration).sum()) if iteration else 0
        self._resets = [i for i in self._resets if i <= iteration] if iteration else []

    @property
    def table(self) -> np.ndarray:
        """[E, len(FIELDS)], oldest first."""
        return self._rows[:self._count]

    @property
    def resets(self) -> list[int]:
        return self._resets

    def stacked(self) -> dict[str, np.ndarray]:
        """[E] each, for bars from 0: births one on top of the other, deaths downwards."""
        _, born, split, relocated, pruned, _ = self.table.T
        return {"born": born, "split": born + split, "relocated": born + split + relocated, "pruned": -pruned}

    def _halve(self) -> None:
        """Each pair of neighbours becomes one: counts add up, iteration and total are those of the later."""
        pairs = self._rows.reshape(-1, 2, len(FIELDS))
        merged = pairs.sum(axis=1)
        merged[:, ITERATION], merged[:, TOTAL] = pairs[:, 1, ITERATION], pairs[:, 1, TOTAL]
        self._count = len(merged)
        self._rows[:self._count] = merged
