"""Who gets the next milliseconds: training, the view or nobody. Pure decisions over measured costs; seconds throughout.

The rules, so that dragging stays smooth while a scene trains:
- A changed request is drawn before the next step. While the user drags, a step is taken only when step and picture both
  fit before the next picture is due, so a slow scene stops training for as long as the drag lasts.
- A picture that only follows the model is drawn seldom enough to cost the share of the time that the user allows.
- The picture is drawn at a fraction of its side when the whole would cost more than its budget, and refined in bands
  when the model stands still.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from app.pace import PaceConfig

LEVELS = (1.0, 0.5, 0.25, 0.125)
"""Sides at which a picture may be drawn, relative to what was asked for."""
DRAG_INTERVAL = 1.0 / 30.0
"""Drawing faster than this while dragging is lost on a window under software GL."""
DRAG_DEADLINE = 0.08
"""The picture follows the hand at least this often (12 fps, so that 10 fps are kept)."""
DRAG_BUDGET = 0.045
STILL_BUDGET = 0.12
"""What one picture may cost while dragging, and otherwise."""


@dataclass
class ViewCost:
    """What pictures have cost: seconds per pixel drawn, smoothed."""

    per_pixel: float = 2e-7

    def measured(self, seconds: float, pixels: int) -> None:
        sample = seconds / max(pixels, 1)
        # A rise is believed at once, a fall slowly: too coarse for one frame is better than a stalled drag.
        self.per_pixel = sample if sample > self.per_pixel else self.per_pixel + 0.3 * (sample - self.per_pixel)

    def seconds(self, pixels: int, level: float = 1.0) -> float:
        return self.per_pixel * pixels * level * level

    def level(self, pixels: int, budget: float) -> float:
        """The finest level that fits the budget, else the coarsest."""
        return next((level for level in LEVELS if self.seconds(pixels, level) <= budget), LEVELS[-1])


FIRST_GUESS = {"reference": 4e-5}
"""Seconds per pixel by backend before anything is measured, where it is not ViewCost's."""


@dataclass
class Pace:
    """Times and costs that the decisions are made from. The engine's clock is any monotonic one."""

    cost: ViewCost = field(default_factory=ViewCost)
    step_seconds: float = 0.0      # one training step, smoothed
    view_end: float = -1e9         # when the last picture was done
    view_seconds: float = 0.0      # what it cost
    wanted: PaceConfig = field(default_factory=PaceConfig)

    @staticmethod
    def for_backend(backend: str) -> Pace:
        """Nothing measured yet; a slow renderer starts with small pictures."""
        return Pace(ViewCost(FIRST_GUESS.get(backend, ViewCost.per_pixel)))

    def follow(self, wanted: PaceConfig) -> Pace:
        """What the user wants of pictures that follow a model that trains."""
        self.wanted = wanted
        return self

    def stepped(self, seconds: float) -> None:
        self.step_seconds += (seconds - self.step_seconds) * (0.2 if self.step_seconds else 1.0)

    def viewed(self, end: float, seconds: float, pixels: int) -> None:
        self.view_end, self.view_seconds = end, seconds
        self.cost.measured(seconds, pixels)

    def view_due(self, *, changed: bool, model_moved: bool, refine: bool, moving: bool) -> float | None:
        """When the next picture should begin, or None when the last one still holds."""
        if changed:
            if not moving:
                return self.view_end
            # half a picture's time is left to training, more when pictures are quick
            return self.view_end + max(DRAG_INTERVAL - self.view_seconds, 0.5 * self.view_seconds)
        if model_moved:
            return self.view_end + (max(0.0, DRAG_DEADLINE - self.view_seconds) if moving
                                    else max(1.0 / self.wanted.view_rate, self.wanted.view_wait * self.view_seconds))
        return self.view_end if refine else None

    def step_allowed(self, now: float, *, moving: bool, view_due: float | None) -> bool:
        """Whether a step may begin now."""
        if not moving:
            return view_due is None or view_due > now
        both = self.step_seconds + self.view_seconds
        return both <= DRAG_DEADLINE and (
            view_due is None or (view_due > now and now + both <= self.view_end + DRAG_DEADLINE))

    def level(self, pixels: int, *, moving: bool) -> float:
        """The level to draw the next picture at; one below 1 is refined later, when the model stands still."""
        return self.cost.level(pixels, DRAG_BUDGET if moving else STILL_BUDGET)
