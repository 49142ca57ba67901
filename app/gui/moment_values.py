"""Figures of a moment of the past, as far as the curves of the run know them. No Dear PyGui."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.messages import Curve, Moment, Snapshot


def values_at(snapshot: Snapshot, curves: Mapping[str, Curve], moment: Moment) -> dict[str, float]:
    """Of each curve of the moment's branch (loss, train_psnr, test_psnr, count) its last value up to that iteration.

    Curves are decimated, so a value of a single step is that of a step nearby. What no curve has yet is left out.
    """
    if moment.branch != snapshot.timeline.current:
        curves = snapshot.branch_curves.get(moment.branch, {})
    found = {}
    for name, curve in curves.items():
        place = int(np.searchsorted(curve.x, moment.iteration, side="right")) - 1
        if place >= 0 and np.isfinite(curve.y[place]):
            found[name] = float(curve.y[place])
    return found
