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
TINT = np.array([0.96, 0.64, 0.24], np.float32)
"""Amber: rare in scenes, and in none of the colour maps but turbo."""
TINT_SHARE = np.float32(0.65)


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


def tinted(model: Model, rgb: np.ndarray, parts: Drawn, camera: Camera) -> np.ndarray:
    """The picture [H,W,3] with the selected Gaussians in amber, by their share of each pixel, where they are too many
    for outlines."""
    selected = model.mark(SELECTED)
    if selected is None or int(selected.sum()) <= OUTLINES:
        return rgb
    numbers = selected.to(parts.gaussians.means.dtype)[:, None].expand(-1, 3).contiguous()
    output = model.render(camera, gaussians=parts.gaussians, colors=numbers, background=torch.zeros_like(model.background))
    share = TINT_SHARE * host(output.colors)[..., :1]
    return rgb * (1.0 - share) + TINT * share
