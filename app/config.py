"""Configuration: frozen dataclasses whose field metadata is the CLI help, the tooltip and the slider range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from render.config import (
    BELOW_ONE,
    INSIDE_UNIT,
    LOSSES,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Domain,
    Loss,
    RasterConfig,
    check_settings,
    setting,
)

StrategyName = Literal["adc", "absgs", "mcmc", "taming", "none"]

EVAL_EVERY = 8
"""Every so many-th view is held out where views are held out, as graphdeco does."""


@dataclass(frozen=True)
class DensifyConfig:
    """How Gaussians are born and die: adaptive density control (Kerbl et al. 2023, section 5) and its rivals.

    Iteration numbers are for `reference_iterations` = 30 000.
    """

    strategy: StrategyName = setting(
        "adc", "How Gaussians are born and die. adc: clone, split and prune as published; absgs: the same, but splits on the "
        "sum of absolute gradients (AbsGS); mcmc: dead ones move onto opaque ones, and the rest grow to the cap (3DGS as "
        "MCMC): it never lowers the number of Gaussians, and a run that starts above the cap is trimmed to it, while one "
        "that goes on is not; taming: grows by a score to an exact budget (Taming-3DGS); none: their number stays.",
        choices=get_args(StrategyName))
    absgrad: bool = setting(False, "adc: clone and split on the sum of absolute screen-space gradients, as gsplat's absgrad.")
    grad_threshold: float = setting(2e-4, "Densify above this average screen-space gradient.",
                                    lo=1e-5, hi=5e-3, log=True, valid=POSITIVE)
    absgrad_threshold: float = setting(8e-4, "adc with absgrad: clone and split above this average sum of absolute gradients, "
                                       "in place of grad_threshold.", lo=1e-5, hi=1e-2, log=True, valid=POSITIVE)
    absgs_threshold: float = setting(4e-4, "absgs: split above this average sum of absolute gradients; clones go by "
                                     "grad_threshold.", lo=1e-5, hi=1e-2, log=True, valid=POSITIVE)
    start: int = setting(500, "Densification happens after this iteration.", unit="it", lo=0, hi=30000)
    stop: int = setting(15000, "No densification and no opacity reset from this iteration on.", unit="it", lo=0, hi=30000)
    every: int = setting(100, "Iterations between two densifications.", unit="it", lo=10, hi=1000)
    reset_every: int = setting(3000, "Iterations between two opacity resets.", unit="it", lo=100, hi=30000)
    reset_opacity: float = setting(0.01, "Opacity after a reset.", lo=0.001, hi=0.5, valid=INSIDE_UNIT)
    prune_opacity: float = setting(0.005, "Gaussians less opaque than this are removed.", lo=0.0, hi=0.1, valid=BELOW_ONE)
    percent_dense: float = setting(0.01, "Larger than this share of the extent is split, smaller cloned.",
                                   lo=0.001, hi=0.1, valid=POSITIVE)
    prune_world: float = setting(0.1, "Larger than this share of the extent is removed after the first reset.",
                                 lo=0.01, hi=1.0, valid=POSITIVE)
    prune_screen: bool = setting(False, "Also remove Gaussians whose radius exceeded 20 px in a view since "
                                "the last densification.")
    cap: int = setting(0, "Never more Gaussians than this; 0 = what free memory allows.", lo=0, hi=10_000_000)
    mcmc_dead_opacity: float = setting(0.005, "mcmc: Gaussians at most this opaque are dead and move.", lo=1e-4, hi=0.5,
                                       log=True, valid=INSIDE_UNIT)
    mcmc_growth: float = setting(0.05, "mcmc: share of the Gaussians that an event adds, up to the cap.", lo=0.0, hi=0.5,
                                 valid=SHARE)
    mcmc_noise_lr: float = setting(5e5, "mcmc: noise on the means, times their learning rate, their covariance and the "
                                   "sigmoid 1/(1 + exp(100 (opacity - 0.005))).", lo=0.0, hi=1e7, valid=NOT_NEGATIVE)
    mcmc_opacity_reg: float = setting(0.01, "mcmc: weight of the mean opacity in the loss.", lo=0.0, hi=1.0, valid=NOT_NEGATIVE)
    mcmc_scale_reg: float = setting(0.01, "mcmc: weight of the mean scale in the loss.", lo=0.0, hi=1.0, valid=NOT_NEGATIVE)
    taming_budget: int = setting(0, "taming: Gaussians at the last densification; 0 = the cap where one is set, else 10 times "
                                 "as many as at the first.", lo=0, hi=10_000_000)
    taming_views: int = setting(10, "taming: views that each event looks at for its scores.", unit="views", lo=1, hi=100)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def absolute(self) -> bool:
        """Whether sums of absolute screen-space gradients are gathered and decide."""
        return self.strategy == "absgs" or (self.absgrad and self.strategy in ("adc", "none"))


OptimizerRule = Literal["adam", "sgd", "still"]
_RULE_HELP = ("adam (Kingma and Ba 2015), sgd with momentum, whose steps are as large as the gradients and so need a far "
              "larger factor, or still: the group is not trained.")


def _rule(what: str) -> Any:
    return setting("adam", f"What moves the {what}: {_RULE_HELP}", choices=get_args(OptimizerRule))


def _factor(what: str) -> Any:
    return setting(1.0, f"The learning rate of the {what} is multiplied by this.", lo=1e-3, hi=1e6, log=True, valid=POSITIVE)


@dataclass(frozen=True)
class OptimizerConfig:
    """The rule of each parameter group and a factor for its learning rate."""

    means: OptimizerRule = _rule("means")
    quats: OptimizerRule = _rule("quaternions")
    log_scales: OptimizerRule = _rule("log scales")
    logit_opacities: OptimizerRule = _rule("logit opacities")
    sh0: OptimizerRule = _rule("base colour")
    shN: OptimizerRule = _rule("higher SH bands")
    means_factor: float = _factor("means")
    quats_factor: float = _factor("quaternions")
    log_scales_factor: float = _factor("log scales")
    logit_opacities_factor: float = _factor("logit opacities")
    sh0_factor: float = _factor("base colour")
    shN_factor: float = _factor("higher SH bands")
    momentum: float = setting(0.9, "Momentum of sgd.", lo=0.0, hi=0.999, valid=BELOW_ONE)
    on_switch: Literal["zero", "keep"] = setting(
        "zero", "When a group gets another rule: zero = what both rules remember of it starts anew; keep = it rests as it is "
        "until its rule comes back.", choices=("zero", "keep"))

    def __post_init__(self) -> None:
        check_settings(self)

    def rule(self, group: str) -> str:
        """The rule of a parameter group."""
        return getattr(self, group)

    def factor(self, group: str) -> float:
        """What the learning rate of a parameter group is multiplied by."""
        return getattr(self, f"{group}_factor")


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Defaults are graphdeco's (Kerbl et al. 2023) unless help says otherwise."""

    iterations: int = setting(30000, "Training steps.", unit="it", lo=1, hi=100000)
    schedule_iterations: int = setting(
        0, "Length M the schedules are made for; 0 = iterations. Below 30 000, with r = M/30 000: densification from "
        "500 r^(1/3) to 15 000 r every 100 r^(-1/4), one more SH degree every 1000 r^(1/2); resets stay every 3000.",
        unit="it", lo=0, hi=100000)
    sh_degree: int = setting(3, "Highest spherical-harmonics degree.", lo=0, hi=3, live=False)
    sh_every: int = setting(1000, "Iterations between SH degree increases.", unit="it", lo=1, hi=10000)
    micro_batch: int = setting(1, "Cameras per step; the gradient is their mean.", lo=1, hi=16,
                               valid=Domain("at most 1,024", hi=1024))
    lambda_dssim: float = setting(0.2, "Weight of 1-SSIM in the loss; the rest is L1.", lo=0.0, hi=1.0, valid=SHARE)
    loss: Loss = setting("l1_ssim", "Training loss.", choices=LOSSES)
    means_lr: float = setting(1.6e-4, "Learning rate of means at the start, times the extent.",
                              lo=1e-6, hi=1e-2, log=True, valid=POSITIVE)
    means_lr_final: float = setting(1.6e-6, "Learning rate of means at the end, times the extent.",
                                    lo=1e-8, hi=1e-3, log=True, valid=POSITIVE)
    sh0_lr: float = setting(2.5e-3, "Learning rate of the base colour.", lo=1e-5, hi=1e-1, log=True, valid=POSITIVE)
    shN_lr: float = setting(2.5e-3 / 20, "Learning rate of the higher SH bands.", lo=1e-6, hi=1e-2, log=True, valid=POSITIVE)
    opacity_lr: float = setting(0.025, "Learning rate of logit opacities.", lo=1e-4, hi=1.0, log=True, valid=POSITIVE)
    scale_lr: float = setting(5e-3, "Learning rate of log scales.", lo=1e-5, hi=1e-1, log=True, valid=POSITIVE)
    quat_lr: float = setting(1e-3, "Learning rate of quaternions.", lo=1e-5, hi=1e-1, log=True, valid=POSITIVE)
    adam_eps: float = setting(1e-15, "Adam's epsilon.", lo=1e-20, hi=1e-6, log=True, valid=POSITIVE)
    sparse_adam: bool = setting(False, "Gaussians that are not in the pictures of a step stand still, parameters and momentum "
                                "(sparse Adam, Mallick et al. 2024), under sgd as well; saves time where few are seen.")
    white_background: bool = setting(False, "White instead of black background. Opacities are reset as on black: "
                                     "graphdeco's extra reset where densification begins is not done.")
    seed: int = setting(0, "Seed of everything random; on the CPU a seed fixes every bit.", lo=0, live=False)
    extent: float = setting(0.0, "World radius that the rate of means and the densification sizes scale with; 0 = from "
                            "the training cameras.", unit="world", lo=0.0, hi=1000.0, valid=NOT_NEGATIVE)
    init_points: int = setting(20000, "Random points where a scene has none.", lo=100, hi=1_000_000, live=False)
    densify: DensifyConfig = field(default_factory=DensifyConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    raster: RasterConfig = field(default_factory=RasterConfig)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def schedule_length(self) -> int:
        """Iterations that the schedules are made for."""
        return self.schedule_iterations or self.iterations
