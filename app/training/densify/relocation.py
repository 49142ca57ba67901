"""The mathematics of 3DGS as MCMC (Kheradmand et al. 2024): copies in one place that look as the one did."""

from __future__ import annotations

import math

import numpy as np

MOST_COPIES = 51
"""Copies beyond this are counted as so many, as in the authors' code: an opacity hardly changes any more."""
OPAQUE = 1.0 - 2.0 ** -23
"""The most opaque that a Gaussian is made, 1 - float32's epsilon."""
_COMB = np.array([[math.comb(n, m) for m in range(MOST_COPIES + 1)] for n in range(MOST_COPIES + 1)], np.float64)


def share(opacities: np.ndarray, copies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each of `copies` [K] Gaussians in the place of one of `opacities` [K] gets: (new opacity, factor on its scales).

    Eq. 9: o' = 1 - (1 - o)^(1/N), so that the centre blends as before, and
    Sigma' = o^2 (sum_{i=1..N} sum_{k=0..i-1} C(i-1,k) (-1)^k o'^(k+1) / sqrt(k+1))^-2 Sigma,
    so that the integral of what is blended along a line through it stays. With sum_i C(i-1,k) = C(N,k+1) the double sum is
    sum_{m=1..N} C(N,m) (-1)^(m-1) o'^m / sqrt(m). In float64: its terms alternate and are large where o is near 1.
    """
    o, n = np.clip(np.asarray(opacities, np.float64), 0.0, OPAQUE), np.clip(copies, 1, MOST_COPIES)
    new = -np.expm1(np.log1p(-o) / n)
    total, power = np.zeros_like(o), np.ones_like(o)
    for m in range(1, int(n.max(initial=1)) + 1):
        power = power * new
        total += _COMB[n, m] * (-1.0 if m % 2 == 0 else 1.0) / math.sqrt(m) * power   # C(n,m) = 0 beyond n
    return new, np.divide(o, total, out=np.ones_like(o), where=total > 0)


def draw(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count] indices drawn with replacement in proportion to `weights` [K], of which one at least is above 0."""
    ends = np.cumsum(np.asarray(weights, np.float64))
    found = np.searchsorted(ends, rng.random(count) * ends[-1], side="right")
    return np.minimum(found, np.flatnonzero(weights)[-1])   # rounding must not reach those of weight 0 behind the last


def draw_apart(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count] different indices drawn in proportion to `weights` [K], K >= count; those of weight 0 come last.

    The largest of log(u)/w (Efraimidis and Spirakis 2006) are a draw without replacement.
    """
    uniform = np.log1p(-rng.random(len(weights)))   # of (0, 1]
    keys = np.divide(uniform, weights, out=np.full(len(weights), -np.inf), where=np.asarray(weights) > 0)
    return np.argsort(-keys, kind="stable")[:count]
