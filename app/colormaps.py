"""From numbers to colours, for the pictures and for the legends beside them. Torch-free: window and engine share it."""

from __future__ import annotations

from functools import cache

import numpy as np

NEVER_SEEN = (0.32, 0.32, 0.34)
"""Grey of what has no value, e.g. a Gaussian that no view has seen."""
PERCENTILES = (1.0, 99.0)
"""The automatic range leaves out this share of outliers at either end."""
LOG_DECADES = 4.0
"""An automatic logarithmic range spans at most this many decades below its top."""
LARGEST = 1e37
"""Ends of a range beyond this would overflow float32 on the way to a colour."""
_RANGE_SAMPLES = 65_536


@cache
def lut(name: str) -> np.ndarray:
    """[256,3] float32 sRGB colours of a matplotlib map (viridis, turbo, coolwarm ...); read-only."""
    from matplotlib import colormaps

    table = np.ascontiguousarray(colormaps[name](np.linspace(0.0, 1.0, 256))[:, :3], dtype=np.float32)
    table.setflags(write=False)
    return table


def normalise(values: np.ndarray, lo: float, hi: float, log: bool = False) -> np.ndarray:
    """float32 in [0,1]: where a value lies between lo and hi, clamped; NaN stays NaN. With `log`, lo must be > 0."""
    values = np.asarray(values, dtype=np.float32)
    if log:
        lo, hi = float(np.log10(lo)), float(np.log10(hi))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.log10(np.maximum(values, np.float32(1e-37)))
    span = hi - lo
    if not span > 0.0:
        return np.where(np.isnan(values), np.float32(np.nan), np.float32(0.5)).astype(np.float32)
    return (np.clip(values, np.float32(lo), np.float32(hi)) - np.float32(lo)) / np.float32(span)


def colorize(values: np.ndarray, colormap: str, lo: float, hi: float, log: bool = False) -> np.ndarray:
    """[...,3] float32 colours of `values` [...]; NaN becomes NEVER_SEEN grey."""
    t = normalise(values, lo, hi, log)
    unknown = np.isnan(t)
    index = (np.where(unknown, 0.0, t) * 255.0 + 0.5).astype(np.intp)
    colors = lut(colormap)[index]
    if unknown.any():
        colors[unknown] = NEVER_SEEN
    return colors


def auto_range(values: np.ndarray, *, log: bool = False, signed: bool = False) -> tuple[float, float]:
    """(lo, hi) that holds most of the finite values; symmetric around 0 when signed, both > 0 when log.

    (0, 1), or (-1, 1) when signed, where there is no finite value.
    """
    flat = np.asarray(values, dtype=np.float32).reshape(-1)
    if flat.size > _RANGE_SAMPLES:
        flat = flat[:: -(-flat.size // _RANGE_SAMPLES)]
    flat = flat[np.isfinite(flat)]
    if log:
        flat = flat[flat > 0.0]
    if flat.size == 0:   # every legend has two different ends
        return (1e-6, 1.0) if log else (-1.0, 1.0) if signed else (0.0, 1.0)
    lo, hi = (float(v) for v in np.percentile(np.clip(flat, -LARGEST, LARGEST), PERCENTILES))
    if signed:
        hi = max(abs(lo), abs(hi))
        lo = -hi
    if log:
        lo = max(lo, hi * 10.0 ** -LOG_DECADES)
    if not hi > lo:   # one single value: a range around it
        pad = max(abs(hi) * 0.5, 1e-6)
        lo, hi = (hi / 2.0, hi * 2.0) if log else (hi - pad, hi + pad)
    return lo, hi
