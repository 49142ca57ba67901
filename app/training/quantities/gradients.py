"""Quantities of the backward pass and of the optimiser: what the last step's loss asks of each Gaussian, and what it got."""

from __future__ import annotations

import torch
from torch import Tensor

from app.training.densify.statistics import COUNT, PER_NDC, SILENT, screen_gradient, threshold
from app.training.quantities.registry import Subject, probe
from app.training.updates import last_update, seen_in_step

DECADES = 4.0
"""The distance to the densify threshold is shown within so many decades; a statistic of 0 is infinitely far below."""
UPDATE_MISSING = "let the optimiser take its part of a step first"


def unseen_last(subject: Subject) -> Tensor:
    """Not in the last view, so without a gradient in its picture."""
    trainer = subject.training
    if trainer.last_extents is None or trainer.tap is None:
        return _everybody(subject)
    return trainer.last_extents[:, 0] <= 0


def unseen_step(subject: Subject) -> Tensor:
    """In none of the views that the last step averaged, so without a gradient of that step."""
    trainer = subject.training
    extents = seen_in_step(trainer)
    if extents is None or trainer.tap is None:
        return _everybody(subject)
    return extents[:, 0] <= 0


def _everybody(subject: Subject) -> Tensor:
    return torch.ones(len(subject.training.params), dtype=torch.bool, device=subject.training.device)


def never_seen(subject: Subject) -> Tensor:
    return subject.training.statistics.never_seen


def unmoved(subject: Subject) -> Tensor:
    """The optimiser let it stand: with sparse Adam what no view of the step showed, and always what is frozen."""
    trainer = subject.training
    if (trainer.last_config or trainer.config).sparse_adam:
        return unseen_step(subject)
    return torch.zeros(len(trainer.params), dtype=torch.bool, device=trainer.device)


# ------------------------------------------------------------------ screen space

def _screen(subject: Subject, name: str) -> Tensor | None:
    """[N] the norm of what the tap gathered as `name`, the last view's."""
    tap, camera = subject.training.tap, subject.training.last_camera
    gathered = None if tap is None else getattr(tap, name)
    return None if gathered is None or camera is None else screen_gradient(gathered, camera.width, camera.height)


@probe("mean2d_grad", "|∂L/∂mean2D| signed sum, last step", PER_NDC, log=True, unseen=unseen_last,
       help="Norm of the screen-space gradient of the last view's loss; pixels that pull in opposite ways cancel.")
def _mean2d_grad(subject: Subject) -> Tensor | None:
    return _screen(subject, "v_means2d")


@probe("mean2d_grad_abs", "|∂L/∂mean2D| sum of absolutes, last step", PER_NDC, log=True, unseen=unseen_last,
       missing="turn densify.absgrad on and take a step",
       help="As AbsGS sums it: pixels that pull in opposite ways add up. Gathered while densify.absgrad is on.")
def _mean2d_grad_abs(subject: Subject) -> Tensor | None:
    return _screen(subject, "v_abs_means2d")


@probe("mean2d_grad_average", "|∂L/∂mean2D| averaged as densification does", PER_NDC, log=True, unseen=never_seen,
       help="The densification statistic: mean over the views that saw the Gaussian since the last densification.")
def _mean2d_grad_average(subject: Subject) -> Tensor:
    return subject.training.statistics.average(subject.training.config.densify.absolute)


@probe("threshold_distance", "distance to the densify threshold", "decades", signed=True, unseen=never_seen,
       help="log10 of the densification statistic over its threshold: above 0 it is cloned or split at the next "
            f"densification. Cut off at -{DECADES:g}.")
def _threshold_distance(subject: Subject) -> Tensor:
    config = subject.training.config.densify
    share = subject.training.statistics.average(config.absolute) / threshold(config)
    return torch.log10(share.clamp(min=10.0 ** -DECADES))


@probe("zero_gradient", "views in a row with a zero gradient", "views", unseen=never_seen,
       help="How many views have seen it since the last densification, all of them without any gradient; 0 as soon as one "
            "gave it a gradient. Such a Gaussian cannot learn: it is hidden, clamped or too faint.")
def _zero_gradient(subject: Subject) -> Tensor:
    rows = subject.training.state.rows
    return torch.where(rows[SILENT] == rows[COUNT], rows[SILENT], 0.0)


# ------------------------------------------------------------------ parameters

def _gradient(subject: Subject, group: str) -> Tensor | None:
    """[N,D] dL/d a raw parameter group, or None where it has none."""
    gradient = subject.training.gradients().get(group)
    return None if gradient is None or gradient.numel() == 0 else gradient.reshape(len(gradient), -1)


def _norm(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else torch.linalg.vector_norm(gradient, dim=1)


@probe("means_grad", "|∂L/∂mean| abs-norm, last step", "per world unit", log=True, unseen=unseen_step,
       help="Norm of the gradient that Adam gets for the mean.")
def _means_grad(subject: Subject) -> Tensor | None:
    return _norm(_gradient(subject, "means"))


@probe("log_scales_grad", "|∂L/∂log scale| norm, last step", "per e-fold", log=True, unseen=unseen_step,
       help="Norm over the three axes of the gradient that Adam gets for the logarithms of the scales.")
def _log_scales_grad(subject: Subject) -> Tensor | None:
    return _norm(_gradient(subject, "log_scales"))


@probe("size_grad", "∂L/∂log size, last step", "per e-fold", signed=True, unseen=unseen_step,
       help="Sum over the three axes of ∂L/∂log scale. Negative: the loss falls when it grows as a whole.")
def _size_grad(subject: Subject) -> Tensor | None:
    gradient = _gradient(subject, "log_scales")
    return None if gradient is None else gradient[:, 0] + gradient[:, 1] + gradient[:, 2]


@probe("quats_grad", "|∂L/∂quat| norm, last step", "", log=True, unseen=unseen_step,
       help="Norm of the gradient that Adam gets for the raw quaternion.")
def _quats_grad(subject: Subject) -> Tensor | None:
    return _norm(_gradient(subject, "quats"))


@probe("logit_opacity_grad", "∂L/∂logit opacity, last step", "", signed=True, unseen=unseen_step,
       help="What Adam gets for the opacity's logit. Negative: the loss falls when it becomes more opaque.")
def _logit_opacity_grad(subject: Subject) -> Tensor | None:
    gradient = _gradient(subject, "logit_opacities")
    return None if gradient is None else gradient[:, 0]


@probe("opacity_grad", "∂L/∂opacity, last step", "", signed=True, unseen=unseen_last,
       help="Before the sigmoid's slope; with antialiasing, of the opacity times its compensation. Negative: the loss falls "
            "when it becomes more opaque.")
def _opacity_grad(subject: Subject) -> Tensor | None:
    return None if subject.training.tap is None else subject.training.tap.v_opacities


@probe("sh0_grad", "|∂L/∂SH0| norm, last step", "", log=True, unseen=unseen_step,
       help="Norm of the gradient of the constant colour band.")
def _sh0_grad(subject: Subject) -> Tensor | None:
    return _norm(_gradient(subject, "sh0"))


@probe("shN_grad", "|∂L/∂SHN| norm, last step", "", log=True, unseen=unseen_step,
       missing="the bands above the constant one come into use as training goes on",
       help="Norm of the gradient of all colour bands above the constant one that are in use.")
def _shN_grad(subject: Subject) -> Tensor | None:
    return _norm(_gradient(subject, "shN"))


# ------------------------------------------------------------------ the update

def _update(subject: Subject, group: str) -> Tensor | None:
    """[N,D] what the last step added to a raw parameter group; None where it has not moved anything yet."""
    update = last_update(subject.training, group)
    return None if update is None else update.reshape(len(update), -1)


def _update_norm(group: str):
    return lambda subject: _norm(_update(subject, group))


for _group, _what, _unit in (("means", "mean", "world units"), ("log_scales", "log scale", "e-folds"), ("quats", "quat", ""),
                             ("sh0", "SH0", ""), ("shN", "SHN", "")):
    probe(f"adam_{_group}", f"|update of the {_what}| norm", _unit, log=True, unseen=unmoved, missing=UPDATE_MISSING,
          help=f"How far the last step moved the {_what}: the norm of lr m̂ / (√v̂ + ε) under Adam, of lr times the momentum "
               "under SGD.")(_update_norm(_group))


@probe("adam_logit_opacities", "update of the logit opacity", "", signed=True, unseen=unmoved, missing=UPDATE_MISSING,
       help="What the last step added to the opacity's logit: -lr m̂ / (√v̂ + ε) under Adam. Positive: it became more opaque.")
def _adam_logit_opacities(subject: Subject) -> Tensor | None:
    update = _update(subject, "logit_opacities")
    return None if update is None else update[:, 0]
