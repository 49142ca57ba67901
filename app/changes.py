"""Options that were changed while a run trained: of each drag of a slider one change, from where it began to where it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.messages import OptionChanged

ONE_DRAG = 1.0   # s between two changes of an option that count as one


def keep_change(events: list[Any], event: OptionChanged) -> None:
    """Put a change behind the events so far; one of the same drag takes the place of the last, or cancels it."""
    index = next((i for i in reversed(range(len(events))) if isinstance(events[i], OptionChanged)), -1)
    last = events[index] if index >= 0 else None
    if last is not None and not event.source and not last.source and last.name == event.name and event.at - last.at < ONE_DRAG:
        del events[index]
        event = replace(event, old=last.old)
        if event.new == event.old:
            return
    events.append(event)
