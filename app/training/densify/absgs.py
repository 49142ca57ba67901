"""AbsGS (Ye et al. 2024): adaptive density control that splits on the sum of absolute gradients."""

from __future__ import annotations

from torch import Tensor

from app.config import DensifyConfig, StrategyName
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.base import Rule, TrainState
from app.training.densify.statistics import GradientStatistics, statistic_label


class AbsGS(AdaptiveDensityControl):
    """Pixels that pull a large Gaussian in opposite ways cancel in the signed sum, so that a blurred region is never split.

    As in the authors' code, small Gaussians are cloned by the signed sum against grad_threshold, large ones split by the
    sum of absolutes against absgs_threshold. (`absgrad` with the strategy adc takes the sum of absolutes for both.)
    """

    NAME: StrategyName = "absgs"

    def rules(self, state: TrainState, largest: Tensor, config: DensifyConfig) -> list[Rule]:
        stats = GradientStatistics(state.rows)
        signed, absolute = stats.average(False), stats.average(True)
        small = largest <= config.percent_dense * state.extent
        return [Rule("cloned", (signed >= config.grad_threshold) & small, statistic_label(False), signed, "≥",
                     config.grad_threshold),
                Rule("split", (absolute >= config.absgs_threshold) & ~small, statistic_label(True), absolute, "≥",
                     config.absgs_threshold)]
