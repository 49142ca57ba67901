"""The report as one PNG: each scene in both rasterizers, the difference, and the errors per parameter as bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from app.inspection.audit.types import PARAMETERS, Comparison, Report

SMALLEST = 1e-16
"""What an error of 0 is drawn as on the logarithmic axis."""


def save_png(report: Report, path: str | Path) -> None:
    """Write the figure. Raises OSError where the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # half a second that only a picture is worth
    from matplotlib.figure import Figure

    rows = len(report.comparisons)
    figure = Figure(figsize=(15, 2.9 * rows + 1.0), layout="constrained")
    FigureCanvasAgg(figure)   # off-screen, whatever the user's default backend is
    verdict = ", ".join(fault.id for fault in report.faults) or "no fault"
    figure.suptitle(f"{report.target}, {report.dtype}: {verdict}", fontsize=13)
    axes = figure.subplots(rows, 4, squeeze=False, width_ratios=[1, 1, 1, 1.4])
    for row, comparison in zip(axes, report.comparisons, strict=True):
        _pictures(row, comparison)
        _bars(row[3], comparison, report)
    with open(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=90)


def _pictures(row: np.ndarray, c: Comparison) -> None:
    image, reference = c.image.numpy(), c.reference.numpy()
    difference = np.abs(np.nan_to_num(image, posinf=1.0, neginf=0.0) - reference).max(axis=-1)
    for axis, picture, title in ((row[0], image, c.name), (row[1], reference, "reference")):
        axis.imshow(np.clip(np.nan_to_num(picture), 0, 1), interpolation="nearest")
        axis.set_title(title, fontsize=10)
    shown = row[2].imshow(difference, cmap="viridis", interpolation="nearest", vmin=0, vmax=max(difference.max(), 1e-12))
    row[2].set_title(f"|difference|, largest {difference.max():.1e}", fontsize=10)
    row[2].figure.colorbar(shown, ax=row[2], shrink=0.8)
    for axis in row[:3]:
        axis.set_xticks([])
        axis.set_yticks([])


def _bars(axis, c: Comparison, report: Report) -> None:
    """Relative errors on a logarithmic axis, red where they are above what is allowed."""
    names = ["image", *(name for name in PARAMETERS if c.gradient_errors[name] is not None)]
    errors = [c.image_error, *(float(c.gradient_errors[name] or 0.0) for name in names[1:])]
    allowed = [report.image_tolerance] + [report.gradient_tolerance] * (len(names) - 1)
    values = [min(max(e, SMALLEST), 1e2) for e in errors]
    colors = ["#c0392b" if e > limit else "#2e7d6b" for e, limit in zip(errors, allowed, strict=True)]
    axis.barh(range(len(names)), values, left=SMALLEST, color=colors)
    for place, limit in enumerate(allowed):
        axis.plot([limit, limit], [place - 0.4, place + 0.4], color="black", linewidth=1.2)
    axis.set_xscale("log")
    axis.set_xlim(SMALLEST, max(10.0, *values))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_title("max relative error; line = allowed", fontsize=10)
