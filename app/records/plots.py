"""Plots of one run or of several, drawn without a display and without matplotlib's global state, in any thread."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from app.records.read import Run, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D1F")
"""Okabe and Ito's, which people with colour blindness can tell apart; the lines differ in their dashes as well."""
DASHES = ("-", "--", "-.", ":")
SMOOTHED_SHARE = 0.015
"""The figures of single photographs differ by several dB, so the mean of their neighbours is drawn."""
PANELS = (("loss", "Training loss"), ("psnr", "PSNR [dB]"), ("gaussians", "Gaussians"))


def figure(width: float, height: float) -> Figure:
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)   # it tells of the cache that it builds once
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    stream = io.BytesIO()
    FigureCanvasAgg(drawn).print_png(stream)
    return stream.getvalue()


def shown(text: str) -> str:
    """A text for a plot; letters that its font does not have become question marks, without a warning for each."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(letter if ord(letter) in known else "?" for letter in text)


def smoothed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[P] the mean of the values within SMOOTHED_SHARE of the run on either side; NaN counts for nothing. x rises."""
    if len(x) < 3:
        return y
    known = np.isfinite(y)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(known, y, 0.0), known))
    reach = SMOOTHED_SHARE * (x[-1] - x[0])
    first, end = np.searchsorted(x, x - reach, "left"), np.searchsorted(x, x + reach, "right")
    count = counts[end] - counts[first]
    return np.where(count > 0, (sums[end] - sums[first]) / np.maximum(count, 1.0), np.nan)


def run_plots(run: Run) -> dict[str, Figure]:
    """loss, psnr and count of one run, over its iterations."""
    found = {}
    for file, (name, label) in zip(("loss", "psnr", "count"), PANELS, strict=True):
        drawn = figure(7.2, 4.0)
        axes = drawn.add_subplot()
        _curve(axes, run, name, COLORS[0], "-", "training" if name == "psnr" else "", faint=True)
        _frame(axes, run, name, label)
        axes.set_title(shown(run.name), fontsize=10, loc="left", parse_math=False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8, frameon=False)
        found[file] = drawn
    return found


def side_by_side(runs: Sequence[Run], names: Sequence[str]) -> Figure:
    """Loss, PSNR and count of several runs over iterations, and the held-out PSNR over training time."""
    drawn = figure(11.0, 7.4)
    grid = drawn.subplots(2, 2)
    for index, (run, title) in enumerate(zip(runs, names, strict=True)):
        color, dash = COLORS[index % len(COLORS)], DASHES[index // len(COLORS) % len(DASHES)]
        for axes, (name, _) in zip(grid.flat, PANELS, strict=False):
            _curve(axes, run, name, color, dash, shown(title))
        _over_time(grid[1, 1], run, color, dash)
    for axes, (name, label) in zip(grid.flat, PANELS, strict=False):
        _frame(axes, None, name, label)
    grid[1, 1].set(xlabel="training time [s]", ylabel="held-out PSNR [dB]")
    grid[1, 1].grid(alpha=0.25)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    legend = drawn.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return drawn


def _curve(axes: Any, run: Run, name: str, color: str, dash: str, title: str, *, faint: bool = False) -> None:
    x, y = (np.asarray(values, float) for values in run.series(name))
    if name == "gaussians":
        axes.plot(x, y, dash, color=color, lw=1.6, label=title or None)
    else:
        if faint:
            axes.plot(x, y, color=color, lw=0.6, alpha=0.3)
        axes.plot(x, smoothed(x, y), dash, color=color, lw=1.6, label=title or None)
    if name == "psnr" and run.evaluations:
        tests = run.evaluations
        axes.plot([test["iteration"] for test in tests], [number(test.get("psnr")) for test in tests],
                  color=COLORS[1] if faint else color, lw=0.8, ls=":" if not faint else "-", marker="o", ms=3.5,
                  label="held out" if faint else None)


def _over_time(axes: Any, run: Run, color: str, dash: str) -> None:
    tests = run.evaluations
    axes.plot([number(test.get("seconds")) for test in tests], [number(test.get("psnr")) for test in tests], dash,
              color=color, lw=1.6, marker="o", ms=3.5)


def _frame(axes: Any, run: Run | None, name: str, label: str) -> None:
    axes.set(xlabel="iteration", ylabel=label + (" (dotted: held out)" if run is None and name == "psnr" else ""))
    axes.grid(alpha=0.25)
    if name == "loss":
        axes.set_yscale("log")
    if name == "gaussians":
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    resets = [event["iteration"] for event in run.events if event.get("event") == "densified" and event.get("reset")] \
        if run is not None else []
    for index, iteration in enumerate(resets):
        axes.axvline(iteration, color="0.6", lw=0.8, ls="--", label="opacity reset" if index == 0 else None)
