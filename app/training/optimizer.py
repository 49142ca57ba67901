"""The optimiser over the registry: each parameter group goes by a rule of its own, Adam or SGD with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from app.config import OptimizerConfig
from app.training.marks import FROZEN
from app.training.rows import Rows
from render import timing
from render.stages.adam import adam_step
from render.types import PARAM_GROUPS

BETA1 = 0.9
BETA2 = 0.999
PLAIN = OptimizerConfig()
FORGOTTEN = "last.forgotten."
"""[N] bool by group: rows whose memory was zeroed since the last update, which can then not be read back from it."""


class Optimizer:
    """Adam (Kingma and Ba 2015) as torch.optim.Adam computes it, SGD as torch.optim.SGD does with momentum and no dampening
    (Sutskever et al. 2013), or nothing, by group. What a rule remembers lives in `rows` and follows their surgery.

    Rows that are born get zero moments, survivors keep theirs bit for bit, and Adam's step count is the group's (F07).
    When a group gets another rule, what both rules remember of it is zeroed and Adam counts from 0 again, or all of it rests
    as it is until its rule comes back: `OptimizerConfig.on_switch` says which.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.steps: dict[str, int] = dict.fromkeys(PARAM_GROUPS, 0)      # that Adam took
        self.rules: dict[str, str] = dict.fromkeys(PARAM_GROUPS, "adam")  # of the last step
        self._counted: tuple[str, ...] = ()   # groups whose count the last step moved
        for name in PARAM_GROUPS:
            rows.put(f"adam.exp_avg.{name}", torch.zeros_like(rows[name], requires_grad=False))
            rows.put(f"adam.exp_avg_sq.{name}", torch.zeros_like(rows[name], requires_grad=False))

    def moments(self, group: str) -> tuple[Tensor, Tensor]:
        """Adam's (exp_avg, exp_avg_sq) of a parameter group, shaped as it is."""
        return self.rows[f"adam.exp_avg.{group}"], self.rows[f"adam.exp_avg_sq.{group}"]

    def momentum(self, group: str) -> Tensor | None:
        """SGD's sum of a group, shaped as it is; None before SGD moved it."""
        return self.rows.get(f"sgd.momentum.{group}")

    def memories(self, group: str) -> list[Tensor]:
        """All arrays that rules remember of a group."""
        momentum = self.momentum(group)
        return [*self.moments(group), *([] if momentum is None else [momentum])]

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float], *, eps: float, backend: str,
             settings: OptimizerConfig = PLAIN, extents: Tensor | None = None, ok: Tensor | None = None) -> None:
        """Update every group in place. A group without a gradient stands still while Adam's count of it goes on.

        For SH bands not yet in use that is exactly what zero gradients and zero moments would do. With `extents` [N,2]
        rows of Gaussians that no picture of the step shows (extents 0) stand still. With `ok` [1], on a GPU, nothing moves
        where it is 0; take_back() then undoes the counting. What is marked as frozen stands still in any case.
        """
        extents = self._moving(extents)
        for name in PARAM_GROUPS:
            if settings.rule(name) != self.rules[name]:
                self._switch(name, settings)
        self.rows.drop(FORGOTTEN)
        self._counted = tuple(name for name in PARAM_GROUPS if self.rules[name] == "adam")
        for name in PARAM_GROUPS:
            if name in self._counted:
                self.steps[name] += 1
            gradient = gradients.get(name)
            if gradient is None or gradient.numel() == 0 or self.rules[name] == "still":
                continue
            if self.rules[name] == "sgd":
                self._descend(name, gradient, rates[name], settings.momentum, extents, ok)
                continue
            exp_avg, exp_avg_sq = self.moments(name)
            adam_step(self.rows[name], gradient, exp_avg, exp_avg_sq, step=self.steps[name], lr=rates[name],
                      beta1=BETA1, beta2=BETA2, eps=eps, backend=backend, extents=extents, ok=ok)

    def _descend(self, name: str, gradient: Tensor, rate: float, momentum: float, extents: Tensor | None,
                 ok: Tensor | None) -> None:
        """b = momentum b + g, param -= rate b; one rounding an operation, so that the bits are those of any thread count."""
        with timing.measure("adam"):
            param, kept = self.rows[name], self.momentum(name)
            if kept is None:
                kept = torch.zeros_like(param, requires_grad=False)
                self.rows.put(f"sgd.momentum.{name}", kept)
            new = kept * momentum
            new.add_(gradient)
            moved = param - new * rate
            if extents is None and ok is None:
                kept.copy_(new)
                param.copy_(moved)
                return
            moves = torch.ones(len(param), dtype=torch.bool, device=param.device) if extents is None else extents[:, 0] > 0
            if ok is not None and ok.device == param.device:
                moves = moves & (ok != 0)
            moves = moves.view(-1, *[1] * (param.dim() - 1))
            kept.copy_(torch.where(moves, new, kept))
            param.copy_(torch.where(moves, moved, param))

    def _switch(self, name: str, settings: OptimizerConfig) -> None:
        self.rules[name] = settings.rule(name)
        if settings.on_switch == "zero":
            self.forget(name)
            self.rows.drop(f"sgd.momentum.{name}")
            self.steps[name] = 0

    def _moving(self, extents: Tensor | None) -> Tensor | None:
        """The extents, 0 where a Gaussian is frozen."""
        frozen = self.rows.get(FROZEN)
        if frozen is None:
            return extents
        free = (~frozen).to(self.rows["means"].dtype)[:, None]
        return (free.expand(-1, 2) if extents is None else extents * free).contiguous()

    def memory(self) -> dict[str, Any]:
        """What the optimiser knows besides its arrays, as JSON."""
        return {"steps": dict(self.steps), "rules": dict(self.rules)}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take up what memory() gave; what is not in it starts anew."""
        self.steps |= {name: int(count) for name, count in memory.get("steps", {}).items() if name in self.steps}
        self.rules |= {name: str(rule) for name, rule in memory.get("rules", {}).items() if name in self.rules}

    def take_back(self) -> None:
        """The last step did not count: its gradients were not finite."""
        for name in self._counted:
            self.steps[name] -= 1
        self._counted = ()

    def forget(self, group: str, chosen: Tensor | None = None) -> None:
        """Zero what is remembered of a group, as after an opacity reset; the step count goes on. `chosen` = of these rows
        alone, a mask or indices."""
        mark = self.rows.get(FORGOTTEN + group)
        if mark is None:
            mark = torch.zeros(len(self.rows), dtype=torch.bool, device=self.rows[group].device)
            self.rows.put(FORGOTTEN + group, mark)
        for array in self.memories(group):
            if chosen is None:
                array.zero_()
            else:
                array[chosen] = 0.0
        mark[slice(None) if chosen is None else chosen] = True
