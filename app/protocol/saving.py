"""Checkpoints of a run, and a run that goes on from one."""

from __future__ import annotations

from dataclasses import dataclass

from app.protocol.commands import Command
from app.protocol.events import Event


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
    reason: str = ""     # "time", "iterations", "user", "stop", "close", "end"; "resume" = it is the one the run goes on from
