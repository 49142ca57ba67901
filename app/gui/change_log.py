"""What was changed while the scene trained: of each drag of a slider one line, with where it began and where it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.messages import OptionChanged

ONE_DRAG = 1.0   # s between two changes of an option that count as one
LIMIT = 500


@dataclass
class Change:
    iteration: int
    name: str
    old: Any
    new: Any
    source: str
    at: float          # s, of the window's clock


class ChangeLog:
    """Newest last. `version` moves with every change."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.version = 0

    def add(self, event: OptionChanged, now: float) -> None:
        self.version += 1
        last = self.changes[-1] if self.changes else None
        if (last is not None and not event.source and not last.source and last.name == event.name
                and now - last.at < ONE_DRAG):
            last.iteration, last.new, last.at = event.iteration, event.new, now
            if last.new == last.old:
                self.changes.pop()
            return
        self.changes.append(Change(event.iteration, event.name, event.old, event.new, event.source, now))
        del self.changes[:-LIMIT]

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
