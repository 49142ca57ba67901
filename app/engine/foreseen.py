"""The plan of the next densification: kept while it holds, and drawn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from app.inspection.densification_results import KINDS
from render.config import SH_C0

if TYPE_CHECKING:
    from app.engine.model import Model
    from app.training.densify.base import Candidates
    from render.types import Gaussians

PATIENCE = 6.0
"""A plan that costs much, as one that looks at views, is shown for so many times what it cost while training goes on."""
COSTLY = 0.05    # seconds
LEAST_OPACITY = 0.4
"""Candidates are drawn at least this opaque: what is to be pruned or moved would hardly show."""
BASE_SHARE = 0.4


@dataclass
class Plans:
    """The plan of the next event, kept while it holds."""

    plan: Candidates
    version: int
    iteration: int
    key: tuple
    made: float
    seconds: float

    def holds(self, version: int, iteration: int, key: tuple) -> bool:
        """Either nothing has changed, or it was costly and steps alone have come since."""
        return version == self.version or (self.seconds > COSTLY and key == self.key and iteration != self.iteration
                                           and time.monotonic() - self.made < PATIENCE * self.seconds)


def planned(model: Model, kept: Plans | None) -> Plans:
    """The plan of a model with a trainer, worked out anew where `kept` does not hold."""
    trainer = model.trainer
    assert trainer is not None
    rows = trainer.state.rows
    key = (id(trainer), rows.generation, trainer.config, *(id(rows.get(name)) for name in rows if name.startswith("mark.")))
    if kept is not None and kept.holds(model.version, model.iteration, key):
        return kept
    begun = time.monotonic()
    plan = trainer.candidates()
    ended = time.monotonic()
    return Plans(plan, model.version, model.iteration, key, ended, ended - begun)


def candidate_colors(plan: Candidates, gaussians: Gaussians) -> tuple[torch.Tensor, torch.Tensor]:
    """(colours [N,3], opacities [N]) of a picture in which the candidates stand out from the rest in dim grey."""
    base = (0.5 + SH_C0 * gaussians.sh[:, 0]).clamp(0.0, 1.0).mean(dim=1, keepdim=True) * BASE_SHARE
    colors, concerned = base.expand(-1, 3).contiguous(), torch.zeros_like(plan.clone)
    for kind in KINDS:
        mask = getattr(plan, kind.name)
        colors = torch.where(mask[:, None], colors.new_tensor(kind.color), colors)
        concerned = concerned | mask
    return colors, torch.where(concerned, gaussians.opacities.clamp(min=LEAST_OPACITY), gaussians.opacities)
