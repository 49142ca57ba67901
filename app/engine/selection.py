"""Which Gaussian is looked at, and everything about it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch

from app.engine.model import Model
from app.messages import GaussianReport
from app.training.arrays import host
from render.stages.project import project
from render.types import Camera


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
