"""What is made of the lines of a record: tables for spreadsheets and the three plots."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.data.atomic import write_atomic
from app.records.read import Run, read_run

COLUMNS = ("iteration", "loss", "l1", "psnr", "ssim", "gaussians", "seconds", "iterations_per_second", "sh_degree",
           "means_lr", "memory")
VIEW_COLUMNS = ("iteration", "view", "psnr", "ssim", "lpips")


def write_derived(folder: Path) -> None:
    """Write metrics.csv, eval.csv and plots/*.png of the run in a folder. Raises SceneError where that cannot be done."""
    from app.records.plots import png, run_plots

    run = read_run(folder)
    _write(folder / "metrics.csv", table(COLUMNS, run.metrics))
    views = scores(run)
    if views:
        _write(folder / "eval.csv", table(VIEW_COLUMNS, views))
    for name, figure in run_plots(run).items():
        _write(folder / "plots" / f"{name}.png", png(figure))


def scores(run: Run) -> list[dict[str, Any]]:
    """A row per evaluation and view."""
    return [{**view, "iteration": test["iteration"], "view": view.get("name")}
            for test in run.evaluations for view in test.get("views") or ()]


def table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> bytes:
    """CSV in UTF-8; what a row does not have is left empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _write(path: Path, data: bytes) -> None:
    write_atomic(path, lambda stream: stream.write(data))
