"""No densification: the Gaussians there are stay as many. Statistics are still gathered, for those who look."""

from __future__ import annotations

import numpy as np

from app.config import StrategyName, TrainConfig
from app.messages import Densified
from app.training.densify.base import Candidates, DensifyRecord, Strategy, TrainState, ViewGradients
from app.training.densify.statistics import GradientStatistics
from app.training.schedule import Schedule


class NoDensification(Strategy):
    NAME: StrategyName = "none"

    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        GradientStatistics(state.rows).add(seen, self.wants_absolute(config))

    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        return None

    def due(self, iteration: int, schedule: Schedule) -> bool:
        return False

    def plan(self, state: TrainState, iteration: int, config: TrainConfig, schedule: Schedule,
             rng: np.random.Generator) -> Candidates:
        return Candidates.nothing(state.rows, "This strategy adds and removes no Gaussians.")

    def carry_out(self, state: TrainState, plan: Candidates, iteration: int) -> DensifyRecord:
        return DensifyRecord(Densified(iteration, count=len(state.rows), strategy=self.NAME))
