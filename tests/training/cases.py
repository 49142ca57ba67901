"""Gaussians with sizes, opacities and statistics as a test writes them down, and the state that a strategy gets."""

from __future__ import annotations

import numpy as np
import torch

from app.config import DensifyConfig, TrainConfig
from app.training.densify.base import TrainState
from app.training.densify.lineage import Lineage
from app.training.densify.statistics import ABS_SUM, COUNT, SUM, GradientStatistics
from app.training.optimizer import Optimizer
from app.training.rows import Rows
from app.training.schedule import Schedule
from render.stages.activate import activate
from render.types import GaussianParams

EVERY_STEP = Schedule(length=30000, start=0, stop=15000, every=1, reset_every=3000, sh_every=1000)


def params_of(scales, opacities, quats=None) -> GaussianParams:
    """Gaussians with the given largest scale (the other two half of it) and opacity, a unit apart."""
    count = len(scales)
    scales, opacities = torch.tensor(scales), torch.tensor(opacities)
    means = torch.zeros(count, 3)
    means[:, 0] = torch.arange(count)
    log_scales = torch.stack([scales, scales / 2, scales / 2], dim=1).log()
    generator = torch.Generator().manual_seed(count)
    return GaussianParams(
        means=means, quats=torch.tensor([[1.0, 0, 0, 0]] * count if quats is None else quats), log_scales=log_scales,
        logit_opacities=torch.logit(opacities), sh0=torch.rand(count, 1, 3, generator=generator),
        shN=torch.rand(count, 3, 3, generator=generator), uids=torch.arange(100, 100 + count))


def state_of(params: GaussianParams, *, extent=1.0, cap=1000) -> tuple[TrainState, list[str]]:
    """The state, and what was said to the user."""
    rows = Rows(params)
    said: list[str] = []

    def activated():
        with torch.no_grad():
            return activate(rows.params, "reference")

    state = TrainState(rows, Optimizer(rows), Lineage(rows["uids"].numpy()), np.random.default_rng(0), extent, cap, activated,
                       said.append)
    GradientStatistics(rows)
    return state, said


def set_statistic(state: TrainState, values, counts=None, absolute=None) -> None:
    """Averages of every Gaussian; those of absolutes are five times as large unless they are given."""
    counts = torch.ones(len(values)) if counts is None else torch.tensor(counts)
    state.rows.put(SUM, torch.tensor(values) * counts)
    state.rows.put(ABS_SUM, (5.0 * torch.tensor(values) if absolute is None else torch.tensor(absolute)) * counts)
    state.rows.put(COUNT, counts)


def config_of(strategy, **fields) -> TrainConfig:
    return TrainConfig(densify=DensifyConfig(strategy=strategy, **fields))


def plan_of(strategy, state, config, iteration=7, schedule=EVERY_STEP):
    return strategy.candidates(state, iteration, config, schedule)


def event_of(strategy, state, config, iteration=7, schedule=EVERY_STEP):
    return strategy.carry_out(state, strategy.plan(state, iteration, config, schedule, state.rng), iteration)


def uids(state, mask):
    return state.rows["uids"][mask].tolist()
