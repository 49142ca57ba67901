"""What pictures are made of: the Gaussians that the user has not hidden and that the filter lets through.

Only pictures and picking look at this; training knows all Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from app.engine.model import Model
from app.messages import ViewRequest
from app.training.arrays import host
from app.training.marks import HIDDEN, SELECTED
from app.training.quantities.registry import Unreadable
from render.stages.project import project
from render.types import Camera, Gaussians

OUTLINES = 200
"""As many selected Gaussians are drawn as outlines; more are tinted by the compositor."""
TINT = np.array([1.0, 0.36, 0.68], np.float32)
"""Pink: rare in scenes, and in none of the colour maps. The window's MARK in app/gui/tools.py is the same."""
TINT_SHARE = np.float32(0.65)
RIM_SHARE = 0.5


@dataclass(frozen=True)
class Drawn:
    """`shown` marks the Gaussians in the picture, None = all; the others have no opacity in `gaussians`."""

    gaussians: Gaussians
    shown: torch.Tensor | None = None
    note: str = ""          # what is left out, in one sentence


def drawn(model: Model, request: ViewRequest | None) -> Drawn:
    """What a picture that answers the request is made of."""
    gaussians, hidden, note = model.gaussians(), model.mark(HIDDEN), ""
    shown = None if hidden is None else ~hidden
    if request is not None and request.keep is not None:
        try:
            inside = within(model, request.keep.quantity, request.keep.lo, request.keep.hi, request.camera)
            shown = inside if shown is None else shown & inside
        except Unreadable as refusal:
            note = f"Nothing is filtered: {refusal}"
    if shown is None:
        return Drawn(gaussians, None, note)
    left_out = int((~shown).sum())
    note = note or (f"{left_out:,} of {len(shown):,} Gaussians are not drawn." if left_out else "")
    return Drawn(replace(gaussians, opacities=torch.where(shown, gaussians.opacities, 0.0)), shown, note)


def within(model: Model, quantity: str, lo: float, hi: float, camera: Camera | None) -> torch.Tensor:
    """[N] bool: the Gaussians whose value lies in [lo, hi]; those without a value do not. Raises Unreadable."""
    reading = model.reading(quantity, camera)
    return (reading.values >= lo) & (reading.values <= hi) & ~reading.unseen


def outlines(model: Model, request: ViewRequest) -> np.ndarray | None:
    """[K,5] px: centre x, y and conic a, b, c of the selected Gaussians in the picture; None where they are too many."""
    selected = model.mark(SELECTED)
    rows = None if selected is None else torch.nonzero(selected)[:, 0]
    if rows is None or len(rows) > OUTLINES:
        return None
    gaussians, camera = model.gaussians(), request.camera
    with torch.no_grad():
        part = Gaussians(means=gaussians.means[rows], quats=gaussians.quats[rows], scales=gaussians.scales[rows],
                         opacities=gaussians.opacities[rows].clamp(min=0.5), sh=gaussians.sh[rows],
                         shN=None if gaussians.shN is None else gaussians.shN[rows])
        projected = project(part, camera, model.options.raster, model.backend)
    seen = host(projected.extents)[:, 0] > 0
    return np.concatenate([host(projected.means2d), host(projected.conics)], axis=1)[seen].astype(np.float64)


def tinted(model: Model, rgb: np.ndarray, parts: Drawn, camera: Camera, *, numbers_shown: bool) -> np.ndarray:
    """The picture [H,W,3] with the selected Gaussians marked, where they are too many for outlines: tinted by their share
    of each pixel, or, where colours stand for numbers, with a line around the pixels that are mostly theirs."""
    selected = model.mark(SELECTED)
    if selected is None or int(selected.sum()) <= OUTLINES:
        return rgb
    marks = selected.to(parts.gaussians.means.dtype)[:, None].expand(-1, 3).contiguous()
    output = model.render(camera, gaussians=parts.gaussians, colors=marks, background=torch.zeros_like(model.background))
    share = host(output.colors)[..., :1]
    if numbers_shown:
        return np.where(_rim(share[..., 0] > RIM_SHARE)[..., None], TINT, rgb)
    return rgb * (1.0 - TINT_SHARE * share) + TINT * (TINT_SHARE * share)


def _rim(mask: np.ndarray) -> np.ndarray:
    """The pixels of a mask [H,W] that have a neighbour outside of it."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return mask & ~inner
