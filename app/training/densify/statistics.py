"""The densification statistic: screen-space gradients of one view's loss, averaged over the views with the Gaussian."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig
from app.messages import Histogram
from app.training.densify.base import ViewGradients
from app.training.rows import Rows

SUM = "stat.sum"
ABS_SUM = "stat.abs_sum"
COUNT = "stat.count"
SILENT = "stat.silent"
RADIUS = "stat.radius"
PER_NDC = "per half image"
"""Unit of screen-space gradients: loss per half the image's width or height, independent of the resolution."""
HISTOGRAM_BINS = 48


def threshold_path(config: DensifyConfig) -> str:
    """The field that holds the threshold in use (F09)."""
    if config.strategy == "absgs":
        return "densify.absgs_threshold"
    return "densify.absgrad_threshold" if config.absolute else "densify.grad_threshold"


def threshold(config: DensifyConfig) -> float:
    """The threshold that goes with the statistic in use (F09)."""
    return getattr(config, threshold_path(config).removeprefix("densify."))


def statistic_label(absgrad: bool) -> str:
    """Which screen-space gradient the densification statistic averages (F09)."""
    return f"mean |∂L/∂mean2D|, {'sum of absolutes (AbsGS)' if absgrad else 'signed sum'}, {PER_NDC}"


def screen_gradient(v_means2d: Tensor, width: int, height: int) -> Tensor:
    """[N]: the norm of (v_x W/2, v_y H/2), the gradient per half image instead of per pixel (Kerbl et al. 2023)."""
    x, y = v_means2d[:, 0] * (0.5 * width), v_means2d[:, 1] * (0.5 * height)   # no tensor of two: a GPU would wait for it
    return torch.sqrt(x * x + y * y)


class GradientStatistics:
    """Sums and counts since the last densification, kept in the registry under "stat.".

    Only elementwise arithmetic and square roots: these have the same bits on any number of threads.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        if COUNT not in rows:
            self.clear()

    def clear(self) -> None:
        for name in (SUM, ABS_SUM, COUNT, SILENT, RADIUS):
            self.rows.put(name, self.rows["means"].new_zeros(len(self.rows), requires_grad=False))

    @torch.no_grad()
    def add(self, seen: ViewGradients, absgrad: bool) -> None:
        """Take in one view. Raises RuntimeError when it speaks of rows from before a densification (F05)."""
        rows, tap = self.rows, seen.tap
        if seen.generation != rows.generation:
            raise RuntimeError(f"gradients of generation {seen.generation} cannot be added to rows of generation "
                               f"{rows.generation}: row indices are invalid after a densification")
        if tap.v_means2d is None:
            raise RuntimeError("the gradient tap is empty: backward has not run on this render")
        radius = torch.maximum(seen.extents[:, 0], seen.extents[:, 1])
        if seen.ok is not None:
            radius = radius * seen.ok
        visible = (radius > 0).to(radius.dtype)
        signed = screen_gradient(tap.v_means2d, seen.camera.width, seen.camera.height)
        rows[SUM].add_(torch.where(visible > 0, signed, 0.0))
        rows[COUNT].add_(visible)
        rows[SILENT].add_(visible * (signed == 0))
        rows.put(RADIUS, torch.maximum(rows[RADIUS], radius))
        if absgrad and tap.v_abs_means2d is not None:
            absolute = screen_gradient(tap.v_abs_means2d, seen.camera.width, seen.camera.height)
            rows[ABS_SUM].add_(torch.where(visible > 0, absolute, 0.0))

    def average(self, absgrad: bool) -> Tensor:
        """[N]: the statistic; 0 where no view has seen the Gaussian (F17)."""
        total = self.rows[ABS_SUM if absgrad else SUM]
        return total / self.rows[COUNT].clamp(min=1.0)

    @property
    def never_seen(self) -> Tensor:
        """[N] bool: no view has seen it since the last densification."""
        return self.rows[COUNT] == 0

    @property
    def visible_without_gradient(self) -> Tensor:
        """[N] bool: seen, and in every such view without any gradient (N26)."""
        count = self.rows[COUNT]
        return (count > 0) & (self.rows[SILENT] == count)

    def histogram(self, config: DensifyConfig) -> Histogram:
        """The statistic of the Gaussians that were seen, with its threshold."""
        limit, seen = threshold(config), ~self.never_seen.cpu().numpy()
        values = self.average(config.absolute).cpu().numpy()[seen]
        return distribution(values, limit * 1e-3, limit * 1e2, limit, statistic_label(config.absolute),
                            threshold_path(config), float(1.0 - seen.mean()))


def distribution(values: np.ndarray, lo: float, hi: float, limit: float, label: str, path: str, never_seen: float = 0.0, *,
                 below: bool = False) -> Histogram:
    """`values` over logarithmic bins from `lo` to `hi`; those beyond, zero among them, are counted in the outer bins."""
    edges = np.geomspace(lo, hi, HISTOGRAM_BINS + 1)
    counts, _ = np.histogram(np.clip(values[~np.isnan(values)], edges[0], edges[-1]), edges)
    return Histogram(edges, counts, limit, label, never_seen, path, below)
