"""What was changed while the scene trained, as the window lists it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from app.changes import keep_change
from app.messages import OptionChanged

LIMIT = 500


class ChangeLog:
    """Newest last. `version` moves with every change."""

    def __init__(self) -> None:
        self.changes: list[OptionChanged] = []
        self.version = 0

    def add(self, event: OptionChanged, now: float) -> None:
        """`now` is when it was heard, for one that does not say when it was made."""
        self.version += 1
        keep_change(self.changes, event if event.at else replace(event, at=now))
        del self.changes[:-LIMIT]

    def begin(self, changes: Iterable[OptionChanged] = ()) -> None:
        """Another run, or another branch, on which these were made."""
        self.changes, self.version = list(changes)[-LIMIT:], self.version + 1

    def rewind(self, iteration: int) -> None:
        """Changes of a future that was given up are no longer history."""
        kept = [change for change in self.changes if change.iteration <= iteration]
        if len(kept) != len(self.changes):
            self.changes, self.version = kept, self.version + 1


def written(value: Any) -> str:
    """A value as its control shows it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
