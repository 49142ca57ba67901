"""What a step measured and whether all of it was finite.

On the CPU both are known at once. A GPU is asked only when the host has to wait for it anyway, in the next step: until then
the optimiser and the statistics of a step that was not finite have held still by themselves, on the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


class TrainingStopped(RuntimeError):
    """A loss or gradient was not finite. The parameters are those of before the step (N16)."""


@dataclass(frozen=True)
class Measured:
    """Means over the views of the step `iteration`, before its update; NaN where nothing was measured yet."""

    iteration: int = 0
    loss: float = math.nan
    l1: float = math.nan
    mse: float = math.nan
    ssim: float = math.nan

    @property
    def psnr(self) -> float:
        return psnr_of(self.mse)


def psnr_of(mse: float) -> float:
    """Peak signal-to-noise ratio in dB of a mean squared error, for a peak of 1."""
    return -10.0 * math.log10(max(mse, 1e-12)) if not math.isnan(mse) else math.nan


def all_finite(gradients: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
    """[1] int32 on the device: 1 when neither a gradient nor one of `numbers` is NaN or infinite.

    A sum carries every NaN and infinity, and in float64 sums of finite float32 values stay finite. shN, three quarters of
    all numbers, need not be read: its gradient is that of sh0 times bounded SH bases.
    """
    sums = [gradient.sum(dtype=torch.float64) for name, gradient in gradients.items() if name != "shN"]
    return torch.stack([*sums, numbers.sum(dtype=torch.float64)]).isfinite().all().to(torch.int32).reshape(1)


def first_bad(gradients: Mapping[str, Tensor]) -> tuple[str, int, int] | None:
    """(group, number of Gaussians, the first one's row) of the first gradient that is not finite; None = all are."""
    for name, gradient in gradients.items():
        # a sum of finite values may overflow, so it is only the reason to look
        if name == "shN" or math.isfinite(float(gradient.sum())):
            continue
        bad = torch.nonzero(~torch.isfinite(gradient.reshape(len(gradient), -1)).all(dim=1))[:, 0]
        if len(bad):
            return name, len(bad), int(bad[0])
    return None
