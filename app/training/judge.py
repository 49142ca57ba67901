"""Whether a step's numbers are finite, and what a GPU says of them a step later."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from app.training.verdict import Measured, all_finite
from render.backends import cuda


class Judge:
    """What the steps so far measured. On the CPU that is known at once, on a GPU in the next step."""

    def __init__(self) -> None:
        self.measured = Measured()
        self.failed = 0                  # the iteration that a GPU found not to be finite
        self.failed_loss = math.nan

    def take(self, iteration: int, terms: list[Tensor]) -> None:
        """Known at once: `terms` are [4] = loss, l1, mse, ssim of each view."""
        # one after the other: torch's own mean would depend on its number of threads
        columns = zip(*(row.tolist() for row in terms), strict=True)
        self.measured = Measured(iteration, *(sum(column) / len(terms) for column in columns))

    def ask(self, iteration: int, gradients: dict[str, Tensor], terms: list[Tensor]) -> Tensor:
        """[1] flag on the device: 1 = all is finite. The host is told later."""
        numbers = torch.stack(terms).mean(0)
        ok = all_finite(gradients, numbers)
        cuda.later.put(torch.cat([ok.double(), numbers.double()]), lambda values: self._told(iteration, values))
        return ok

    def _told(self, iteration: int, values: list[float]) -> None:
        if values[0]:
            self.measured = Measured(iteration, *values[1:])
        else:
            self.failed, self.failed_loss = iteration, values[1]
