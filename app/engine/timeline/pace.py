"""When the run is copied for the timeline: pure decisions over measured costs; seconds throughout."""

from __future__ import annotations

SHARE = 0.02
"""Of the time spent training, so much may go into copies of it."""
CLOSEST = 10
"""Iterations between two moments, at least."""
SPREAD = 200
"""Late in a run moments lie at least 1/SPREAD of its iterations apart."""
SAVED_UP = 8.0
"""So many copies may be saved up for."""


class CapturePace:
    """Every second of training gives credit for SHARE of it, and every copy takes what it cost.

    A copy before an event of the run may be made although other copies took the credit, where it costs no more than its
    share of the time since the last one of these: a look at what a densification did is worth more than an even spread.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.cost = self.credit = 0.0      # of the last copy; what copies may take now
        self._counted = self._event = seconds

    def at(self, seconds: float) -> None:
        """The run was taken to another point, `seconds` of training into it."""
        self._counted = self._event = seconds

    def due(self, seconds: float, *, since: int, iteration: int, event: bool) -> bool:
        """Whether a copy is made now: `since` iterations after the last one; `event`: the next step changes the rows."""
        self.credit += SHARE * max(0.0, seconds - self._counted)
        self.credit = min(self.credit, SAVED_UP * self.cost)
        self._counted = seconds
        if event:
            waited, self._event = seconds - self._event, seconds
            return self.credit >= self.cost or SHARE * waited >= self.cost
        # so much that the next event still has its own
        return since >= max(CLOSEST, iteration // SPREAD) and self.credit >= 2.0 * self.cost

    def made(self, cost: float) -> None:
        self.cost = cost
        self.credit -= cost

    def began(self, cost: float) -> None:
        """The copy at the start is free: it loads code as well."""
        self.cost = cost
