"""The two slopes of a U-curve: the error of a central difference over its step, both on logarithmic axes."""

from __future__ import annotations

import math

import numpy as np

ABOVE_BOTTOM = 10.0
"""Points of a branch stand out of the bottom by this factor, so that the other branch and the floor do not bend them."""
BELOW_WHOLE = 0.1
"""Above this relative error a difference has left the neighbourhood of x: higher terms of the series count too."""
NEAREST = 10
"""Points of a branch that are fitted, those next to the bottom: the leading term of the series rules there."""


def slopes(steps: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """(truncation, rounding): least-squares slopes of log error over log step right and left of the bottom.

    steps [S] > 0 in any order; errors [S] >= 0. Truncation goes as h^2, so +2 is expected there; rounding as eps/h, -1.
    NaN for a branch with fewer than four points between ABOVE_BOTTOM times the bottom and BELOW_WHOLE.
    """
    order = np.argsort(steps)
    h, e = np.asarray(steps, float)[order], np.asarray(errors, float)[order]
    usable = np.isfinite(e) & (e > 0)
    h, e = h[usable], e[usable]
    if len(e) < 3:
        return math.nan, math.nan
    # One lucky rounding is no bottom: a median over neighbours is.
    padded = np.pad(e, 2, mode="edge")
    around = np.array([np.median(padded[i:i + 5]) for i in range(len(e))])
    bottom = int(around.argmin())
    stands_out = (e > ABOVE_BOTTOM * around[bottom]) & (e < BELOW_WHOLE)
    right = [i for i in range(bottom + 1, len(e)) if stands_out[i]]
    left = [i for i in range(bottom - 1, -1, -1) if stands_out[i]]
    return _fit(h, e, right[:NEAREST]), _fit(h, e, left[:NEAREST])


def _fit(h: np.ndarray, e: np.ndarray, chosen: list[int]) -> float:
    if len(chosen) < 4:
        return math.nan
    return float(np.polyfit(np.log(h[chosen]), np.log(e[chosen]), 1)[0])
