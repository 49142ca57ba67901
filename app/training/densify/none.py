"""No densification: the Gaussians there are stay as many. Statistics are still gathered, for those who look."""

from __future__ import annotations

from app.config import StrategyName, TrainConfig
from app.training.densify.base import DensifyRecord, Strategy, TrainState, ViewGradients
from app.training.densify.statistics import GradientStatistics
from app.training.schedule import Schedule


class NoDensification(Strategy):
    NAME: StrategyName = "none"

    def after_backward(self, state: TrainState, seen: ViewGradients, config: TrainConfig) -> None:
        GradientStatistics(state.rows).add(seen, self.wants_absolute(config))

    def after_step(self, state: TrainState, iteration: int, config: TrainConfig,
                   schedule: Schedule) -> DensifyRecord | None:
        return None
