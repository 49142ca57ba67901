"""Per-Gaussian quantities to look at: one registry for heatmaps, the densification panel and the Gaussian card.

A new quantity is one function with @probe above it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.messages import GaussianReport, Histogram, Quantity
from app.training.arrays import host
from app.training.densify.adc import largest_scale
from app.training.densify.statistics import COUNT, PER_NDC, screen_gradient, threshold
from app.training.trainer import Trainer
from render.config import SH_C0
from render.stages.project import project
from render.types import Camera


@dataclass(frozen=True)
class Probe:
    name: str
    label: str                    # says which gradient: signed sum, sum of absolutes or norm (F09)
    unit: str
    signed: bool                  # takes a diverging colour map around 0
    log: bool                     # spans decades
    help: str
    values: Callable[[Trainer], Tensor | None]   # [N], or None while there is nothing to show
    unseen: Callable[[Trainer], Tensor] | None   # [N] bool: no view has seen it, so its value says nothing (F17)


@dataclass(frozen=True)
class Reading:
    """A probe's values; `unseen` marks the Gaussians whose value says nothing."""

    probe: Probe
    values: Tensor    # [N] float32
    unseen: Tensor    # [N] bool


PROBES: dict[str, Probe] = {}


def probe(name: str, label: str, unit: str, help: str, *, signed: bool = False, log: bool = False,
          unseen: Callable[[Trainer], Tensor] | None = None):
    """Register a function Trainer -> [N] values (None = not available yet)."""

    def register(function: Callable[[Trainer], Tensor | None]) -> Callable[[Trainer], Tensor | None]:
        PROBES[name] = Probe(name, label, unit, signed, log, help, function, unseen)
        return function

    return register


def quantities() -> tuple[Quantity, ...]:
    """What a heatmap can show, for the window."""
    return tuple(Quantity(p.name, p.label, p.unit, p.help) for p in PROBES.values())


def read(trainer: Trainer, name: str) -> Reading | None:
    """The values of a quantity now; None while there are none. Raises ValueError for an unknown name."""
    if name not in PROBES:
        raise ValueError(f"there is no quantity {name!r}; choose one of {', '.join(PROBES)}")
    found = PROBES[name]
    with torch.no_grad():
        values = found.values(trainer)
        if values is None:
            return None
        unseen = found.unseen(trainer) if found.unseen else torch.zeros_like(values, dtype=torch.bool)
    return Reading(found, values.detach(), unseen)


def _unseen_last(trainer: Trainer) -> Tensor:
    """Not in the last view, so without a gradient of the last step."""
    tap = trainer.tap
    if trainer.last_extents is None or tap is None:
        return torch.ones(len(trainer.params), dtype=torch.bool, device=trainer.device)
    return trainer.last_extents[:, 0] <= 0


def _never_seen(trainer: Trainer) -> Tensor:
    return trainer.statistics.never_seen


@probe("mean2d_grad", "|∂L/∂mean2D| signed sum, last step", PER_NDC, log=True, unseen=_unseen_last,
       help="Norm of the screen-space gradient of the last view's loss; pixels that pull in opposite ways cancel.")
def _mean2d_grad(trainer: Trainer) -> Tensor | None:
    tap, camera = trainer.tap, trainer.last_camera
    if tap is None or tap.v_means2d is None or camera is None:
        return None
    return screen_gradient(tap.v_means2d, camera.width, camera.height)


@probe("mean2d_grad_abs", "|∂L/∂mean2D| sum of absolutes, last step", PER_NDC, log=True, unseen=_unseen_last,
       help="As AbsGS sums it: pixels that pull in opposite ways add up. Gathered while densify.absgrad is on.")
def _mean2d_grad_abs(trainer: Trainer) -> Tensor | None:
    tap, camera = trainer.tap, trainer.last_camera
    if tap is None or tap.v_abs_means2d is None or camera is None:
        return None
    return screen_gradient(tap.v_abs_means2d, camera.width, camera.height)


@probe("mean2d_grad_average", "|∂L/∂mean2D| averaged as densification does", PER_NDC, log=True, unseen=_never_seen,
       help="The densification statistic: mean over the views that saw the Gaussian since the last densification.")
def _mean2d_grad_average(trainer: Trainer) -> Tensor:
    return trainer.statistics.average(trainer.config.densify.absgrad)


@probe("means_grad", "|∂L/∂mean| abs-norm, last step", "per world unit", log=True, unseen=_unseen_last,
       help="Norm of the gradient that Adam gets for the mean.")
def _means_grad(trainer: Trainer) -> Tensor | None:
    gradient = trainer.gradients().get("means")
    return None if gradient is None else torch.linalg.vector_norm(gradient, dim=1)


@probe("opacity_grad", "∂L/∂opacity, last step", "", signed=True, unseen=_unseen_last,
       help="Negative: the loss falls when it becomes more opaque.")
def _opacity_grad(trainer: Trainer) -> Tensor | None:
    return None if trainer.tap is None else trainer.tap.v_opacities


@probe("opacity", "opacity", "", help="Activated opacity, 0 to 1.")
def _opacity(trainer: Trainer) -> Tensor:
    return trainer.gaussians().opacities


@probe("largest_scale", "largest scale", "world units", log=True, help="Standard deviation along the longest axis.")
def _largest_scale(trainer: Trainer) -> Tensor:
    return largest_scale(trainer.gaussians())


@probe("views_seen", "views since the last densification", "views", unseen=_never_seen,
       help="How many views have seen it since the statistics started anew.")
def _views_seen(trainer: Trainer) -> Tensor:
    return trainer.state.rows[COUNT]


@probe("age", "age", "iterations", help="Iterations since it was born.")
def _age(trainer: Trainer) -> Tensor:
    births = trainer.lineage.births(host(trainer.params.uids))
    return torch.from_numpy((trainer.iteration - births).astype(np.float32)).to(trainer.device)


def histogram(trainer: Trainer) -> Histogram:
    """The densification statistic as it is now, with its threshold.

    Shortly after a densification most Gaussians have no statistic yet; until half the views were shown again, it is
    the one that decided that event, and the label says so.
    """
    last = next((r for r in reversed(trainer.records) if r.histogram is not None), None)
    enough = 0.5 * min(len(trainer.views), trainer.schedule.every)
    if last is not None and last.histogram is not None and trainer.iteration - last.event.iteration < enough:
        return last.histogram
    return trainer.statistics.histogram(trainer.config.densify)


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
        statistic = float(stats.average(config.absgrad)[index])
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
