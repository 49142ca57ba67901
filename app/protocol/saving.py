"""Checkpoints of a run, and a run that goes on from one."""

from __future__ import annotations

from dataclasses import dataclass

from app.protocol.commands import Command
from app.protocol.control import OptionChanged
from app.protocol.events import Densified, Evaluated, Event

KEPT_KINDS = (Densified, Evaluated, OptionChanged)
"""Events that whoever opens a run later is told again."""


@dataclass(frozen=True)
class SaveCheckpoint(Command):
    """Write a checkpoint now."""


@dataclass(frozen=True)
class RunSaved(Event):
    """A checkpoint is on the disk."""
    iteration: int
    at: float            # seconds since the epoch
    path: str
    nbytes: int
    reason: str = ""     # as in the file's header; "resume" = it is the one that the run goes on from
    left: bool = False   # of a branch that was left meanwhile
