"""Adaptive density control as published (Kerbl et al. 2023, section 5), with sums of absolute gradients as an option."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.training.arrays import host
from app.training.densify.base import Candidates, DensifyRecord, Rule, Strategy, TrainState, ViewGradients
from app.training.densify.operations import (
    SHRINK,
    any_of,
    free,
    grow_and_prune,
    largest_scale,
    prune_rules,
    reset_opacities,
    sound,
)
from app.training.densify.statistics import RADIUS, GradientStatistics, statistic_label, threshold
from app.training.schedule import Schedule
from render.types import Gaussians

NOTHING_SEEN = "No view has seen any Gaussian since the last densification, so nothing was cloned or split."


class AdaptiveDensityControl(Strategy):
    NAME: StrategyName = "adc"

    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        GradientStatistics(state.rows).add(seen, self.wants_absolute(config))

    def due(self, iteration: int, schedule: Schedule) -> bool:
        return schedule.densifies(iteration) or schedule.resets(iteration)

    @torch.no_grad()
    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        record = None
        if schedule.densifies(iteration):
            record = self.carry_out(state, self.plan(state, iteration, config, schedule, state.rng), iteration)
        if schedule.resets(iteration):
            reset = reset_opacities(state, iteration, config)
            record = reset if record is None else replace(record, event=replace(record.event, reset=reset.event.reset))
        return record

    def plan(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule,
             rng: np.random.Generator) -> Candidates:
        return self.planned(state, config.densify, iteration, after_reset=iteration > schedule.reset_every)

    def planned(self, state: TrainState, config: DensifyConfig, iteration: int, *, after_reset: bool) -> Candidates:
        """Clone, split and prune: as published, prune looks at everything there would be after cloning and splitting.

        Large Gaussians are removed (world size, and screen size where asked for) only `after_reset`.
        """
        gaussians = state.activate()
        clone, split, left_out, why = self.choose(state, gaussians, config)
        return self.with_pruning(state, gaussians, clone, split, why, config, iteration, after_reset=after_reset,
                                 left_out=left_out)

    def carry_out(self, state: TrainState, plan: Candidates, iteration: int) -> DensifyRecord:
        for note in plan.notes:
            state.warn(note)
        record = grow_and_prune(state, plan, iteration, self.NAME)
        GradientStatistics(state.rows).clear()
        return record

    def densify(self, state: TrainState, iteration: int, config: DensifyConfig, *, after_reset: bool) -> DensifyRecord:
        """Clone, split and prune once, and start the statistics anew."""
        with torch.no_grad():
            return self.carry_out(state, self.planned(state, config, iteration, after_reset=after_reset), iteration)

    def rules(self, state: TrainState, largest: Tensor, config: DensifyConfig) -> list[Rule]:
        """Who would be cloned or split if there were room: above the threshold, small or large against
        percent_dense * extent."""
        statistic, limit = GradientStatistics(state.rows).average(config.absolute), threshold(config)
        above, small = statistic >= limit, largest <= config.percent_dense * state.extent
        label = statistic_label(config.absolute)
        return [Rule("cloned", above & small, label, statistic, "≥", limit),
                Rule("split", above & ~small, label, statistic, "≥", limit)]

    def choose(self, state: TrainState, gaussians: Gaussians, config: DensifyConfig
               ) -> tuple[Tensor, Tensor, int, list[Rule]]:
        """Masks (clone, split) [N], how many the cap leaves out, and why.

        Either adds one Gaussian to the count, so at most cap - N are taken, the largest statistic first (F11); where
        the two have thresholds of their own, the largest share of it.
        """
        able = free(state.rows) & sound(state.rows)
        clones, splits = rules = self.rules(state, largest_scale(gaussians), config)
        clone, split = clones.mask & able, splits.mask & able
        wanted, room = int((clone | split).sum()), max(0, state.cap - len(state.rows))
        if wanted > room:
            one = clones.limit == splits.limit
            values = np.where(host(split), host(splits.values) / (1.0 if one else splits.limit),
                              host(clones.values) / (1.0 if one else clones.limit))
            first = np.argsort(-np.where(host(clone | split), values, -np.inf), kind="stable")[:room]
            chosen = torch.zeros_like(clone)
            chosen[torch.from_numpy(first).to(chosen.device)] = True
            clone, split = clone & chosen, split & chosen
        return clone, split, max(0, wanted - room), rules

    def with_pruning(self, state: TrainState, gaussians: Gaussians, clone: Tensor, split: Tensor, why: list[Rule],
                     config: DensifyConfig, iteration: int, *, after_reset: bool, left_out: int = 0) -> Candidates:
        """The whole plan, of those that grow and the rules that chose them."""
        stats, largest = GradientStatistics(state.rows), largest_scale(gaussians)
        rules = self.prunable(state, gaussians, config, after_reset)
        prune = any_of(rules) & free(state.rows) & ~split
        unseen = torch.zeros_like(largest)   # born ones have not been on a screen yet (F01)
        stillborn = (clone & any_of(prune_rules(gaussians.opacities, largest, unseen, state.extent, config, after_reset))
                     ) | (split & any_of(prune_rules(gaussians.opacities, largest / SHRINK, unseen, state.extent, config,
                                                     after_reset)))
        notes, alive = [], (clone | split) & ~stillborn
        if bool((split | prune).all()) and not bool(alive.any()):
            best = int(np.argmax(np.nan_to_num(host(gaussians.opacities), nan=-1.0)))
            prune, split = prune.clone(), split.clone()
            prune[best] = split[best] = False   # never 0 Gaussians (F03)
            notes.append(f"Iteration {iteration}: pruning would have removed every Gaussian; the most opaque one stays.")
        if left_out:
            notes.append(f"The cap of {state.cap:,} Gaussians is reached: not all above the threshold grow.")
        seen = not bool(stats.never_seen.all())
        if not seen and not bool((clone | split).any()):
            notes.append(NOTHING_SEEN)
        born = int(alive.sum()) + int((split & alive).sum())
        masks = {"cloned": clone, "split": split, "pruned": prune}
        nobody = not bool((clone | split | prune).any())
        problem = "" if not nobody else "nothing is above the threshold, and nothing would be pruned." if seen else (
            "no view has seen any Gaussian since the last densification, and nothing would be pruned.")
        return Candidates(
            clone, split, prune, torch.zeros_like(clone), torch.zeros_like(clone), stillborn,
            len(state.rows) - int((split | prune).sum()) + born, left_out=left_out,
            rules=tuple(replace(rule, mask=rule.mask & masks[rule.action]) for rule in (*why, *rules)),
            histogram=stats.histogram(config), notes=tuple(notes), problem=problem)

    def prunable(self, state: TrainState, gaussians: Gaussians, config: DensifyConfig, after_reset: bool) -> list[Rule]:
        """Radii are those of before the event (F01)."""
        return prune_rules(gaussians.opacities, largest_scale(gaussians), state.rows[RADIUS], state.extent, config,
                           after_reset)
