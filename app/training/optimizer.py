"""Adam over the registry: a pair of moments and a step count per parameter group, our kernel for the update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from app.training.marks import FROZEN
from app.training.rows import Rows
from render.stages.adam import adam_step
from render.types import PARAM_GROUPS

BETA1 = 0.9
BETA2 = 0.999


class Adam:
    """Adam (Kingma and Ba 2015) as torch.optim.Adam computes it; the moments live in `rows` and follow its surgery.

    Rows that are born get zero moments, survivors keep theirs bit for bit, and the step count is the group's (F07).
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.steps: dict[str, int] = dict.fromkeys(PARAM_GROUPS, 0)
        for name in PARAM_GROUPS:
            rows.put(f"adam.exp_avg.{name}", torch.zeros_like(rows[name], requires_grad=False))
            rows.put(f"adam.exp_avg_sq.{name}", torch.zeros_like(rows[name], requires_grad=False))

    def moments(self, group: str) -> tuple[Tensor, Tensor]:
        """(exp_avg, exp_avg_sq) of a parameter group, shaped as it is."""
        return self.rows[f"adam.exp_avg.{group}"], self.rows[f"adam.exp_avg_sq.{group}"]

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float], *, eps: float, backend: str,
             extents: Tensor | None = None, ok: Tensor | None = None) -> None:
        """Update every group in place. A group without a gradient stands still while its count goes on.

        For SH bands not yet in use that is exactly what zero gradients and zero moments would do. With `extents` [N,2]
        rows of Gaussians that no picture of the step shows (extents 0) stand still. With `ok` [1], on a GPU, nothing moves
        where it is 0; take_back() then undoes the counting. What is marked as frozen stands still in any case.
        """
        extents = self._moving(extents)
        for name in PARAM_GROUPS:
            self.steps[name] += 1
            gradient = gradients.get(name)
            if gradient is None or gradient.numel() == 0:
                continue
            exp_avg, exp_avg_sq = self.moments(name)
            adam_step(self.rows[name], gradient, exp_avg, exp_avg_sq, step=self.steps[name], lr=rates[name],
                      beta1=BETA1, beta2=BETA2, eps=eps, backend=backend, extents=extents, ok=ok)

    def _moving(self, extents: Tensor | None) -> Tensor | None:
        """The extents, 0 where a Gaussian is frozen."""
        frozen = self.rows.get(FROZEN)
        if frozen is None:
            return extents
        free = (~frozen).to(self.rows["means"].dtype)[:, None]
        return (free.expand(-1, 2) if extents is None else extents * free).contiguous()

    def memory(self) -> dict[str, Any]:
        """What the optimiser knows besides its arrays, as JSON."""
        return {"steps": dict(self.steps)}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take up what memory() gave; what is not in it starts anew."""
        self.steps |= {name: int(count) for name, count in memory.get("steps", {}).items() if name in self.steps}

    def take_back(self) -> None:
        """The last step did not count: its gradients were not finite."""
        for name in PARAM_GROUPS:
            self.steps[name] -= 1

    def forget(self, group: str) -> None:
        """Zero the moments of a group, as after an opacity reset; the step count goes on."""
        for moment in self.moments(group):
            moment.zero_()
