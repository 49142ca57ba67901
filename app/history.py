"""The curves of a run: every value is kept, and what is published is a min/max decimation that keeps each spike."""

from __future__ import annotations

import numpy as np

from app.curves import MAX_POINTS, decimate
from app.messages import Curve


class Series:
    """A growing curve; appending is amortised O(1)."""

    def __init__(self) -> None:
        self._data = np.empty((2, 1024), dtype=np.float64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, x: float, y: float) -> None:
        if self._count == self._data.shape[1]:
            self._data = np.concatenate([self._data, np.empty_like(self._data)], axis=1)
        self._data[:, self._count] = x, y
        self._count += 1

    def extend(self, x: np.ndarray, y: np.ndarray) -> None:
        for pair in zip(x.tolist(), y.tolist(), strict=True):
            self.append(*pair)

    def until(self, x: float) -> Series:
        """A copy of the part up to `x`."""
        series = Series()
        series._count = int(np.searchsorted(self._data[0, :self._count], x, side="right"))
        series._data = np.empty((2, max(1024, series._count)))
        series._data[:, :series._count] = self._data[:, :series._count]
        return series

    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """(x [P], y [P]): views of everything ever appended."""
        return self._data[0, : self._count], self._data[1, : self._count]

    def curve(self, limit: int = MAX_POINTS) -> Curve:
        return decimate(*self.values(), limit)


class History:
    """All curves of one run, by the names that Snapshot.curves uses."""

    NAMES = ("loss", "train_psnr", "test_psnr", "count")

    def __init__(self) -> None:
        self.series = {name: Series() for name in self.NAMES}

    def add(self, iteration: int, **values: float) -> None:
        for name, value in values.items():
            self.series[name].append(iteration, value)

    def until(self, iteration: int) -> History:
        """A copy of what was up to an iteration, to go on with."""
        history = History()
        for name, series in self.series.items():
            history.series[name] = series.until(iteration)
        return history

    def curves(self) -> dict[str, Curve]:
        return {name: series.curve() for name, series in self.series.items()}


class Smoothed:
    """Exponentially smoothed numbers by name; the first value of a name is taken as it is."""

    def __init__(self, weight: float = 0.1) -> None:
        self.weight = weight
        self.values: dict[str, float] = {}

    def add(self, **values: float) -> None:
        for name, value in values.items():
            old = self.values.get(name)
            self.values[name] = value if old is None else old + self.weight * (value - old)

    def clear(self) -> None:
        self.values = {}
