"""What the window asks of a panel. One panel, one file, entered in one list (app/gui/shell.py)."""

from __future__ import annotations

from typing import Protocol


class Panel(Protocol):
    title: str
    """On its tab, where it stands in one."""

    def build(self, parent: int) -> None:
        """Make the items inside `parent`, once."""
        ...

    def update(self) -> None:
        """Show the model as it is now. Called each frame while the panel can be seen; must be cheap when nothing moved."""
        ...
