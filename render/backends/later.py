"""What a GPU has found and the host need not know yet."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Later:
    """Numbers that stay on the device until the host has to wait for one anyway, and are then read with it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Callable[[list[float]], None]]] = []

    def put(self, values: Tensor, tell: Callable[[list[float]], None]) -> None:
        """`tell` is called with the numbers of `values` [n] at the next read."""
        self._waiting.append((values, tell))

    def read(self, now: Tensor) -> list[float]:
        """The numbers of `now` [n], read in one transfer with all that waits; integers are exact below 2^53."""
        numbers = torch.cat([now.double(), *(values.double() for values, _ in self._waiting)]).tolist()
        waiting, self._waiting = self._waiting, []   # only now: what could not be read still waits
        place = len(now)
        for values, tell in waiting:
            tell(numbers[place:place + len(values)])
            place += len(values)
        return numbers[:len(now)]

    def settle(self) -> None:
        """Wait for all that was put."""
        if self._waiting:
            self.read(self._waiting[0][0].new_empty(0))
