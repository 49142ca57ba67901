"""Adaptive density control as published (Kerbl et al. 2023, section 5), with AbsGS as an option (Ye et al. 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig, TrainConfig
from app.messages import Densified
from app.training.densify.base import DensifyRecord, Strategy, TrainState, ViewGradients
from app.training.densify.statistics import RADIUS, GradientStatistics, threshold
from app.training.marks import FROZEN
from app.training.schedule import Schedule
from render.types import PARAM_GROUPS, Gaussians

CHILDREN = 2
SHRINK = 1.6
"""A split Gaussian becomes CHILDREN drawn from it, each SHRINK times smaller (0.8 * CHILDREN in the published code)."""
SCREEN_LIMIT = 20.0
"""Radius in px above which the optional screen prune removes."""


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
    sizes: Tensor                # [B] largest activated scale
    opacities: Tensor            # [B] activated


class AdaptiveDensityControl(Strategy):
    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        GradientStatistics(state.rows).add(seen, config.densify.absgrad)

    @torch.no_grad()
    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        record = None
        if schedule.densifies(iteration):
            record = self.densify(state, iteration, config.densify, after_reset=iteration > schedule.reset_every)
        if schedule.resets(iteration):
            reset = reset_opacities(state, iteration, config)
            if record is None:
                return reset
            event = record.event
            record = DensifyRecord(
                Densified(iteration, event.cloned, event.split, event.pruned, reset.event.reset, event.count),
                record.cloned, record.split, record.pruned, record.born, record.parents, record.histogram)
        return record

    def densify(self, state: TrainState, iteration: int, config: DensifyConfig, *, after_reset: bool) -> DensifyRecord:
        """Clone, split and prune once, and start the statistics anew.

        Large Gaussians are removed (world size, and screen size where asked for) only `after_reset`, as published.
        """
        rows, stats = state.rows, GradientStatistics(state.rows)
        if bool(stats.never_seen.all()):
            state.warn("No view has seen any Gaussian since the last densification, so nothing was cloned or split.")
        histogram = stats.histogram(config, f", at iteration {iteration}")
        gaussians = state.activate()
        largest = largest_scale(gaussians)
        cloned, split = self.choose(state, stats.average(config.absgrad), largest, config)
        births = join(clone(state, cloned, gaussians, largest), split_in_two(state, split, gaussians, largest))

        # as published: prune looks at everything there would be after cloning and splitting
        radii = rows[RADIUS]  # of before: born ones have not been on a screen yet (F01)
        gone = prunable(gaussians.opacities, largest, radii, state.extent, config, after_reset)
        stillborn = prunable(births.opacities, births.sizes, torch.zeros_like(births.sizes), state.extent, config,
                             after_reset)
        if FROZEN in rows:
            gone = gone & ~rows[FROZEN]
        keep, alive = ~(split | gone), ~stillborn
        if not bool(keep.any()) and not bool(alive.any()):
            keep[int(np.argmax(gaussians.opacities.cpu().numpy()))] = True  # never 0 Gaussians (F03)
            state.warn(f"Iteration {iteration}: pruning would have removed every Gaussian; the most opaque one stays.")

        uids = rows["uids"].cpu().numpy()
        pruned = int((~keep & ~split).sum()) + int(stillborn.sum())
        parents = uids[births.parents.cpu().numpy()]
        child_uids = state.lineage.give_birth(parents, iteration)
        born = {name: array[alive] for name, array in births.arrays.items()}
        born["uids"] = torch.from_numpy(child_uids).to(rows["uids"].device)[alive]
        born |= rows.inherited(births.parents[alive])
        rows.surgery(torch.nonzero(keep)[:, 0], born, int(alive.sum()))
        stats.clear()
        event = Densified(iteration, int(cloned.sum()), int(split.sum()), pruned, 0, len(rows))
        cpu_gone, cpu_dead = (~keep & ~split).cpu().numpy(), stillborn.cpu().numpy()
        return DensifyRecord(event, uids[cloned.cpu().numpy()], uids[split.cpu().numpy()],
                             np.concatenate([uids[cpu_gone], child_uids[cpu_dead]]), child_uids, parents,
                             histogram)

    def choose(self, state: TrainState, statistic: Tensor, largest: Tensor,
               config: DensifyConfig) -> tuple[Tensor, Tensor]:
        """Masks (clone, split) [N]: above the threshold, small or large against percent_dense * extent.

        Either adds one Gaussian to the count, so at most cap - N are taken, the largest statistic first (F11).
        """
        chosen = statistic >= threshold(config)
        if FROZEN in state.rows:
            chosen = chosen & ~state.rows[FROZEN]
        room = max(0, state.cap - len(state.rows))
        if int(chosen.sum()) > room:
            values = np.where(chosen.cpu().numpy(), statistic.cpu().numpy(), -np.inf)
            first = np.argsort(-values, kind="stable")[:room]
            chosen = torch.zeros_like(chosen)
            chosen[torch.from_numpy(first).to(chosen.device)] = True
            state.warn(f"The cap of {state.cap:,} Gaussians is reached: not all above the threshold grow.")
        small = largest <= config.percent_dense * state.extent
        return chosen & small, chosen & ~small


def largest_scale(gaussians: Gaussians) -> Tensor:
    """[N] world units."""
    x, y, z = gaussians.scales.unbind(1)
    return torch.maximum(torch.maximum(x, y), z)


def prunable(opacities: Tensor, largest: Tensor, radii: Tensor, extent: float, config: DensifyConfig,
             after_reset: bool) -> Tensor:
    """Mask of the Gaussians to remove: nearly transparent, or too large once opacities have been reset."""
    gone = opacities < config.prune_opacity
    if after_reset:
        gone = gone | (largest > config.prune_world * extent)
        if config.prune_screen:
            gone = gone | (radii > SCREEN_LIMIT)
    return gone


def clone(state: TrainState, mask: Tensor, gaussians: Gaussians, largest: Tensor) -> Births:
    """An exact copy of each; the gradient of the next step moves them apart."""
    index = torch.nonzero(mask)[:, 0]
    arrays = {name: state.rows[name].detach()[index] for name in PARAM_GROUPS}
    return Births(index, arrays, largest[index], gaussians.opacities[index])


def split_in_two(state: TrainState, mask: Tensor, gaussians: Gaussians, largest: Tensor) -> Births:
    """Two children drawn from each Gaussian, 1.6 times smaller; the parent is to be removed."""
    index = torch.nonzero(mask)[:, 0].repeat(CHILDREN)
    arrays = {name: state.rows[name].detach()[index] for name in PARAM_GROUPS}
    noise = state.rng.standard_normal((len(index), 3), dtype=np.float32)
    offsets = torch.from_numpy(noise).to(arrays["means"]) * gaussians.scales[index]
    arrays["means"] = arrays["means"] + rotate(gaussians.quats[index], offsets)
    arrays["log_scales"] = arrays["log_scales"] - math.log(SHRINK)
    return Births(index, arrays, largest[index] / SHRINK, gaussians.opacities[index])


def join(a: Births, b: Births) -> Births:
    arrays = {name: torch.cat([a.arrays[name], b.arrays[name]]) for name in a.arrays}
    return Births(torch.cat([a.parents, b.parents]), arrays, torch.cat([a.sizes, b.sizes]),
                  torch.cat([a.opacities, b.opacities]))


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
    return DensifyRecord(Densified(iteration, reset=lowered, count=len(logits)))
