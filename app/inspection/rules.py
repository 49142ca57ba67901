"""Two alpha rules side by side: what is compared and what came out. Torch-free, for the window reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from render.config import AlphaGradient, RasterConfig

RULE_FIELDS = ("alpha_max", "alpha_gradient", "smooth_cutoff")


@dataclass(frozen=True)
class Rule:
    """The fields of RasterConfig that the laboratory varies; all others are those of the run."""

    alpha_max: float = 0.99
    alpha_gradient: AlphaGradient = "exact"
    smooth_cutoff: bool = False

    @staticmethod
    def of(config: RasterConfig) -> Rule:
        return Rule(*(getattr(config, name) for name in RULE_FIELDS))

    def on(self, config: RasterConfig) -> RasterConfig:
        """`config` with this rule. Raises ValueError, one sentence, where the two do not go together."""
        return replace(config, **{name: getattr(self, name) for name in RULE_FIELDS})

    @property
    def text(self) -> str:
        mode = self.alpha_gradient.replace("_", " ")
        return f"{mode}, α max {self.alpha_max:g}{', smooth' if self.smooth_cutoff else ''}"


MODES: tuple[AlphaGradient, ...] = get_args(AlphaGradient)


@dataclass(frozen=True)
class OneRule:
    """The same view and loss under one rule. A pixel is clamped when a Gaussian blended there has opacity G > alpha_max."""

    rule: Rule
    loss: float
    psnr: float
    clamped_pixels: float          # share of the picture's
    clamped_pairs: float           # share of the blended (Gaussian, pixel) pairs


@dataclass(frozen=True)
class Comparison:
    """Gradients of one view's loss under two rules, per Gaussian, by quantity; rows are those of `uids`.

    `tops` holds, for each quantity, the uids of the largest |a - b|, largest first.
    """

    view: str
    iteration: int
    a: OneRule
    b: OneRule
    image_difference: float        # largest |a - b| over pixels and channels
    uids: np.ndarray               # [N] int64
    values: dict[str, np.ndarray]  # quantity -> [2,N] float32: under a, under b
    tops: dict[str, np.ndarray]    # quantity -> [K] rows


@dataclass(frozen=True)
class Lane:
    """One copy of the run that was trained on under a rule; per step."""

    rule: Rule
    loss: np.ndarray               # [n]
    psnr: np.ndarray               # [n] dB, of the step's training view before the update
    gaussians: int
    held_out: float = float("nan")   # PSNR over the held-out views at the end, dB


@dataclass(frozen=True)
class Lanes:
    """Both copies, begun at iteration `start` with the same views in the same order. `done` of `steps` are taken."""

    start: int
    steps: int
    done: int
    a: Lane
    b: Lane
