"""What the window asks of densification."""

from __future__ import annotations

from dataclasses import dataclass

from app.protocol.commands import Command


@dataclass(frozen=True)
class DensifyNow(Command):
    """One densification event at once, by the strategy in force, whatever the schedule says."""
