"""Which kinks lie between two evaluations of the same region, by counting the pixels whose masks differ."""

from __future__ import annotations

import torch
from torch import Tensor

from app.inspection.local_picture import Evaluation, LocalPicture
from render.reference.project import ratio_limits


def kinks_between(local: LocalPicture, minus: Evaluation, plus: Evaluation, group: str) -> dict[str, int]:
    """Name (see gradcheck_results.KINKS) -> pixels that flip between x - h and x + h.

    What flips where the Gaussian blends on neither side is no kink: it lies behind pixels that are already full.
    """
    config = local.base.problem.raster
    either = minus.blended | plus.blended
    found: dict[str, Tensor | int] = {}
    changed = minus.blended != plus.blended
    shown = all(float(side.output.projected.extents[local.place, 0]) > 0 for side in (minus, plus))
    # A tile may drop out of the list with its last pixel: that pixel's alpha is known, and crosses the cutoff.
    cutoff = changed & (minus.offered != plus.offered) if shown else _vanished(local, minus, plus)
    if not config.smooth_cutoff:   # else alpha fades in, and its slope with it
        found["cutoff"] = cutoff
    found["footprint_edge"] = edge = (minus.listed != plus.listed) & changed & ~cutoff
    found["alpha_clamp"] = ((minus.raw > config.alpha_max) != (plus.raw > config.alpha_max)) & either & ~edge
    found["depth_order"] = swapped = _swapped(local, minus, plus)
    found["early_stop"] = ((minus.last != plus.last) | changed) & ~cutoff & ~edge & ~swapped
    found["sh_clamp"] = int(either.sum()) if _clamped_channels_differ(local, minus, plus) else 0
    signs = local.loss.signs(minus.surrounding), local.loss.signs(plus.surrounding)
    if signs[0] is not None and signs[1] is not None:
        found["l1_sign"] = (signs[0] != signs[1]).any(-1)
    if group == "means":
        found["projection_clamp"] = int(either.sum()) if _limits_differ(local, minus, plus) else 0
    counts = {name: int(flips) if isinstance(flips, int) else int(flips.sum()) for name, flips in found.items()}
    return {name: count for name, count in counts.items() if count}


def clamped_pixels(local: LocalPicture, evaluation: Evaluation) -> int:
    """Pixels at which the Gaussian blends with its alpha clamped."""
    return int((evaluation.blended & (evaluation.raw > local.base.problem.raster.alpha_max)).sum())


def _vanished(local: LocalPicture, minus: Evaluation, plus: Evaluation) -> Tensor:
    """[h,w] pixels lost because the opacity itself fell below the cutoff, which culls the Gaussian."""
    lost = torch.zeros_like(minus.blended)
    for here, there in ((minus, plus), (plus, minus)):
        if float(there.output.splat_opacities[local.place]) < local.base.problem.raster.cutoff:
            lost = lost | (here.blended & ~there.blended)
    return lost


def _swapped(local: LocalPicture, minus: Evaluation, plus: Evaluation) -> Tensor:
    """[h,w] pixels at which the Gaussian and one that it passes in depth both blend."""
    pixels = torch.zeros_like(minus.blended)
    overlap = minus.blended | plus.blended
    if not overlap.any():
        return pixels
    in_front = [_in_front(local, side) for side in (minus, plus)]
    x, y = local.pixels
    projected, opacities = minus.output.projected, minus.output.splat_opacities
    for other in torch.nonzero(in_front[0] != in_front[1]).flatten().tolist():
        if other == local.place or not float(projected.extents[other, 0]):
            continue
        dx, dy = x - projected.means2d[other, 0], y - projected.means2d[other, 1]
        a, b, c = projected.conics[other]
        raw = opacities[other] * torch.exp(-(0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy))
        pixels = pixels | ((raw >= local.base.problem.raster.cutoff) & overlap)
    return pixels


def _in_front(local: LocalPicture, side: Evaluation) -> Tensor:
    """[n] which of the region's Gaussians are blended before this one; equal depths keep the order of rows."""
    depths, rows = side.output.projected.depths, torch.arange(len(local.ids))
    own = depths[local.place]
    return (depths < own) | ((depths == own) & (rows < local.place))


def _clamped_channels_differ(local: LocalPicture, minus: Evaluation, plus: Evaluation) -> bool:
    shown = [float(side.output.projected.extents[local.place, 0]) > 0 for side in (minus, plus)]
    colors = [side.output.splat_colors[local.place] > 0 for side in (minus, plus)]
    return all(shown) and bool((colors[0] != colors[1]).any())   # a culled one has no colour


def _limits_differ(local: LocalPicture, minus: Evaluation, plus: Evaluation) -> bool:
    return projection_clamped(local, minus) != projection_clamped(local, plus)


def projection_clamped(local: LocalPicture, side: Evaluation) -> tuple[bool, ...]:
    """Whether x/z and y/z lie beyond each of the Jacobian's four limits."""
    camera, projected = local.camera, side.output.projected
    K = camera.K
    x, y = (float(v) for v in projected.means2d[local.place])
    ratios = (x - K[0, 2]) / K[0, 0], (y - K[1, 2]) / K[1, 1]
    limits = ratio_limits(camera, local.base.problem.raster)
    return tuple(bool(beyond) for ratio, (lo, hi) in zip(ratios, limits, strict=True) for beyond in (ratio < lo, ratio > hi))
