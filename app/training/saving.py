"""Checkpoints of a run while it trains: when, where, and what is said when the disk is full."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from app.data.checkpoints import MAIN, Saved, begins_as, find, goes_on_as, place, run_of, thin_out
from app.data.scene import SceneError
from app.history import History
from app.messages import KEPT_KINDS, Evaluated, Event
from app.records.lock import lost
from app.training import checkpoint
from app.training.autosave import Autosave, AutosaveConfig
from app.training.checkpoint import Checkpoint
from app.training.state import RunState, StateError, capture, restore
from app.training.trainer import StepReport, Trainer

HISTORY = "history."
OF_THE_WINDOW = ("camera", "view_index", "selected_uid", "timeline")


def write(run: Path, branch: str, state: RunState, extra: Mapping[str, Any], reason: str, budget: int) -> Saved:
    """One checkpoint in its place, and the others of the run within their budget. Raises SceneError."""
    if lost(run):
        raise SceneError(f"{run} was moved or deleted: put it back")
    serial = 1 + max((saved.serial for saved in find(run)[0]), default=0)
    saved = checkpoint.write(place(run, state.iteration, branch), state, extra, reason=reason, serial=serial)
    thin_out(run, budget)
    return saved


# ---------------------------------------------------------------- what is kept beside the state


def curves(history: History) -> dict[str, np.ndarray]:
    """The curves of a run as arrays of a checkpoint."""
    return {HISTORY + name: np.stack(series.values()).copy() for name, series in history.series.items()}


def history_of(found: Checkpoint) -> History:
    """The curves that a checkpoint has; empty ones where it has none."""
    history = History()
    for name, series in history.series.items():
        table = found.state.arrays.get(HISTORY + name)
        if table is not None:
            series.extend(*table)
    return history


def told(events: Sequence[Event]) -> dict[str, Any]:
    """What the user was told of a run, as JSON of a checkpoint."""
    return {"events": [{"kind": type(event).__name__, **asdict(event)} for event in events],   # type: ignore[call-overload]
            "history": [{"iteration": e.iteration, "psnr": e.psnr, "ssim": e.ssim} for e in events if isinstance(e, Evaluated)]}


def events_of(extra: Mapping[str, Any]) -> list[Event]:
    """The events that a checkpoint tells; those that this version does not know are left out."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in KEPT_KINDS}
    events = []
    for entry in extra.get("events") or ():
        values = {name: tuple(map(tuple, value)) if isinstance(value, list) else value for name, value in entry.items()
                  if name != "kind"}
        with contextlib.suppress(KeyError, TypeError):
            events.append(kinds[entry["kind"]](**values))
    return events


class Saver:
    """Writes the checkpoints of one run without a window.

    It goes on where `found` was: `history` and `events` are those of the run so far, and what a window kept beside it (camera,
    branches) stays. `extra` gives the rest; `say` takes sentences. An autosave that fails is said once until one
    succeeds again: training goes on.
    """

    def __init__(self, run: Path, config: AutosaveConfig, extra: Callable[[], Mapping[str, Any]], say: Callable[[str], None],
                 found: Checkpoint | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self.config, self.branch = run, config, branch_in(run, found)
        self.history = History() if found is None else history_of(found)
        self.events: list[Event] = [] if found is None else events_of(found.extra)
        self._extra, self._say, self._clock = extra, say, clock
        self._autosave = Autosave(config, clock(), 0 if found is None else found.state.iteration)
        self._failing = False
        self._kept = {} if found is None else {name: value for name, value in found.extra.items() if name in OF_THE_WINDOW}
        self.parent = ""   # of a branch that begins here
        self.new = found is None or not is_of(run, found) or self.branch != branch_of(found)
        if found is not None and not is_of(run, found):
            self._kept.pop("timeline", None)   # branches of another run
        elif found is not None:
            if self.branch != branch_of(found):
                self.parent = branch_of(found)
            if self._kept.get("timeline"):
                from app.training.remembered import onward, since

                self._kept["timeline"] = onward(since(self._kept["timeline"], found, run), found, self.branch)

    def stepped(self, report: StepReport) -> None:
        """For the curves and events of whoever opens the run."""
        self.history.add(report.iteration, count=report.gaussians)
        if report.measured:
            self.history.add(report.measured, loss=report.loss, train_psnr=report.psnr)
        if report.densified is not None:
            self.event(report.densified)

    def event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Evaluated):
            self.history.add(event.iteration, test_psnr=event.psnr)

    def save_if_due(self, trainer: Trainer) -> Saved | None:
        reason = self._autosave.due(self._clock(), trainer.iteration)
        if not reason:
            return None
        try:
            saved = self.save(trainer, reason)
        except SceneError as error:
            self._autosave.saved(self._clock(), trainer.iteration)   # not again at the next step
            self._autosave.missed()
            if not self._failing:
                self._say(f"{error}; training goes on without checkpoints until one can be written")
            self._failing = True
            return None
        self._failing = False
        return saved

    def save(self, trainer: Trainer, reason: str) -> Saved:
        """One now. Raises SceneError when it cannot be written."""
        state = capture(trainer)
        extra = {**self._kept, **told(self.events), **self._extra()}
        saved = write(self.run, self.branch, RunState({**state.arrays, **curves(self.history)}, state.meta), extra, reason,
                      self.config.budget)
        self._autosave.saved(self._clock(), state.iteration)
        return saved


def branch_in(run: Path, found: Checkpoint | None) -> str:
    """The branch on which a run goes on in a folder, so that it overwrites nothing of another."""
    if found is not None and found.path is not None and is_of(run, found):
        return goes_on_as(found.path, found.state.iteration)
    return begins_as(run)


def is_of(run: Path, found: Checkpoint) -> bool:
    """Whether a checkpoint lies in a run's folder, and not in another's or by itself."""
    return found.path is not None and run_of(found.path) == run.resolve()


def branch_of(found: Checkpoint) -> str:
    """The branch of a checkpoint that lies in a run's folder: that of its own folder, wherever the file came from."""
    return MAIN if found.path is None else found.path.parent.name


def resume(trainer: Trainer, found: Checkpoint, changes: Mapping[str, Any]) -> list[str]:
    """Put a trainer where a checkpoint was, then change the options `changes`; returns sentences for the user.

    Raises SceneError when the checkpoint is of another scene.
    """
    try:
        notices = [*found.notices, *restore(trainer, found.state)]
    except (StateError, KeyError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, StateError) else f"it is damaged ({type(error).__name__}: {error})"
        raise SceneError(f"{found.path or 'the checkpoint'} cannot be resumed: {what}") from error
    for path, value in changes.items():
        if not trainer.set_option(path, value):
            notices.append(f"{path} acts only at the start of a run, so it stays as it was when the run began.")
    return notices
