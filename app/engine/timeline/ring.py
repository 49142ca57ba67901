"""Moments of the past in memory, never more than their budget. No torch here."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Literal

from app.data.ring import surplus

if TYPE_CHECKING:
    from app.engine.timeline.branches import Entry
    from app.training.state import RunState

MOST = 256
"""Moments at most: more would not be told apart on the timeline."""
How = Literal["kept", "replayed", "disk"]
_serials = count(1)


@dataclass(eq=False)
class Kept:
    """A moment in memory: all that the run needs to go on from there, and what the log had told until then."""

    branch: str
    iteration: int
    state: RunState
    log: tuple[int, Entry | None] = (0, None)   # how many entries of its branch's log were made before, and the last of them
    certain: bool = True         # whether that is known; else it is for looking only
    seconds: float = 0.0         # spent training until then
    how: How = "kept"
    rank: int = 0                # ranks are given up from below: 0 one of many, 1 replays need it, 2 the end of a branch
    serial: int = field(default_factory=lambda: next(_serials))

    @property
    def nbytes(self) -> int:
        return self.state.nbytes


class Ring:
    """`held` tells the moments that are looked at now: these go last."""

    def __init__(self, budget: int, held: Callable[[], Iterable[Kept]] = tuple, most: int = MOST) -> None:
        self.budget, self.most = budget, most
        self._held = held
        self._entries: dict[str, list[Kept]] = {}   # by branch, rising iterations
        self.nbytes = 0
        self.version = 0

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def of(self, branch: str) -> list[Kept]:
        """Rising iterations."""
        return self._entries.get(branch, [])

    def __iter__(self):
        for entries in self._entries.values():
            yield from entries

    # ------------------------------------------------------------------ changing

    def fits(self, nbytes: int) -> bool:
        """Whether a moment of this size can be kept at all."""
        return nbytes <= self.budget

    def make_room(self, nbytes: int) -> list[Kept]:
        """Give up moments until so many bytes more have room; what was given up."""
        gone: list[Kept] = []
        while self._entries and (self.nbytes + nbytes > self.budget or len(self) >= self.most):
            gone.append(self._least())
            self.drop(gone[-1])
        return gone

    def add(self, kept: Kept) -> list[Kept]:
        """Keep a moment in place of one at the same iteration; what was given up for it, itself where it does not fit."""
        entries = self._entries.get(kept.branch, [])
        same = next((old for old in entries if old.iteration == kept.iteration), None)
        if same is not None:
            kept.rank = max(kept.rank, same.rank)
            self.drop(same)
        if not self.fits(kept.nbytes):
            return [kept]
        gone = self.make_room(kept.nbytes)
        entries = self._entries.setdefault(kept.branch, [])
        entries.insert(bisect.bisect([old.iteration for old in entries], kept.iteration), kept)
        self.nbytes += kept.nbytes
        self.version += 1
        return gone

    def drop(self, kept: Kept) -> None:
        entries = self._entries[kept.branch]
        entries.remove(kept)
        if not entries:
            del self._entries[kept.branch]
        self.nbytes -= kept.nbytes
        self.version += 1

    def drop_branch(self, branch: str) -> None:
        for kept in list(self.of(branch)):
            self.drop(kept)

    def rename(self, kept: Kept, branch: str) -> None:
        """A moment becomes another branch's."""
        self.drop(kept)
        kept.branch = branch
        self.add(kept)

    def clear(self) -> None:
        self._entries, self.nbytes = {}, 0
        self.version += 1

    def _least(self) -> Kept:
        """What is missed least: of the lowest rank there is, the one that ring.surplus names in the branch that takes most."""
        held = set(self._held())
        rank = {kept: 3 if kept in held else kept.rank for kept in self}
        lowest = min(rank.values())
        branches = [[kept for kept in entries if rank[kept] == lowest] for entries in self._entries.values()]
        branches = sorted((b for b in branches if b), key=lambda b: -sum(kept.nbytes for kept in b))
        for entries in branches:
            sizes = [(kept.iteration, max(1, kept.nbytes)) for kept in entries]
            found = surplus(sizes, sum(size for _, size in sizes) - 1)
            if found:
                return entries[found[0]]
        return branches[0][0]
