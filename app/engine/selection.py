"""Which Gaussian is looked at, and everything about it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch

from app.engine.crop import crop
from app.engine.model import Model
from app.messages import GaussianReport
from app.training.arrays import host
from render.reference.pixel import pixel_contributions
from render.stages.project import project
from render.types import Camera


def pick(model: Model, camera: Camera, x: float, y: float) -> int | None:
    """uid of the Gaussian with the largest weight w = T alpha at pixel (x, y); None where nothing is blended."""
    column = min(max(int(x), 0), camera.width - 1)
    row = min(max(int(y), 0), camera.height - 1)
    part = crop(camera, column, row, 1, 1)
    output = model.render(part)
    found = pixel_contributions(output.projected, output.splat_colors, output.splat_opacities, output.bins, part,
                                model.background, model.options.raster, 0, 0)
    strongest = found.strongest()
    return None if strongest is None else int(model.params.uids[strongest])


def index_of(model: Model, uid: int) -> int | None:
    """The row of a Gaussian now; None once it is pruned or split."""
    rows = torch.nonzero(model.params.uids == uid)
    return int(rows[0, 0]) if len(rows) else None


def report(model: Model, index: int, camera: Camera) -> GaussianReport:
    """The card of one Gaussian: parameters always, gradients and statistics where a trainer has them."""
    if model.trainer is None:
        return _still_report(model, index, camera)
    from app.training.probes import gaussian_report

    return gaussian_report(model.trainer, index, camera)


def _still_report(model: Model, index: int, camera: Camera) -> GaussianReport:
    def row(tensor: torch.Tensor) -> np.ndarray:
        return np.array(host(tensor[index]))

    params, gaussians = model.params, model.gaussians()
    with torch.no_grad():
        rows = {f.name: getattr(gaussians, f.name) for f in fields(gaussians)}
        one = replace(gaussians, **{name: value[index:index + 1] for name, value in rows.items() if value is not None})
        projected = project(one, camera, model.options.raster, model.backend)
    on_screen = float(projected.extents[0, 0]) > 0
    ellipse = np.concatenate([host(projected.means2d[0]), host(projected.conics[0])]) if on_screen else None
    return GaussianReport(
        uid=int(params.uids[index]), index=index, parent=None,
        parameters={name: row(tensor) for name, tensor in params.trained().items()},
        activated={"mean": row(gaussians.means), "scales": row(gaussians.scales), "quat": row(gaussians.quats),
                   "opacity": row(gaussians.opacities)},
        gradients={}, statistics={"depth": float(projected.depths[0])}, ellipse=ellipse)
