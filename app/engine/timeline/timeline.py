"""The run's past: which moments are kept, what happened between them, and which of them the window looks at.

A moment is captured before a step, so that its iteration is done. What changes a run between steps is logged: options with
their iteration, so that a replay changes them again; all else (edits by hand, another backend) is followed by a moment, so
that no replay has to cross it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.changes import keep_change
from app.data.checkpoints import FOLDER
from app.engine.timeline.branches import Branch, Branches, Entry
from app.engine.timeline.files import files_of, unknown
from app.engine.timeline.looks import Looks
from app.engine.timeline.pace import CapturePace
from app.engine.timeline.ring import Kept, Ring
from app.messages import BranchState, Curve, Densified, Evaluated, Event, Moment, OptionChanged, TimelineState
from app.training.memory import available_bytes

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.state import RunState
    from app.training.trainer import Trainer

FREE_SHARE = 10
"""A budget that nobody set is this part of the free memory, and at most LARGEST bytes."""
LARGEST = 1 << 30
CURVES_OF = 8
"""The curves of so many other branches are shown, the newest."""


def default_budget() -> int:
    """Bytes."""
    return min(LARGEST, available_bytes() // FREE_SHARE)


class Timeline:
    """Belongs to the engine's thread. `current` names the branch that trains; `branches` is empty without a run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.branches = Branches()
        self.current = ""
        self.ring = Ring(engine.settings.timeline_bytes or default_budget(), lambda: self.looks.held)
        self._trainer: Trainer | None = None      # whose past this is
        self._known: tuple[Any, ...] = ()         # what only logged events may change: see _signature()
        self.pace = CapturePace()
        self._size = 0.0                          # bytes a Gaussian in the last one
        self._last = -1                           # iteration of the last one
        self._said: set[str] = set()
        self._version = 0                         # moves when the window has something new to know
        self._state: tuple[Any, TimelineState] = (None, TimelineState())
        self._curves: tuple[Any, dict[str, dict[str, Curve]]] = (None, {})
        self.looks = Looks(engine, self)

    @property
    def now(self) -> Branch:
        """The branch that trains."""
        return self.branches[self.current]

    def begins(self) -> tuple[str, bool]:
        """For the record: (the branch from which that of now grew, whether it is new there). From now on it is not."""
        if not self.follow():
            return "", True
        branch, new = self.now, not self.now.recorded
        branch.recorded = True
        return branch.origin or branch.parent, new

    # ------------------------------------------------------------------ following the run

    def follow(self) -> bool:
        """Know the run as it is; False while there is none that trains."""
        model = self._engine.model
        trainer = model.trainer if model is not None else None
        if trainer is None:
            if self._trainer is not None:
                self.forget()
            return False
        if trainer is not self._trainer:
            self.forget()
            name = self._engine.branch
            self.take(Branch(name, name, known=trainer.iteration), trainer)
            self._others()
        return True

    def forget(self) -> None:
        """Another scene: its past is another one."""
        self.branches, self.current, self._trainer = Branches(), "", None
        self.ring.clear()
        self.looks.forget()
        self._said = set()
        self.pace, self._size = CapturePace(), 0.0
        self._version += 1

    def take(self, branch: Branch, trainer: Trainer) -> None:
        """The run is this branch from now on."""
        if branch.name not in self.branches:
            self.branches.add(branch)
        self._engine.branch = self.current = branch.name
        branch.folder = branch.folder or self._engine.run_folder
        branch.history, branch.curves = self._engine.history, None
        self._trainer, self._last = trainer, trainer.iteration if self.ring.of(branch.name) else -1
        self._known = self._signature()
        self.pace.at(self._engine.seconds)
        self._scan(branch)
        self._version += 1

    def _signature(self) -> tuple[Any, ...]:
        """What only logged events may change between steps: rows, backend and options."""
        trainer = self._trainer
        assert trainer is not None
        return trainer.state.rows.generation, trainer.backend, trainer.config

    def before_step(self) -> None:
        """Capture the run where it is time; called before each step."""
        if not self.follow():
            return
        trainer = self._trainer
        assert trainer is not None
        self.notice_edits()
        if trainer.iteration != self._last and not trainer.phase and self._due(trainer):
            self.keep()

    def after_step(self) -> None:
        """What the step changed was the run's own doing."""
        if self._trainer is not None and self._engine.model is not None and self._engine.model.trainer is self._trainer:
            self._known = self._signature()

    def _due(self, trainer: Trainer) -> bool:
        if not self.ring.of(self.current) and not self.now.parent:
            return True   # the start
        ahead = trainer.iteration + 1
        event = trainer.schedule.densifies(ahead) or trainer.schedule.resets(ahead)
        since = trainer.iteration - self._last
        return self.pace.due(self._engine.seconds, since=since, iteration=trainer.iteration, event=event)

    def keep(self, rank: int = 0) -> Kept | None:
        """A moment of the run as it is; None where it does not fit into the budget, which is said once."""
        from app.training.memory import is_out_of_memory
        from app.training.state import capture

        engine, trainer, branch = self._engine, self._trainer, self.now
        assert trainer is not None
        begun = engine.clock()
        expected = int(self._size * len(trainer.params))
        gone = self.ring.make_room(expected) if self.ring.fits(expected) else []
        try:
            state = capture(trainer)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.ring.clear()
            engine.notice("Memory is short, so the timeline has let go of the moments that it kept.", "warning", aloud=True)
            return None
        self._size = state.nbytes / max(1, state.count)
        kept = Kept(branch.name, state.iteration, state, branch.mark(), seconds=engine.seconds, rank=rank)
        gone += self.ring.add(kept)
        self._last = trainer.iteration
        (self.pace.made if self.pace.cost else self.pace.began)(engine.clock() - begun)
        self._missed(gone)
        return None if kept in gone else kept

    def _missed(self, gone: list[Kept]) -> None:
        """Say what else than one of many moments had to go."""
        for kept in gone:
            self.looks.let_go(kept)
            if kept.rank == 2 and kept.branch != self.current and kept.branch in self.branches:
                label, room = self.branches[kept.branch].label, _mib(self.ring.budget)
                self._engine.notice(f"The end of branch {label} had to make room in the timeline's {room}; switching to it "
                                    "replays it from the moment kept before it.", "warning")
            elif not self.ring.fits(kept.nbytes) and "size" not in self._said:
                self._said.add("size")
                size, room = _mib(kept.nbytes), _mib(self.ring.budget)
                self._engine.notice(f"A moment of this run takes {size}, more than the timeline's {room}: none is kept in "
                                    "memory; --timeline_megabytes raises it.", "warning")

    # ------------------------------------------------------------------ what is told

    def edited(self) -> None:
        """The run was changed by hand between steps: no replay crosses this. Whoever does so calls it right after."""
        if not self.follow():
            return
        assert self._trainer is not None
        self.now.log.append(Entry(self._trainer.iteration))
        self._known = self._signature()
        self.keep(rank=1)
        self._version += 1

    def options_changed(self, options: Mapping[str, Any]) -> None:
        """Options of the run were changed; replays change them at the same iteration."""
        if not options or not self.follow():
            return
        trainer = self._trainer
        assert trainer is not None
        self.now.log.append(Entry(trainer.iteration, dict(options)))
        self._known = (*self._known[:2], trainer.config)
        self._version += 1
        if trainer.phase:   # in the middle of a step, which a replay takes whole
            self.edited()

    def after_part(self) -> None:
        """A part of a step was taken, which is the run's own doing as a whole step is."""
        self.after_step()

    def notice_edits(self) -> None:
        """Enter what has changed the run and was not told."""
        if self._trainer is not None and self._signature() != self._known:
            self.edited()

    def heard(self, event: Event) -> None:
        """Whatever the window is told; what belongs to a branch is remembered."""
        if not isinstance(event, (Densified, Evaluated, OptionChanged)) or not self.follow():
            return
        if isinstance(event, OptionChanged):
            keep_change(self.now.changed, event)
        else:
            (self.now.densified if isinstance(event, Densified) else self.now.evaluated).append(event)   # type: ignore
        self._version += 1

    def written(self, path: Path) -> None:
        """A checkpoint came, and others may have gone to make room."""
        for branch in self.branches if self.follow() else ():
            if branch.folder is not None and path.parent == branch.folder / FOLDER / branch.name:
                self._scan(branch)
                self._version += 1

    def _scan(self, branch: Branch) -> None:
        """What the run folder has of a branch; of the one that trains, not what is of a future that was given up."""
        if branch.folder is not None:
            now = self._trainer.iteration if branch.name == self.current and self._trainer is not None else None
            branch.on_disk = {iteration: path for iteration, path in (branch.inherited | files_of(branch)).items()
                              if now is None or iteration <= now}

    def _others(self) -> None:
        for branch in list(unknown(self.now.folder, self.branches)):
            self.branches.add(branch)

    def memory(self) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        from app.engine.timeline.memory import memory

        return memory(self) if self.follow() else {}

    def remember(self, told: Mapping[str, Any] | None) -> None:
        """The run was taken up from a checkpoint that holds what memory() gave."""
        from app.engine.timeline.memory import remember

        if not self.follow() or not told:
            return
        try:
            branches = remember(told, self.current, self.now)
        except (KeyError, TypeError, ValueError, IndexError):
            self._engine.notice("What the checkpoint says of branches cannot be read; their files are found by name.",
                                "warning")
            return
        self.branches = branches
        for branch in branches:
            self._scan(branch)
        self._others()
        self.changed()

    def taken_up(self) -> None:
        """The branch that trains is one of a run that was."""
        if self.follow():
            self.now.recorded = True

    def go_on_as(self, name: str) -> None:
        """The run goes on under this name from where it is: what its branch had gone on to before stays that branch's."""
        if name == self.current or not self.follow():
            return
        assert self._trainer is not None
        before, iteration = self.now, self._trainer.iteration
        branch = before.grow(name, name, iteration, before.folder)
        branch.history, before.history = self._engine.history, before.history.until(iteration)
        before.tip = max([iteration, *files_of(before)])
        if before.tip > iteration:
            before.known = before.tip   # what was done to it after this file is not in the log
        self.take(branch, self._trainer)
        self._scan(before)
        self.changed()

    # ------------------------------------------------------------------ finding

    def kept(self, name: str) -> Iterator[Kept]:
        """What is in memory of a branch and the past that it has in common with others."""
        for of, last in self.branches.past(name):
            yield from (kept for kept in self.ring.of(of.name)
                        if kept.iteration <= last and (not kept.certain or self.branches[name].has(kept.log)))

    def files(self, branch: str) -> Iterator[tuple[Branch, int]]:
        """The same of what is on disk."""
        for of, last in self.branches.past(branch):
            yield from ((of, iteration) for iteration in of.on_disk if iteration <= last)

    def seconds_at(self, moment: Moment) -> float:
        """Spent training until a moment, between the two kept ones around it."""
        known = sorted({(0, 0.0), *((kept.iteration, kept.seconds) for kept in self.kept(moment.branch) if kept.how == "kept")})
        iterations, seconds = np.array(known, np.float64).T
        return float(np.interp(moment.iteration, iterations, seconds))

    def nearest(self, moment: Moment) -> Kept | None:
        """The moment in memory that a look shows."""
        return min(self.kept(moment.branch), key=lambda kept: (abs(kept.iteration - moment.iteration), -kept.iteration),
                   default=None)

    def base(self, moment: Moment) -> Kept | None:
        """The last moment in memory from which another can be replayed, since nothing was done by hand between them."""
        if moment.branch not in self.branches:
            return None
        branch, goal = self.branches[moment.branch], moment.iteration
        return max((kept for kept in self.kept(moment.branch)
                    if kept.iteration == goal or (kept.certain and branch.known <= kept.iteration < goal)
                    if not kept.certain or not branch.edited_between(kept.log, goal)),
                   key=lambda kept: (kept.iteration, kept.certain), default=None)

    def base_file(self, moment: Moment) -> tuple[Branch, int] | None:
        """The same on disk."""
        branch, goal = self.branches[moment.branch], moment.iteration
        return max(((of, iteration) for of, iteration in self.files(moment.branch)
                    if iteration == goal or (branch.known <= iteration < goal and self._certain(of, iteration)
                                             and not branch.edited_between(of.mark(iteration), goal))),
                   key=lambda found: found[1], default=None)

    @staticmethod
    def _certain(of: Branch, iteration: int) -> bool:
        """Whether it is known what had been done to the run when a file was written: nothing at its own iteration."""
        return not any(entry.iteration == iteration for entry in of.log)

    def from_file(self, of: Branch, iteration: int, state: RunState) -> Kept:
        """A moment that was read from disk."""
        return Kept(of.name, iteration, state, of.mark(iteration), self._certain(of, iteration), how="disk")

    def put(self, kept: Kept) -> bool:
        """Take in a moment that was read or replayed; False where it does not fit."""
        gone = self.ring.add(kept)
        self._missed(gone)
        self.looks.again()
        self.changed()
        return kept not in gone

    def remove(self, name: str) -> Branch:
        """Forget a branch. Those that grew from it keep the past that they have in common with it."""
        gone = self.branches.remove(name)
        adopted = self.branches.adopt(gone)
        if adopted is not None:
            heir, last = adopted
            heir.inherited |= {iteration: path for iteration, path in gone.on_disk.items() if iteration <= last}
            self._scan(heir)
            for kept in [k for k in self.ring.of(name) if k.iteration <= last and (not k.certain or heir.has(k.log))]:
                self.ring.rename(kept, heir.name)
        self.ring.drop_branch(name)
        self.changed()
        return gone

    # ------------------------------------------------------------------ for the window

    def state(self) -> TimelineState:
        if not self.follow():
            return TimelineState()
        key = self._version, self.ring.version, self._engine.backend
        if self._state[0] != key:
            branches = tuple(self._branch_state(branch) for branch in self.branches)
            self._state = key, TimelineState(branches, self.current, self.ring.nbytes, self.ring.budget,
                                             self._engine.backend != "cuda")
        return self._state[1]

    def _branch_state(self, branch: Branch) -> BranchState:
        kept = self.ring.of(branch.name)
        return branch.state((k.iteration for k in kept), (k.iteration for k in kept if k.how == "replayed"))

    def branch_curves(self) -> Mapping[str, Mapping[str, Curve]]:
        """Of the branches that do not train."""
        others = [branch for branch in self.branches if branch.name != self.current][-CURVES_OF:]
        key = tuple(branch.name for branch in others)
        if self._curves[0] != key or any(branch.curves is None for branch in others):
            self._curves = key, {branch.name: branch.frozen_curves() for branch in others}
        return self._curves[1]

    def changed(self) -> None:
        """A branch came, went or got another label."""
        self._version += 1
        self._engine.publisher.dirty = True


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
