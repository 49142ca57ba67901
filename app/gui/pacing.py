"""How long the loop rests between two frames: full rate while somebody touches the window, 10 frames/s otherwise."""

from __future__ import annotations

FAST_SECONDS = 1.0 / 60.0     # M04: no more frames than a screen shows
BUSY_FACTOR = 1.6             # but under software GL at most this share of a core: period >= BUSY_FACTOR * work
SLOWEST_FAST = 1.0 / 25.0
IDLE_SECONDS = 0.1            # U05: a window that nobody touches draws 10 fps


class Pacing:
    """Follows what a frame usually costs."""

    def __init__(self) -> None:
        self._usual_work = 0.0

    def period(self, work: float, awake: bool) -> float:
        """Seconds from one frame's beginning to the next one's, after a frame that took `work` seconds."""
        self._usual_work += 0.1 * (work - self._usual_work)
        return min(max(FAST_SECONDS, BUSY_FACTOR * self._usual_work), SLOWEST_FAST) if awake else IDLE_SECONDS
