"""How many pixels the viewport asks for: few while the camera moves, all of them when it rests. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MAX_WIDTH, MAX_HEIGHT = 1920, 1200          # G09, G12: never more than the largest texture holds
STEPS = (1.0, 0.8, 0.64, 0.5, 0.4, 0.3)     # shares of the side; few, so that the size does not flicker
MOVING_PIXELS = 640 * 360                   # upper bound while dragging: uploads under software GL cost by the pixel
MOVING_MS, TRAINING_MS = 28.0, 80.0         # what one picture may cost
MEMORY = 0.85                               # weight that a picture keeps with each that follows
USELESS_BELOW = 0.5                         # share of the side under which fewer pixels are not asked for in vain


@dataclass
class RenderCost:
    """render_ms = fixed + slope * pixels, fitted to the last pictures: projecting and sorting do not shrink with them."""

    _n: float = 0.0
    _p: float = 0.0
    _m: float = 0.0
    _pp: float = 0.0
    _pm: float = 0.0

    def observe(self, ms: float, pixels: int) -> None:
        weights = ("_n", 1.0), ("_p", pixels), ("_m", ms), ("_pp", float(pixels) * pixels), ("_pm", ms * pixels)
        for name, value in weights:
            setattr(self, name, MEMORY * getattr(self, name) + value)

    def line(self) -> tuple[float, float]:
        """(fixed ms, ms per pixel). Before the first picture: a slow renderer."""
        if not self._n:
            return 0.0, 25.0 / MOVING_PIXELS
        mean_p, mean_m = self._p / self._n, self._m / self._n
        variance = self._pp / self._n - mean_p * mean_p
        slope = mean_m / mean_p
        if variance > (0.1 * mean_p) ** 2:  # else all had one size, and nothing is known about the fixed part
            slope = min(max((self._pm / self._n - mean_p * mean_m) / variance, 0.05 * slope), slope)
        return mean_m - slope * mean_p, slope

    def affordable(self, budget_ms: float) -> float:
        """Pixels that fit the budget."""
        fixed, slope = self.line()
        return max(budget_ms - fixed, 0.0) / slope

    def useful_share(self, budget_ms: float) -> float:
        """The smallest share of the side worth asking for: where the fixed part rules, fewer pixels help nobody."""
        fixed, _ = self.line()
        return USELESS_BELOW if fixed > 0.5 * budget_ms else STEPS[-1]


@dataclass
class AdaptiveResolution:
    """Learns what pictures cost and chooses the share of the side that keeps to the budget."""

    cost: RenderCost = field(default_factory=RenderCost)
    _moving_share: float = 0.5
    _training_share: float = 1.0

    def observe(self, render_ms: float, pixels: int) -> None:
        """A picture of `pixels` took `render_ms` to render."""
        if render_ms > 0 and pixels > 0 and math.isfinite(render_ms):
            self.cost.observe(render_ms, pixels)

    def choose(self, area_width: int, area_height: int, *, moving: bool, training: bool) -> tuple[int, int]:
        """(width, height) to ask for; both at least 16, the aspect of the area kept."""
        whole = min(1.0, MAX_WIDTH / area_width, MAX_HEIGHT / area_height)
        pixels = area_width * area_height * whole * whole
        share = 1.0
        if moving:
            limit = min(self.cost.affordable(MOVING_MS), MOVING_PIXELS)
            wanted = max(math.sqrt(limit / pixels), min(self.cost.useful_share(MOVING_MS), math.sqrt(MOVING_PIXELS / pixels)))
            share = self._moving_share = _held(self._moving_share, wanted)
        elif training:
            wanted = max(math.sqrt(self.cost.affordable(TRAINING_MS) / pixels), self.cost.useful_share(TRAINING_MS))
            share = self._training_share = _held(self._training_share, wanted)
        return max(16, round(area_width * whole * share)), max(16, round(area_height * whole * share))


def _held(current: float, affordable: float) -> float:
    """The largest step that is affordable; going up needs a margin, so that noise does not make it hunt."""
    for step in STEPS:
        if step <= affordable and (step <= current or step * 1.15 <= affordable):
            return step
    return STEPS[-1]
