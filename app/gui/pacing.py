"""How long the loop rests between two frames: at the rates that the user allows."""

from __future__ import annotations

from app.gui.preferences import Preferences

BUSY_FACTOR = 1.6             # but under software GL at most this share of a core: period >= BUSY_FACTOR * work
SLOWEST_FAST = 1.0 / 25.0
HEADLESS_SECONDS = 0.5        # where the window yields


class Pacing:
    """Follows what a frame usually costs."""

    def __init__(self, preferences: Preferences | None = None) -> None:
        self._wanted = preferences or Preferences()
        self._usual_work = 0.0

    def period(self, work: float, awake: bool) -> float:
        """Seconds from one frame's beginning to the next one's, after a frame that took `work` seconds."""
        self._usual_work += 0.1 * (work - self._usual_work)
        fast, idle = 1.0 / self._wanted.window_fps, 1.0 / self._wanted.idle_fps
        return min(max(fast, BUSY_FACTOR * self._usual_work), max(fast, SLOWEST_FAST)) if awake else max(fast, idle)
