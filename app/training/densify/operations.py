"""What strategies are made of: copies, children, removal and the reset of opacities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig, TrainConfig
from app.messages import Densified
from app.training.densify.base import Candidates, DensifyRecord, Rule, TrainState, Why
from app.training.marks import FROZEN
from app.training.rows import Rows
from render.types import PARAM_GROUPS, Gaussians

CHILDREN = 2
SHRINK = 1.6
"""A split Gaussian becomes CHILDREN drawn from it, each SHRINK times smaller (0.8 * CHILDREN in the published code)."""
SCREEN_LIMIT = 20.0
"""Radius in px above which the optional screen prune removes."""


# ------------------------------------------------------------------ which rows

def no_rows(rows: Rows) -> Tensor:
    """[N] bool, nothing but False."""
    return torch.zeros(len(rows), dtype=torch.bool, device=rows["uids"].device)


def free(rows: Rows) -> Tensor:
    """[N] bool: those that the user has not frozen."""
    frozen = rows.get(FROZEN)
    return ~no_rows(rows) if frozen is None else ~frozen


def sound(rows: Rows) -> Tensor:
    """[N] bool: every raw parameter is finite. What is not takes no part in growth."""
    fine = ~no_rows(rows)
    for name in PARAM_GROUPS:
        array = rows[name].detach()
        if array.numel():
            fine = fine & torch.isfinite(array.reshape(len(array), -1)).all(dim=1)
    return fine


def largest_scale(gaussians: Gaussians) -> Tensor:
    """[N] world units."""
    x, y, z = gaussians.scales.unbind(1)
    return torch.maximum(torch.maximum(x, y), z)


def prune_rules(opacities: Tensor, largest: Tensor, radii: Tensor, extent: float, config: DensifyConfig,
                after_reset: bool) -> list[Rule]:
    """What to remove: the nearly transparent, and once opacities have been reset the too large."""
    rules = [Rule("pruned", opacities < config.prune_opacity, "opacity", opacities, "<", config.prune_opacity)]
    if after_reset:
        limit = config.prune_world * extent
        rules.append(Rule("pruned", largest > limit, "largest scale", largest, ">", limit))
        if config.prune_screen:
            rules.append(Rule("pruned", radii > SCREEN_LIMIT, "radius [px]", radii, ">", SCREEN_LIMIT))
    return rules


def any_of(rules: Sequence[Rule]) -> Tensor:
    """[N] bool: in the mask of one of them."""
    mask = rules[0].mask
    for rule in rules[1:]:
        mask = mask | rule.mask
    return mask


def reasons(rules: Sequence[Rule], uids: np.ndarray) -> tuple[Why, ...]:
    """Rules about rows as sentences about uids [N]; a row that two rules of an action concern goes by the first."""
    found, told = [], {}
    for rule in rules:
        mask = rule.mask.cpu().numpy()
        before = told.setdefault(rule.action, np.zeros(len(uids), bool))
        rows = np.flatnonzero(mask & ~before)
        before |= mask
        if len(rows):
            found.append(Why(rule.action, uids[rows], rule.label, rule.values.detach().cpu().numpy()[rows], rule.relation,
                             rule.limit))
    return tuple(found)


# ------------------------------------------------------------------ births

def rotate(quats: Tensor, vectors: Tensor) -> Tensor:
    """R(q) v for unit quats [N,4] wxyz and vectors [N,3], as v + 2w(u x v) + 2u x (u x v): no matmul, the same bits on
    any number of threads."""
    w, u = quats[:, :1], quats[:, 1:]

    def cross(a: Tensor, b: Tensor) -> Tensor:
        x = a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1]
        y = a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2]
        z = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
        return torch.stack([x, y, z], dim=1)

    t = cross(u, vectors) * 2.0
    return vectors + t * w + cross(u, t)


@dataclass
class Births:
    """Rows to append (raw parameters by group) and the rows they come from."""

    parents: Tensor              # int64 [B] row of the parent
    arrays: dict[str, Tensor]    # by parameter group, [B,...]


def clone(state: TrainState, mask: Tensor) -> Births:
    """An exact copy of each; the gradient of the next step moves them apart."""
    index = torch.nonzero(mask)[:, 0]
    return Births(index, {name: state.rows[name].detach()[index] for name in PARAM_GROUPS})


def split_in_two(state: TrainState, mask: Tensor, gaussians: Gaussians) -> Births:
    """Two children drawn from each Gaussian, 1.6 times smaller; the parent is to be removed."""
    index = torch.nonzero(mask)[:, 0].repeat(CHILDREN)
    arrays = {name: state.rows[name].detach()[index] for name in PARAM_GROUPS}
    noise = state.rng.standard_normal((len(index), 3), dtype=np.float32)
    offsets = torch.from_numpy(noise).to(arrays["means"]) * gaussians.scales[index]
    arrays["means"] = arrays["means"] + rotate(gaussians.quats[index], offsets)
    arrays["log_scales"] = arrays["log_scales"] - math.log(SHRINK)
    return Births(index, arrays)


def join(a: Births, b: Births) -> Births:
    return Births(torch.cat([a.parents, b.parents]), {name: torch.cat([a.arrays[name], b.arrays[name]]) for name in a.arrays})


def grow_and_prune(state: TrainState, plan: Candidates, iteration: int, strategy: str) -> DensifyRecord:
    """Carry out a plan of clones, splits and removals. Children that the plan calls stillborn are not added."""
    rows = state.rows
    births = join(clone(state, plan.clone), split_in_two(state, plan.split, state.activate()))
    uids = rows["uids"].cpu().numpy()
    parents = uids[births.parents.cpu().numpy()]
    children = state.lineage.give_birth(parents, iteration)
    alive = ~plan.stillborn[births.parents]
    born = {name: array[alive] for name, array in births.arrays.items()}
    born["uids"] = torch.from_numpy(children).to(rows["uids"].device)[alive]
    born |= rows.inherited(births.parents[alive])
    why = reasons(plan.rules, uids)
    cloned, split, pruned = (uids[mask.cpu().numpy()] for mask in (plan.clone, plan.split, plan.prune))
    unborn = children[~alive.cpu().numpy()]
    if len(unborn):
        nothing = np.full(len(unborn), np.nan, np.float32)
        why = (*why, Why("pruned", unborn, "born too transparent or too large", nothing, "", math.nan))
    rows.surgery(torch.nonzero(~(plan.split | plan.prune))[:, 0], born, int(alive.sum()))
    event = Densified(iteration, len(cloned), len(split), len(pruned) + len(unborn), 0, len(rows), strategy)
    return DensifyRecord(event, cloned, split, np.concatenate([pruned, unborn]), children, parents, plan.histogram, why=why)


# ------------------------------------------------------------------ resets

def reset_opacity(config: TrainConfig) -> float:
    """What opacities are reset to.

    Twice the cutoff is the least: below it a Gaussian would hardly touch a pixel and could not come back (N26).
    """
    return max(config.densify.reset_opacity, min(2.0 * config.raster.cutoff, config.raster.alpha_max))   # less than 1


def reset_opacities(state: TrainState, iteration: int, config: TrainConfig) -> DensifyRecord:
    """Lower every opacity to at most `reset_opacity` and forget Adam's moments of them; what is frozen stays."""
    wanted, value = config.densify.reset_opacity, reset_opacity(config)
    if wanted < value:
        state.warn(f"reset_opacity {wanted:g} is below twice the alpha cutoff: opacities are reset to {value:g}.")
    logits = state.rows["logit_opacities"].detach()
    ceiling = math.log(value / (1.0 - value))
    above = logits > ceiling
    if FROZEN in state.rows:
        above = above & ~state.rows[FROZEN]
    lowered = int(above.sum())
    logits.copy_(torch.where(above, logits.clamp(max=ceiling), logits))
    state.optimizer.forget("logit_opacities")
    return DensifyRecord(Densified(iteration, reset=lowered, count=len(logits), strategy=config.densify.strategy))
