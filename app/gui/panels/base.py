"""What the window asks of a panel. One panel, one file, entered in one list (app/gui/shell.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


class Panel(Protocol):
    title: str
    """On its tab, where it stands in one."""

    def build(self, parent: int) -> None:
        """Make the items inside `parent`, once."""
        ...

    def update(self) -> None:
        """Show the model as it is now. Called each frame while the panel can be seen; must be cheap when nothing moved."""
        ...


@runtime_checkable
class Leaving(Protocol):
    """A panel with something to put back when its tab is left."""

    def leave(self) -> None: ...


@runtime_checkable
class Asking(Protocol):
    """A panel that wants to know something of the model."""

    def questions(self) -> Mapping[str, Any]:
        """By instrument, see InspectRequest in app/protocol/snapshot.py. Called each frame while the panel can be seen."""
        ...
