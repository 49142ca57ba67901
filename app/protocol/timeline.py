"""The timeline: moments of the run that are kept, branches, and how to go back to them."""

from __future__ import annotations

from dataclasses import dataclass

from app.protocol.commands import Command
from app.protocol.control import OptionChanged
from app.protocol.events import Densified, Evaluated, Event
from app.protocol.view import Moment


@dataclass(frozen=True)
class Replay(Command):
    """Reach a moment exactly, from the kept one before it, in a copy of the run; it is kept then and can be looked at."""
    moment: Moment


@dataclass(frozen=True)
class BranchFrom(Command):
    """Go on from a moment of the past; what was trained behind it stays a branch of its own. An empty name = choose one."""
    moment: Moment
    name: str = ""


@dataclass(frozen=True)
class SwitchBranch(Command):
    """Go on at the end of another branch."""
    name: str


@dataclass(frozen=True)
class RenameBranch(Command):
    """Change what a branch is called; `name`, which its folder on disk has too, stays."""
    name: str
    label: str


@dataclass(frozen=True)
class DeleteBranch(Command):
    """Forget a branch that is not the current one; `files`: also its checkpoints on disk."""
    name: str
    files: bool = False


@dataclass(frozen=True)
class BranchChanged(Event):
    """The run is another branch, or another iteration of one, from now on; what had happened on it until then."""
    name: str
    iteration: int
    densified: tuple[Densified, ...] = ()
    evaluated: Evaluated | None = None
    options: tuple[OptionChanged, ...] = ()


@dataclass(frozen=True)
class BranchState:
    """A branch has its parent's past up to `fork`. `tip` is its last iteration; that of the current branch is Snapshot's."""
    name: str
    label: str
    parent: str = ""                  # empty for one that began at iteration 0
    fork: int = 0
    tip: int = 0
    kept: tuple[int, ...] = ()        # iterations held in memory, rising; those of its parents are theirs
    replayed: tuple[int, ...] = ()    # of these, the ones that were reached again
    on_disk: tuple[int, ...] = ()
    densified: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()
    evaluated: tuple[int, ...] = ()
    ssim: tuple[float, ...] = ()      # of each of these
    options: tuple[tuple[int, str], ...] = ()   # (iteration, "means_lr = 0.0001")
    edits: tuple[int, ...] = ()       # by hand


@dataclass(frozen=True)
class TimelineState:
    """`exact` is False where replays are close only: on a GPU sums run in no fixed order."""
    branches: tuple[BranchState, ...] = ()
    current: str = ""
    nbytes: int = 0
    budget: int = 0
    exact: bool = True

    def branch(self, name: str) -> BranchState | None:
        return next((branch for branch in self.branches if branch.name == name), None)
