"""3D Gaussian splatting as Markov chain Monte Carlo (Kheradmand et al. 2024): dead Gaussians move onto opaque ones, the rest
grow up to the cap, and noise lets them explore. Nothing is removed: the number of Gaussians never falls (F14)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.messages import Densified, Histogram
from app.training import schedule as schedules
from app.training.arrays import host
from app.training.densify.base import Candidates, DensifyRecord, Rule, Strategy, TrainState, ViewGradients
from app.training.densify.operations import free, no_rows, reasons, rotate, sound
from app.training.densify.relocation import OPAQUE, draw, share
from app.training.densify.statistics import GradientStatistics, distribution
from app.training.rows import Rows
from app.training.schedule import Schedule
from render.types import PARAM_GROUPS, GaussianParams

STEEPNESS = 100.0
THRESHOLD = 0.005
"""Noise is scaled by 1 / (1 + exp(STEEPNESS (opacity - THRESHOLD))): only the nearly transparent wander."""
OPACITY_RANGE = 1e-4, 1.0


class MarkovChain(Strategy):
    """Differs from the authors' code in two ways: a Gaussian with a parameter that is not finite counts as dead, so that it
    is healed; and Adam forgets the moments of the moved rows too, which belong to another place, not only of their targets.
    """

    NAME: StrategyName = "mcmc"

    def __init__(self) -> None:
        self._ok: Tensor | None = None   # of the last step, on a GPU: 0 = it does not count

    def admit(self, params: GaussianParams, cap: int, warn: Callable[[str], None]) -> GaussianParams:
        """Trimmed to the cap, evenly over the rows: nothing would lower their number later (F14)."""
        count = len(params)
        if count <= cap:
            return params
        warn(f"The run starts with {count:,} Gaussians, more than the cap of {cap:,}: mcmc never lowers their number, so "
             f"{count - cap:,} are left out, evenly over all.")
        keep = torch.from_numpy(np.linspace(0, count - 1, cap).round().astype(np.int64)).to(params.uids.device)
        return GaussianParams(**{name: tensor.detach()[keep] for name, tensor in params.trained().items()},
                              uids=params.uids[keep])

    def taken_up(self, state: TrainState) -> None:
        if len(state.rows) > state.cap:
            state.warn(f"There are {len(state.rows):,} Gaussians, more than the cap of {state.cap:,}: mcmc never lowers their "
                       "number, so they stay and none is added.")

    # ------------------------------------------------------------------ every step

    @torch.no_grad()
    def regularise(self, state: TrainState, gradients: dict[str, Tensor], config: TrainConfig) -> dict[str, Tensor]:
        """Adds those of opacity_reg mean(opacities) + scale_reg mean(scales) [N] and [N,3]: by logit o (1 - o) / N, by log
        scale s / 3N. Rows where that is not finite get nothing."""
        gaussians, densify, count = state.activate(), config.densify, len(state.rows)
        o, s = gaussians.opacities, gaussians.scales
        terms = {"logit_opacities": o * (1.0 - o) * (densify.mcmc_opacity_reg / count),
                 "log_scales": s * (densify.mcmc_scale_reg / (3 * count))}
        return gradients | {name: gradients[name] + torch.where(torch.isfinite(term), term, 0.0)
                            for name, term in terms.items() if name in gradients}

    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        self._ok = seen.ok
        GradientStatistics(state.rows).add(seen, self.wants_absolute(config))

    @torch.no_grad()
    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        record = None
        if schedule.densifies(iteration):
            plan = self.plan(state, iteration, config, schedule, state.rng)
            if plan.problem:
                state.warn(f"Nothing was densified: {plan.problem}")
            else:
                record = self.carry_out(state, plan, iteration)
        if state.optimizer.rules["means"] != "still":
            rate = schedules.learning_rates(config, iteration, state.extent)["means"]
            self.add_noise(state, config.densify.mcmc_noise_lr * rate)
        return record

    def add_noise(self, state: TrainState, size: float) -> None:
        """mean += size * sigmoid * Sigma * n, n ~ N(0, 1)^3: SGLD noise, Eq. 8 of the paper, as its code scales it.

        On a GPU everything stays there, drawn by a generator that state.rng seeds; on the CPU numpy does the work, for
        the same bits on any number of threads. Frozen rows and those that are not finite stand still.
        """
        rows = state.rows
        means, quats = rows["means"].detach(), rows["quats"].detach()
        noise, factor, variances = (_on_the_host if means.device.type == "cpu" else _on_the_device)(rows, state.rng)
        factor = factor * size
        if self._ok is not None:
            factor = factor * self._ok
        w, x, y, z = quats.unbind(1)
        unit = quats / torch.sqrt(w * w + x * x + y * y + z * z)[:, None]
        back = torch.cat([unit[:, :1], -unit[:, 1:]], dim=1)
        moved = rotate(unit, rotate(back, noise) * variances) * factor[:, None]   # Sigma = R S^2 R^T
        x, y, z = moved.unbind(1)
        fine = (torch.isfinite(x) & torch.isfinite(y) & torch.isfinite(z) & free(rows))[:, None]
        means.add_(torch.where(fine, moved, 0.0))

    # ------------------------------------------------------------------ events

    def plan(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule,
             rng: np.random.Generator) -> Candidates:
        rows, densify = state.rows, config.densify
        opacities = state.activate().opacities
        mine, fine = free(rows), sound(rows)
        dead = mine & ~((opacities > densify.mcmc_dead_opacity) & fine)
        weights = np.where(host(mine & ~dead), host(opacities).astype(np.float64), 0.0)
        histogram = self._histogram(opacities, densify)
        if not weights.any():
            return Candidates.nothing(rows, f"no Gaussian that may change is more opaque than {densify.mcmc_dead_opacity:g}, "
                                      "so there is nothing to move dead ones onto.", histogram)
        gone = np.flatnonzero(host(dead))
        targets = draw(weights, len(gone), rng)
        # the rows as they will be then: those that live, in their order, and behind them the moved ones
        origin = np.concatenate([np.flatnonzero(~host(dead)), targets])
        copies = np.bincount(targets, minlength=len(rows)) + 1
        after, _ = share(weights, copies)
        weights = np.where(copies > 1, np.maximum(after, densify.mcmc_dead_opacity), weights)[origin]
        wanted = int((1.0 + densify.mcmc_growth) * len(rows)) - len(rows)
        added = max(0, min(wanted, state.cap - len(rows)))
        more = draw(weights, added, rng)
        sources, drawn = no_rows(rows), "drawn by opacity"
        sources[torch.from_numpy(np.concatenate([targets, origin[more]])).to(sources.device)] = True
        grown = no_rows(rows)
        grown[torch.from_numpy(origin[more]).to(sources.device)] = True
        none = no_rows(rows)
        rules = (Rule("relocated", dead, "opacity", opacities, "≤", densify.mcmc_dead_opacity),
                 Rule("added", grown, drawn, opacities, "", float("nan")))
        notes = (f"The cap of {state.cap:,} Gaussians is reached: mcmc goes on moving dead ones.",) if added < wanted else ()
        problem = "" if len(gone) or added else "no Gaussian is dead, and the cap leaves no room for more." if wanted else (
            "no Gaussian is dead, and mcmc_growth adds none.")
        return Candidates(none, none, none, dead, sources, none, len(rows) + added, added, wanted - added, rules, histogram,
                          notes, problem, moves=(targets, more))

    def carry_out(self, state: TrainState, plan: Candidates, iteration: int) -> DensifyRecord:
        for note in plan.notes:
            state.warn(note)
        assert plan.moves is not None
        targets, more = plan.moves
        uids = host(state.rows["uids"]).copy()
        why = reasons(plan.rules, uids)
        dead = host(plan.dead)
        floor = max((rule.limit for rule in plan.rules if rule.action == "relocated"), default=THRESHOLD)
        moved = _multiply(state, targets, ~dead, floor, iteration)
        added = _multiply(state, more, np.ones(len(state.rows), bool), floor, iteration)
        GradientStatistics(state.rows).clear()
        event = Densified(iteration, count=len(state.rows), strategy=self.NAME, relocated=int(dead.sum()), added=len(more))
        children, parents = (np.concatenate(pair) for pair in zip(moved, added, strict=True))
        return DensifyRecord(event, born=children, parents=parents, histogram=plan.histogram, relocated=uids[dead], why=why)

    def histogram(self, state: TrainState, config: TrainConfig) -> Histogram:
        return self._histogram(state.activate().opacities, config.densify)

    @staticmethod
    def _histogram(opacities: Tensor, config: DensifyConfig) -> Histogram:
        return distribution(host(opacities), *OPACITY_RANGE, config.mcmc_dead_opacity, "opacity; dead up to the line",
                            "densify.mcmc_dead_opacity", below=True)


def _on_the_host(rows: Rows, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """(n [N,3], sigmoid [N], squared scales [N,3])."""
    logs, logits = (host(rows[name]) for name in ("log_scales", "logit_opacities"))
    with np.errstate(over="ignore", invalid="ignore"):
        opacities = 1.0 / (1.0 + np.exp(-logits))
        wandering = 1.0 / (1.0 + np.exp(np.float32(STEEPNESS) * (opacities - np.float32(THRESHOLD))))
        variances = np.exp(np.float32(2.0) * logs)
    noise = rng.standard_normal(logs.shape, dtype=np.float32)
    return torch.from_numpy(noise), torch.from_numpy(wandering), torch.from_numpy(variances)


def _on_the_device(rows: Rows, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The same without a word to the host: drawn where the rows are, by a generator that `rng` seeds."""
    logs, logits = (rows[name].detach() for name in ("log_scales", "logit_opacities"))
    generator = torch.Generator(logs.device).manual_seed(int(rng.integers(2 ** 63)))
    noise = torch.randn(logs.shape, generator=generator, device=logs.device)
    wandering = torch.sigmoid(-STEEPNESS * (torch.sigmoid(logits) - THRESHOLD))
    return noise, wandering, torch.exp(2.0 * logs)


def _multiply(state: TrainState, sources: np.ndarray, keep: np.ndarray, floor: float, iteration: int
              ) -> tuple[np.ndarray, np.ndarray]:
    """Drop the rows that are not in `keep` [N], and append a copy of row sources[i] for each i. All that are then in one
    place share the opacity and the size of the one that was there. Returns (uids of the copies, uids of their sources)."""
    rows, device = state.rows, state.rows["uids"].device
    touched, counts = np.unique(sources, return_counts=True)
    index = torch.from_numpy(touched).to(device)
    logits, logs = rows["logit_opacities"].detach(), rows["log_scales"].detach()
    new, factors = share(1.0 / (1.0 + np.exp(-host(logits[index]).astype(np.float64))), counts + 1)
    new = np.clip(new, floor, OPAQUE)
    logits[index] = torch.from_numpy(np.log(new / (1.0 - new)).astype(np.float32)).to(device)
    logs[index] = logs[index] + torch.from_numpy(np.log(factors).astype(np.float32)).to(device)[:, None]
    for name in PARAM_GROUPS:
        state.optimizer.forget(name, index)
    parents = torch.from_numpy(sources.astype(np.int64)).to(device)
    parent_uids = host(rows["uids"])[sources]
    uids = state.lineage.give_birth(parent_uids, iteration)
    born = {name: rows[name].detach()[parents] for name in PARAM_GROUPS} | rows.inherited(parents)
    born["uids"] = torch.from_numpy(uids).to(device)
    rows.surgery(torch.from_numpy(np.flatnonzero(keep)).to(device), born, len(sources))
    return uids, parent_uids
