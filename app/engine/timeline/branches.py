"""Branches of a run: what each remembers beside its moments. No torch here."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.data.checkpoints import FOLDER
from app.history import History
from app.messages import BranchState, Curve, Densified, Evaluated, OptionChanged

SHOWN = 400
"""Marks of one kind that the window gets of a branch: the last ones."""
CURVE_POINTS = 300
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}")
"""Names are folders on disk as well."""
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9]) *(\..*)?", re.IGNORECASE)
"""Windows has no folders with these names, nor with an ending behind them."""


@dataclass(frozen=True, eq=False)
class Entry:
    """What was done to a run while it stood at an iteration: options changed, or, without any, an edit by hand."""

    iteration: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return ", ".join(f"{path} = {f'{value:.6g}' if isinstance(value, float) else value}"
                         for path, value in self.options.items())


@dataclass
class Branch:
    """What happened on a branch, its parents' past included."""

    name: str
    label: str
    parent: str = ""
    fork: int = 0
    origin: str = ""                         # the branch with its past that the record knows, whether or not it is gone
    recorded: bool = False                   # whether the record of the run knows it
    folder: Path | None = None               # of the run on disk
    history: History = field(default_factory=History)
    log: list[Entry] = field(default_factory=list)        # in order
    known: int = 0                           # what was done before this iteration is not in the log
    densified: list[Densified] = field(default_factory=list)
    evaluated: list[Evaluated] = field(default_factory=list)
    changed: list[OptionChanged] = field(default_factory=list)   # as the user was told; the log is for replays
    on_disk: dict[int, Path] = field(default_factory=dict)
    inherited: dict[int, Path] = field(default_factory=dict)   # files of a branch that was deleted, up to where they part
    tip: int = 0
    seconds: float = 0.0
    curves: dict[str, Curve] | None = None   # worked out once when the run leaves the branch

    def grow(self, name: str, label: str, iteration: int, folder: Path | None) -> Branch:
        """A new branch with this one's past up to an iteration."""
        known = self.name if self.recorded else self.origin
        return Branch(name, label, self.name, iteration, known, folder=folder, history=self.history.until(iteration),
                      log=self.log[:self.logged(iteration)], known=self.known,
                      densified=[e for e in self.densified if e.iteration <= iteration],
                      evaluated=[e for e in self.evaluated if e.iteration <= iteration],
                      changed=[e for e in self.changed if e.iteration <= iteration], tip=iteration)

    def logged(self, iteration: int) -> int:
        """How many entries of the log were made up to an iteration."""
        return bisect.bisect_right([entry.iteration for entry in self.log], iteration)

    def mark(self, iteration: int | None = None) -> tuple[int, Entry | None]:
        """Where in the log a moment of now, or of an iteration, stands."""
        count = len(self.log) if iteration is None else self.logged(iteration)
        return count, self.log[count - 1] if count else None

    def has(self, mark: tuple[int, Entry | None]) -> bool:
        """Whether a moment with this mark is of this branch's past: another one may have gone on otherwise from there."""
        count, last = mark
        return count <= len(self.log) and (count == 0 or self.log[count - 1] is last)

    def edited_between(self, mark: tuple[int, Entry | None], iteration: int) -> bool:
        """Whether something between was done by hand, which no replay can do again."""
        return any(not entry.options for entry in self.log[mark[0]:self.logged(iteration)])

    def frozen_curves(self) -> dict[str, Curve]:
        if self.curves is None:
            self.curves = {name: series.curve(CURVE_POINTS) for name, series in self.history.series.items()}
        return self.curves

    def state(self, kept: Iterable[int], replayed: Iterable[int]) -> BranchState:
        """For the window: what happened on this branch itself."""
        events = [e for e in self.densified if e.iteration > self.fork or not self.parent]
        return BranchState(
            self.name, self.label, self.parent, self.fork, self.tip, tuple(kept), tuple(replayed), tuple(sorted(self.on_disk)),
            tuple(e.iteration for e in events if not e.reset)[-SHOWN:], tuple(e.iteration for e in events if e.reset)[-SHOWN:],
            tuple(e.iteration for e in self.evaluated)[-SHOWN:], tuple(e.ssim for e in self.evaluated)[-SHOWN:],
            tuple((e.iteration, e.text) for e in self.log if e.options)[-SHOWN:],
            tuple(e.iteration for e in self.log if not e.options)[-SHOWN:])


class Branches:
    """All of them, by name, in the order in which they came to be."""

    def __init__(self) -> None:
        self._all: dict[str, Branch] = {}
        self.left: dict[str, str] = {}   # labels by name of those that are forgotten, while their files stay

    def __getitem__(self, name: str) -> Branch:
        return self._all[name]

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def add(self, branch: Branch) -> Branch:
        self._all[branch.name] = branch
        self.left.pop(branch.name, None)
        return branch

    def remove(self, name: str) -> Branch:
        return self._all.pop(name)

    def taken(self, folder: Path | None) -> set[str]:
        """Names in use, here and in a run folder, in small letters."""
        names = {branch.name.lower() for branch in self} | {branch.label.lower() for branch in self}
        if folder is not None and (folder / FOLDER).is_dir():
            names |= {path.name.lower() for path in (folder / FOLDER).iterdir()}
        return names

    def free_name(self, folder: Path | None, word: str = "branch") -> str:
        """"branch-2" and so on."""
        taken, number = self.taken(folder), len(self) + 1
        while f"{word}-{number}" in taken:
            number += 1
        return f"{word}-{number}"

    def refusal(self, name: str, folder: Path | None) -> str:
        """Why a name cannot be a new branch's, in one sentence; empty where it can."""
        if not NAME.fullmatch(name) or name.endswith((" ", ".")):
            return (f"{name!r} cannot be the name of a branch: take up to 40 letters, digits, spaces or ._+-, "
                    "a letter or digit first")
        if RESERVED.fullmatch(name):
            return f"{name!r} cannot be the name of a branch: Windows keeps it for a device; choose another name"
        if name.lower() in self.taken(folder):
            return f"There is a branch {name} already; choose another name"
        return ""

    def past(self, name: str) -> Iterator[tuple[Branch, int]]:
        """(branch, up to which of its iterations it counts) of a branch and those that it grew from."""
        last, branch = 1 << 62, self._all.get(name)
        while branch is not None:
            yield branch, last
            last, branch = min(last, branch.fork), self._all.get(branch.parent)

    def adopt(self, gone: Branch) -> tuple[Branch, int] | None:
        """Children of a branch that is removed get its past: the one that now has it, and up to which iteration; None where
        there are no children."""
        children = [branch for branch in self if branch.parent == gone.name]
        if not children:
            return None
        heir = max(children, key=lambda child: child.fork)
        for child in children:
            child.parent = heir.name
        last, heir.parent, heir.fork = heir.fork, gone.parent, gone.fork
        return heir, last
