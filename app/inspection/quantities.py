"""Instruments over all Gaussians: how a quantity is distributed, who leads by it, and what the selected ones add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.colormaps import auto_range
from app.inspection.questions import HistogramQuestion, Sight, SummaryQuestion, TableQuestion, Unanswerable
from app.inspection.results import Column, Distribution, Moments, Ranking, Summary
from app.training.arrays import host
from app.training.marks import FROZEN, HIDDEN, SELECTED
from app.training.quantities.registry import Probe, Unreadable

if TYPE_CHECKING:
    from app.engine.model import Model


def _values(model: Model, quantity: str, sight: Sight | None) -> tuple[Probe, np.ndarray]:
    """A quantity [N] float32, NaN where a Gaussian has no value. Raises Unreadable."""
    reading = model.reading(quantity, sight.camera if sight is not None else None)
    return reading.probe, np.where(host(reading.unseen), np.float32(np.nan), host(reading.values))


def _mark(model: Model, name: str) -> np.ndarray:
    mark = model.mark(name)
    return np.zeros(len(model.params), bool) if mark is None else host(mark)


# ------------------------------------------------------------------ histogram

def histogram(model: Model, question: HistogramQuestion) -> Distribution:
    """The bins span what the colours of a heatmap span; a selection by a range of values counts the same Gaussians."""
    probe, values = _values(model, question.quantity, question.sight)
    known = np.isfinite(values)
    if not known.any():
        raise Unanswerable(f"No Gaussian has a value of {probe.label} now.")
    shown = values[known]
    positive = shown > 0
    log = (probe.log if question.log is None else question.log) and not probe.signed and bool(positive.any())
    lo, hi = _span(shown[positive] if log else shown, probe, log)
    edges = np.geomspace(lo, hi, question.bins + 1) if log else np.linspace(lo, hi, question.bins + 1)
    place = _bins(shown, lo, hi, question.bins, log)
    counts = np.bincount(place, minlength=question.bins)
    mask = model.mark(SELECTED)
    marked = np.zeros_like(counts) if mask is None else np.bincount(place[host(mask)[known]], minlength=question.bins)
    return Distribution(
        question.quantity, probe.label, probe.unit, probe.signed, log, edges, counts, marked, float(shown.min()),
        float(shown.max()), float(shown.mean(dtype=np.float64)), float(np.median(shown)),
        int(len(shown) - positive.sum()), int(len(values) - known.sum()), len(values))


def _span(values: np.ndarray, probe: Probe, log: bool) -> tuple[float, float]:
    lo, hi = auto_range(values, log=log, signed=probe.signed)
    if not log and not probe.signed:   # a bounded quantity is shown whole where outliers do not stretch it
        low, high = float(values.min()), float(values.max())
        if high - low < 3.0 * (hi - lo):
            lo, hi = low, high
    return (lo, hi) if hi > lo else (lo - 0.5, lo + 0.5)


def _bins(values: np.ndarray, lo: float, hi: float, count: int, log: bool) -> np.ndarray:
    """The bin of each value; those beyond the ends are in the outer bins."""
    if log:
        lo, hi = float(np.log10(lo)), float(np.log10(hi))
        values = np.log10(np.maximum(values, np.float32(1e-37)))
    return np.clip((values - np.float32(lo)) * np.float32(count / (hi - lo)), 0, count - 1).astype(np.int32)


# ------------------------------------------------------------------ table

def table(model: Model, question: TableQuestion) -> Ranking:
    """Ties go to the older row, so that the order stands still where the values do."""
    probe, values = _values(model, question.quantity, question.sight)
    key = {"largest": -values, "smallest": values, "largest absolute": -np.abs(values)}[question.order]
    candidates = np.isfinite(values)
    selected = _mark(model, SELECTED)
    if question.selected_only:
        candidates = candidates & selected
    rows = np.flatnonzero(candidates)
    if not len(rows):
        raise Unanswerable("No selected Gaussian has a value." if question.selected_only and selected.any() else
                           "Nothing is selected." if question.selected_only else
                           f"No Gaussian has a value of {probe.label} now.")
    total, keys = len(rows), key[rows]
    if total > question.count:
        limit = np.partition(keys, question.count - 1)[question.count - 1]
        near = keys <= limit
        rows, keys = rows[near], keys[near]
    rows = rows[np.argsort(keys, kind="stable")[:question.count]]
    columns = [Column(probe.name, probe.label, probe.unit, values[rows])]
    for name in question.columns:
        if name == question.quantity:
            continue
        try:
            other, numbers = _values(model, name, question.sight)
        except Unreadable:
            continue
        columns.append(Column(name, other.label, other.unit, numbers[rows]))
    return Ranking(host(model.params.uids)[rows], selected[rows], tuple(columns), total)


# ------------------------------------------------------------------ selection

def summary(model: Model, question: SummaryQuestion) -> Summary:
    """What the selected Gaussians are, taken together. Sums are in float64."""
    selected = _mark(model, SELECTED)
    rows = np.flatnonzero(selected)
    if not len(rows):
        raise Unanswerable("Nothing is selected.")
    uids = host(model.params.uids)[rows]
    found = []
    for name in question.quantities:
        try:
            probe, values = _values(model, name, question.sight)
        except Unreadable:
            continue
        found.append(_moments(probe, values[rows], uids))
    born, roots = 0, len(rows)
    if model.trainer is not None:
        lineage = model.trainer.lineage
        ancestors = lineage.ancestors(uids, lineage.first_born)
        born, roots = int((uids >= lineage.first_born).sum()), len(np.unique(ancestors))
    return Summary(len(rows), int(_mark(model, FROZEN)[rows].sum()), int(_mark(model, HIDDEN)[rows].sum()), born, roots,
                   tuple(found))


def _moments(probe: Probe, values: np.ndarray, uids: np.ndarray) -> Moments:
    known = np.isfinite(values)
    if not known.any():
        nan = float("nan")
        return Moments(probe.name, probe.label, probe.unit, 0, nan, nan, nan, nan, -1, -1)
    shown, who = values[known].astype(np.float64), uids[known]
    low, high = int(shown.argmin()), int(shown.argmax())
    return Moments(probe.name, probe.label, probe.unit, len(shown), float(shown.sum()), float(shown.mean()),
                   float(shown[low]), float(shown[high]), int(who[low]), int(who[high]))
