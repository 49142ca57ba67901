"""Figures of a moment of the past, as far as the curves of the run know them. No Dear PyGui."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.messages import Curve, Moment, Snapshot


def values_at(snapshot: Snapshot, curves: Mapping[str, Curve], moment: Moment) -> dict[str, float]:
    """Of each curve of the moment's branch (loss, train_psnr, test_psnr, count) its last value up to that iteration, and
    with `test_psnr` the `test_ssim` of the same evaluation, where it is known.

    Curves are decimated, so a value of a single step is that of a step nearby. What no curve has yet is left out.
    """
    if moment.branch != snapshot.timeline.current:
        curves = snapshot.branch_curves.get(moment.branch, {})
    found = {}
    for name, curve in curves.items():
        place = int(np.searchsorted(curve.x, moment.iteration, side="right")) - 1
        if place >= 0 and np.isfinite(curve.y[place]):
            found[name] = float(curve.y[place])
            if name == "test_psnr" and (ssim := _ssim(snapshot, moment.branch, int(curve.x[place]))) is not None:
                found["test_ssim"] = ssim
    return found


def _ssim(snapshot: Snapshot, name: str, iteration: int) -> float | None:
    """Of the evaluation at that iteration; the last one where there were several."""
    branch = snapshot.timeline.branch(name)
    known = dict(zip(branch.evaluated, branch.ssim)) if branch is not None else {}
    return value if (value := known.get(iteration)) is not None and np.isfinite(value) else None
