"""Reading per-Gaussian quantities for the window: heatmaps, the densification panel and the Gaussian card.

The quantities themselves stand in app/training/quantities/, one file a kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import app.training.quantities.gradients  # noqa: F401 - these enter their quantities
import app.training.quantities.laboratory  # noqa: F401
import app.training.quantities.state  # noqa: F401
from app.messages import GaussianReport, Histogram, Quantity
from app.training.arrays import host
from app.training.densify.statistics import COUNT, threshold
from app.training.quantities.registry import PROBES, Reading, Subject, Unreadable
from app.training.trainer import Trainer
from render.config import SH_C0
from render.stages.project import project
from render.types import Camera


def quantities(*, trained: bool = True) -> tuple[Quantity, ...]:
    """What there is to see of a run, or of Gaussians that nobody trains, for the window."""
    return tuple(Quantity(p.name, p.label, p.unit, p.help, p.signed, p.log, p.needs == "view") for p in PROBES.values()
                 if trained or p.needs != "trainer")


def subject_of(trainer: Trainer, camera: Camera | None = None) -> Subject:
    return Subject(trainer.gaussians(), trainer.config.raster, trainer.sh_degree, trainer.backend, trainer, camera)


def read(source: Trainer | Subject, name: str, camera: Camera | None = None) -> Reading | None:
    """The values of a quantity now; None while there are none. Raises ValueError for an unknown name, and Unreadable for
    one that `source` cannot have."""
    if name not in PROBES:
        raise ValueError(f"there is no quantity {name!r}; choose one of {', '.join(PROBES)}")
    found, subject = PROBES[name], source if isinstance(source, Subject) else subject_of(source, camera)
    if found.needs == "trainer" and subject.trainer is None:
        raise Unreadable(f"A PLY has no {found.label}; it exists only while a scene trains.")
    if found.needs == "view" and subject.camera is None:
        raise Unreadable(f"{found.label} belongs to a view, and there is none yet.")
    with torch.no_grad():
        values = found.values(subject)
        if values is None:
            return None
        unseen = found.unseen(subject) if found.unseen else torch.zeros_like(values, dtype=torch.bool)
    return Reading(found, values.detach(), unseen)


def readable(source: Trainer | Subject, name: str) -> Reading:
    """As read(), with a sentence for the user instead of None. Raises Unreadable."""
    try:
        reading = read(source, name)
    except ValueError as error:
        raise Unreadable(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    if reading is None:
        raise Unreadable(f"{PROBES[name].label} has no values yet; {PROBES[name].missing}.")
    return reading


def histogram(trainer: Trainer) -> Histogram:
    """The densification statistic as it is now, with its threshold.

    Shortly after a densification most Gaussians have no statistic yet; until half the views were shown again, it is
    the one that decided that event, and `found` says so.
    """
    now = trainer.strategy.histogram(trainer.state, trainer.config)
    last = next((r.histogram for r in reversed(trainer.records) if r.histogram is not None), None)
    enough = 0.5 * min(len(trainer.views), trainer.schedule.every)
    when = next((r.event.iteration for r in reversed(trainer.records) if r.histogram is not None), 0)
    if last is not None and not now.below and last.path == now.path and trainer.iteration - when < enough:
        return replace(last, threshold=now.threshold, found=when)   # the threshold may have been changed since
    return now


def gaussian_report(trainer: Trainer, index: int, camera: Camera) -> GaussianReport:
    """Everything about one Gaussian. Raises IndexError when there is no such row."""
    if not 0 <= index < len(trainer.params):
        raise IndexError(f"there is no Gaussian {index}; there are {len(trainer.params)}")

    def row(tensor: Tensor) -> np.ndarray:
        return np.array(host(tensor[index]))

    params, gaussians, rows = trainer.params, trainer.gaussians(), trainer.state.rows
    uid = int(params.uids[index])
    gradients = {name: row(gradient) for name, gradient in trainer.gradients().items()}
    gradients |= {name.removeprefix("tap."): row(rows[name]) for name in rows if name.startswith("tap.")}
    stats, config = trainer.statistics, trainer.config.densify
    with torch.no_grad():
        projected = project(gaussians, camera, trainer.config.raster, trainer.backend)
        statistic = float(stats.average(config.absolute)[index])
        silent = bool(stats.visible_without_gradient[index])
    on_screen = float(projected.extents[index, 0]) > 0
    ellipse = np.concatenate([row(projected.means2d), row(projected.conics)]) if on_screen else None
    return GaussianReport(
        uid=uid, index=index, parent=trainer.lineage.parent(uid),
        parameters={name: row(tensor) for name, tensor in params.trained().items()},
        activated={"mean": row(gaussians.means), "scales": row(gaussians.scales), "quat": row(gaussians.quats),
                   "opacity": row(gaussians.opacities), "base_color": np.maximum(0.5 + SH_C0 * row(params.sh0)[0], 0)},
        gradients=gradients,
        statistics={"densify_statistic": statistic, "densify_threshold": threshold(config),
                    "views_seen": float(rows[COUNT][index]), "visible_without_gradient": float(silent),
                    "age": float(trainer.iteration - trainer.lineage.born(uid)),
                    "depth": float(projected.depths[index])},
        ellipse=ellipse)


def summary(trainer: Trainer) -> dict[str, int]:
    """Counts for the densification panel: all, never seen, and seen without any gradient (N26)."""
    stats = trainer.statistics
    return {"gaussians": len(trainer.params), "never_seen": int(stats.never_seen.sum()),
            "visible_without_gradient": int(stats.visible_without_gradient.sum())}
