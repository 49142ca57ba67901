"""The loss of every scene view, as a job; its result is plain values, for the window reads it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal

COLUMNS = ("view", "split", "loss", "l1", "psnr", "ssim")


@dataclass(frozen=True)
class ViewLoss:
    """One view at one iteration; `index` is its place among the scene's views. PSNR in dB, of colours clamped to [0,1]."""

    index: int
    name: str
    split: Literal["train", "test"]
    loss: float
    l1: float
    psnr: float
    ssim: float


def as_csv(iteration: int, rows: tuple[ViewLoss, ...]) -> bytes:
    """UTF-8 with a header line; the iteration stands in every row, so that files can be put together."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("iteration", *COLUMNS))
    for row in rows:
        writer.writerow((iteration, row.name, row.split, *(f"{value:.8g}" for value in (row.loss, row.l1, row.psnr, row.ssim))))
    return text.getvalue().encode("utf-8")
