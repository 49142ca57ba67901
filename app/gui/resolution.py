"""How many pixels the viewport asks for: few while the camera moves, all of them when it rests. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_WIDTH, MAX_HEIGHT = 1920, 1200          # G09, G12: never more than the largest texture holds
STEPS = (1.0, 0.8, 0.64, 0.5, 0.4, 0.3)     # shares of the side; few, so that the size does not flicker
MOVING_PIXELS = 640 * 360                   # upper bound while dragging: uploads under software GL cost by the pixel
MOVING_MS, TRAINING_MS = 28.0, 80.0         # what one picture may cost
SMOOTHING = 0.3


@dataclass
class AdaptiveResolution:
    """Learns the cost of a pixel from finished pictures and chooses the side share that keeps to the budget."""

    ms_per_pixel: float = 25.0 / MOVING_PIXELS  # before the first picture: assume a slow renderer
    _moving_share: float = 0.5
    _training_share: float = 1.0

    def observe(self, render_ms: float, pixels: int) -> None:
        """A picture of `pixels` took `render_ms` to render."""
        if render_ms > 0 and pixels > 0 and math.isfinite(render_ms):
            self.ms_per_pixel += SMOOTHING * (render_ms / pixels - self.ms_per_pixel)

    def choose(self, area_width: int, area_height: int, *, moving: bool, training: bool) -> tuple[int, int]:
        """(width, height) to ask for; both at least 16, the aspect of the area kept."""
        whole = min(1.0, MAX_WIDTH / area_width, MAX_HEIGHT / area_height)
        pixels = area_width * area_height * whole * whole
        share = 1.0
        if moving:
            limit = min(MOVING_MS / self.ms_per_pixel, MOVING_PIXELS)
            share = self._moving_share = _held(self._moving_share, math.sqrt(limit / pixels))
        elif training:
            limit = TRAINING_MS / self.ms_per_pixel
            share = self._training_share = _held(self._training_share, math.sqrt(limit / pixels))
        return max(16, round(area_width * whole * share)), max(16, round(area_height * whole * share))


def _held(current: float, affordable: float) -> float:
    """The largest step that is affordable; going up needs a margin, so that noise does not make it hunt."""
    for step in STEPS:
        if step <= affordable and (step <= current or step * 1.15 <= affordable):
            return step
    return STEPS[-1]
