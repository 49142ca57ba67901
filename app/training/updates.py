"""What the last step added to the parameters, read back from what the optimiser remembers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from app.training import schedule
from app.training.marks import FROZEN
from app.training.optimizer import BETA1, BETA2, FORGOTTEN

if TYPE_CHECKING:
    from app.training.trainer import Trainer


def gradient_iteration(trainer: Trainer) -> int:
    """The iteration whose gradients the registry holds: in the middle of a step one more than was taken."""
    return trainer.iteration + (trainer.phase == "backward")


def seen_in_step(trainer: Trainer) -> Tensor | None:
    """[N,2] px: the largest extents in any view of the step whose gradients are known; None before the first."""
    union = trainer.state.rows.get("last.union")
    return trainer.last_extents if union is None else union


def last_rates(trainer: Trainer) -> dict[str, float]:
    """The learning rates that the last step went by, or the step under way will."""
    return schedule.learning_rates(trainer.last_config or trainer.config, gradient_iteration(trainer), trainer.extent)


def last_update(trainer: Trainer, group: str, row: int | None = None) -> Tensor | None:
    """[N,...] what the last step added to a raw parameter group; of one `row` as float64 on the CPU, [...].

    Adam: -rate m̂ / (√v̂ + ε); SGD: -rate b. None before the first step, for a group without numbers, and in the middle of a
    step whose gradients are known while its update is not made. Rows born since have zeros; NaN where what the optimiser
    remembers was zeroed since: see forgotten().
    """
    optimizer, config = trainer.state.optimizer, trainer.last_config
    if config is None or trainer.phase == "backward" or trainer.state.rows[group].numel() == 0:
        return None
    rule, momentum = optimizer.rules[group], optimizer.momentum(group)
    if group not in trainer.gradients() or rule == "still" or (rule == "adam" and optimizer.steps[group] < 1):
        return _zeros(trainer, group, row)
    rate = last_rates(trainer)[group]
    if rule == "sgd":
        update = _zeros(trainer, group, row) if momentum is None else _pick(momentum, row) * -rate
    else:
        step, (m, v) = optimizer.steps[group], (_pick(moment, row) for moment in optimizer.moments(group))
        root = torch.sqrt(v) * (1.0 / math.sqrt(1.0 - BETA2 ** step)) + config.adam_eps
        update = m * -(rate / (1.0 - BETA1 ** step)) / root
    lost = forgotten(trainer, group)
    if lost is not None:
        update = update.masked_fill(lost.view(-1, *[1] * (update.dim() - 1)) if row is None else lost[row].cpu(), math.nan)
    moved = _moved(trainer, config.sparse_adam)
    if row is not None:
        return update if moved is None or bool(moved[row]) else torch.zeros_like(update)
    return update if moved is None else torch.where(moved.view(-1, *[1] * (update.dim() - 1)), update, 0.0)


def forgotten(trainer: Trainer, group: str) -> Tensor | None:
    """[N] bool: whose memory of a group was zeroed since the last update, by a reset, a relocation or by hand, so that it is
    not known any more what the update was; None = nobody's."""
    return trainer.state.rows.get(FORGOTTEN + group)


def took_part(trainer: Trainer) -> Tensor:
    """[N] bool: who was there when the last update was made."""
    return trainer.state.rows["uids"] < trainer.stepping.first_unborn


def _moved(trainer: Trainer, sparse: bool) -> Tensor | None:
    """[N] bool: who may have moved; None = all."""
    frozen, extents = trainer.state.rows.get(FROZEN), seen_in_step(trainer)
    moved = None if frozen is None else ~frozen
    if sparse and extents is not None:
        seen = extents[:, 0] > 0
        moved = seen if moved is None else moved & seen
    return moved


def _pick(array: Tensor, row: int | None) -> Tensor:
    return array if row is None else array[row].detach().cpu().double()


def _zeros(trainer: Trainer, group: str, row: int | None) -> Tensor:
    return torch.zeros_like(_pick(trainer.state.rows[group].detach(), row))
