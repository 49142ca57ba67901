"""Quantities of the Gaussians as they are: size, opacity, age, and what they do in one view."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from app.training.arrays import host
from app.training.densify.operations import largest_scale
from app.training.densify.statistics import COUNT
from app.training.quantities.gradients import never_seen
from app.training.quantities.registry import Subject, probe
from render import pipeline


@probe("opacity", "opacity", "", needs="gaussians", help="Activated opacity, 0 to 1.")
def _opacity(subject: Subject) -> Tensor:
    return subject.gaussians.opacities


@probe("largest_scale", "largest scale", "world units", log=True, needs="gaussians",
       help="Standard deviation along the longest axis.")
def _largest_scale(subject: Subject) -> Tensor:
    return largest_scale(subject.gaussians)


@probe("anisotropy", "anisotropy", "longest / shortest axis", log=True, needs="gaussians",
       help="1 is a ball; needles and discs are large.")
def _anisotropy(subject: Subject) -> Tensor:
    x, y, z = subject.gaussians.scales.unbind(1)
    smallest = torch.minimum(torch.minimum(x, y), z)
    return largest_scale(subject.gaussians) / smallest.clamp(min=1e-30)


@probe("views_seen", "views since the last densification", "views", unseen=never_seen,
       help="How many views have seen it since the statistics started anew.")
def _views_seen(subject: Subject) -> Tensor:
    return subject.training.state.rows[COUNT]


@probe("age", "age", "iterations", help="Iterations since it was born.")
def _age(subject: Subject) -> Tensor:
    trainer = subject.training
    births = trainer.lineage.births(host(trainer.params.uids))
    return torch.from_numpy((trainer.iteration - births).astype(np.float32)).to(trainer.device)


# ------------------------------------------------------------------ in one view

def outside(subject: Subject) -> Tensor:
    """Not in this view's picture."""
    return subject.splats[0].extents[:, 0] <= 0


@probe("contribution", "contribution Σw in this view", "px", log=True, needs="view", unseen=outside,
       help="Sum over the picture's pixels of its weight w = T α: how many whole pixels it paints.")
def _contribution(subject: Subject) -> Tensor:
    # In a picture that shows a number per Gaussian, the derivative of the sum of all pixels by one Gaussian's number is
    # the sum of its weights: the compositor's own backward adds up what its forward blended.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        numbers = torch.zeros((len(subject.gaussians.means), 3), device=subject.device, requires_grad=True)
        output = pipeline.render(subject.gaussians, subject.view, subject.raster, sh_degree=subject.sh_degree,
                                 background=torch.zeros(3, device=subject.device), backend=subject.backend, colors=numbers)
        gradient, = torch.autograd.grad(output.colors[..., 0].sum(), numbers)
    return gradient[:, 0].contiguous()


@probe("dead_color", "colour channels clamped at 0 in this view", "channels", needs="view", unseen=outside,
       help="Channels that SH evaluation cuts off at 0 as seen from here: a clamped channel has no gradient, and with all "
            "three the colour is dead.")
def _dead_color(subject: Subject) -> Tensor:
    clamped = subject.splats[1] <= 0
    return clamped[:, 0].float() + clamped[:, 1].float() + clamped[:, 2].float()
