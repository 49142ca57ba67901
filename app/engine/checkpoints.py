"""The run of the window on disk: saved by itself while it trains, when it stops and when the window closes (C10, C11)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.changes import keep_change
from app.data.checkpoints import Saved, is_run
from app.data.scene import SceneError
from app.engine.background import Background, Report
from app.messages import KEPT_KINDS, Event, OptionChanged, RunSaved
from app.training.autosave import Autosave
from app.training.memory import is_out_of_memory
from render.types import Camera

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.checkpoint import Checkpoint

KEPT_EVENTS = 5000
"""Events that a checkpoint tells the window of again; a run of 30,000 iterations has some hundred."""


@dataclass(frozen=True)
class Writer:
    """A file that is being written, of which run and branch, and why."""

    helper: Background
    run: Path
    branch: str
    reason: str


class Checkpoints:
    """Writes in a helper thread, one file after the other; only the copy of the state is made in the engine's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._events: list[Event] = []
        self._writers: list[Writer] = []     # those at work, the newest last; some may be of a run that was left
        self.start_over()

    def start_over(self) -> None:
        """Another run: what is still being written is written to its end."""
        self._wanted = ""                    # why one is to be written when the last is done
        self._failing = False
        self._events = []
        self._heard = 0                      # how many there have been
        self._known = False                  # whether the folder has been looked at
        self._autosave = Autosave(self._engine.settings.autosave, time.monotonic(), self._iteration(), self._mark())

    def _iteration(self) -> int:
        return self._engine.model.iteration if self._engine.model is not None else 0

    def _mark(self) -> object:
        """Differs where anything that a checkpoint holds differs, at the same iteration too."""
        engine, model = self._engine, self._engine.model
        if model is None or model.trainer is None:
            return None
        request = engine.viewer.request
        camera = request.camera.viewmat.tobytes() if request is not None else None
        names = tuple((branch.name, branch.label) for branch in engine.timeline.branches)
        return engine.branch, model.trainer.phase, model.version, camera, engine.selected_uid, self._heard, names

    # ------------------------------------------------------------------ told by the engine

    def event(self, event: Event) -> None:
        """What is told again when the run is taken up later."""
        self._heard += isinstance(event, KEPT_KINDS)
        if isinstance(event, OptionChanged):
            keep_change(self._events, event)
        elif isinstance(event, KEPT_KINDS):
            self._events.append(event)
        del self._events[:-KEPT_EVENTS]

    def due(self) -> float | None:
        """When the engine should look at this again, if nothing else wakes it; a writer that ends does."""
        waits = not self._writers and self._ready() and self._autosave.changed(self._iteration(), self._mark())
        return self._autosave.at if waits else None

    def advance(self) -> None:
        """After a step, and when news of a helper arrive: say how the last save went, and save if it is time."""
        while self._writers and self._writers[0].helper.done.is_set():
            self._written(self._writers.pop(0))
        if not self._writers and self._ready():
            due = self._autosave.due(time.monotonic(), self._iteration(), self._mark())
            reason = self._wanted or due or self._first()
            if reason:
                self.save(reason)

    def _first(self) -> str:
        """A folder with checkpoints of an earlier run gets one of this run at once: resuming means this one from now on."""
        if self._known or self._engine.run_folder is None:
            return ""
        self._known = True
        return "start" if is_run(self._engine.run_folder) else ""

    def branched(self, events: list[Event]) -> None:
        """The run goes on as another branch, on which `events` have happened: the branch has a file from its start."""
        self._events = sorted(events, key=lambda event: event.iteration)[-KEPT_EVENTS:]   # type: ignore[attr-defined]
        self._known = True
        if self._ready():
            self._begin("branch")   # what is being written of the one before comes first, but the copy is made now

    def save(self, reason: str) -> bool:
        """Write one, after the one that is being written; False where there is nothing to save, or the run is not kept."""
        if not self._ready():
            return False
        if self._writers:
            self._wanted = reason if self._wanted != "user" else "user"
        else:
            self._begin(reason)
        return True

    def leave(self) -> None:
        """Another run comes: what this one has reached since the last save is written behind its back."""
        if self._ready() and (self._wanted or self._autosave.changed(self._iteration(), self._mark())):
            self._begin("close")

    def join(self) -> None:
        """The window closes: wait for what is being written, and say how it went."""
        while self._writers:
            self._writers[0].helper.join(60.0)
            self._written(self._writers.pop(0))

    # ------------------------------------------------------------------

    def writing(self, folder: Path) -> set[str]:
        """Branches of which a file in a run folder is still to come."""
        return {writer.branch for writer in self._writers if writer.run == folder}

    def _ready(self) -> bool:
        """Whether there is a run that is kept, in a folder that is its own, and anything of it to save."""
        engine, model = self._engine, self._engine.model
        return engine.recorder.holds_folder and model is not None and model.trainer is not None and model.iteration > 0

    def _begin(self, reason: str) -> None:
        """The state as it is now is copied at once; a helper writes it when the one before has written its own. A copy that
        cannot be made is said, and it is due again later."""
        engine, self._wanted = self._engine, ""
        run, branch, failed = engine.run_folder, engine.branch, None
        assert run is not None
        try:
            work = self._copy(run, branch, reason)
            if work is not None:
                self._writers.append(Writer(engine.background(work, "checkpoint"), run, branch, reason))
        except Exception as error:  # noqa: BLE001 - said below; nobody loses more than this file by it
            failed = error
        self._autosave.saved(time.monotonic(), self._iteration(), self._mark())
        if failed is not None:
            self._autosave.missed()
            self._failed(failed, run, branch, reason, of_now=reason != "close")

    def _copy(self, run: Path, branch: str, reason: str) -> Callable[[Report], Saved] | None:
        """What a helper does to write the state as it is now; None where there is none, since the first step was taken back."""
        from app.training.saving import curves, told, write
        from app.training.state import RunState, capture

        engine, before = self._engine, [writer.helper for writer in self._writers]
        assert engine.model is not None and engine.model.trainer is not None
        try:
            state = capture(engine.model.trainer)
        except Exception as error:
            if not engine.steps.owed(error):
                raise
            if not self._ready():
                return None
            state = capture(engine.model.trainer)   # whole again, as it was before the step that failed
        state = RunState({**state.arrays, **curves(engine.history)}, state.meta)
        extra, budget = {**self._extra(), **told(self._events)}, engine.settings.autosave.budget

        def work(report: Report) -> Saved:
            for helper in before:
                helper.join(60.0)
            return write(run, branch, state, extra, reason, budget)

        return work

    def _extra(self) -> dict[str, Any]:
        """Beside the state: where the scene is, and what the window looked at."""
        engine = self._engine
        model, request = engine.model, engine.viewer.request
        assert model is not None
        return {"scene": dict(model.opening), "seconds": engine.seconds, "timeline": engine.timeline.memory(),
                "camera": _plain(request.camera) if request is not None else None,
                "view_index": request.view_index if request is not None else None, "selected_uid": engine.selected_uid}

    def _written(self, writer: Writer) -> None:
        """Say how a save went, of a run that was left too."""
        error, of_now = writer.helper.error, (writer.run, writer.branch) == (self._engine.run_folder, self._engine.branch)
        if error is not None or not writer.helper.done.is_set():
            if of_now:
                self._autosave.missed()
            self._failed(error, writer.run, writer.branch, writer.reason, of_now=of_now)
            return
        saved: Saved = writer.helper.result
        self._engine.unsaved.discard((writer.run, writer.branch))   # it has what one before it lacks
        self._engine.timeline.written(saved.path)
        if writer.run == self._engine.run_folder:
            self._engine.emit(RunSaved(saved.iteration, saved.saved_at, str(saved.path), saved.nbytes, saved.reason,
                                       left=not of_now))
        if of_now:
            self._failing = False
        if saved.reason == "user":
            self._engine.notice(f"Saved {saved.path}.")

    def _failed(self, error: BaseException | None, run: Path, branch: str, reason: str, *, of_now: bool) -> None:
        """Say why there is no file; of one failure after the other only the first, and each that was asked for."""
        engine, count = self._engine, len(self._engine.model.params) if self._engine.model is not None else 0
        if error is None:
            sentence = "it took longer than a minute"
        elif isinstance(error, (SceneError, OSError)):
            sentence = str(error)
        elif is_out_of_memory(error):
            sentence = f"a checkpoint of {count:,} Gaussians does not fit into memory"
        else:
            sentence = f"a checkpoint could not be made ({type(error).__name__}: {error})"
        if engine.stopping.is_set():
            engine.unsaved.add((run, branch))
        if not of_now or engine.stopping.is_set():
            engine.notice(f"The run in {run} could not be saved as it was left: {sentence}", "error", aloud=True)
            return
        if not self._failing or reason == "user":
            said = sentence[:1].upper() + sentence[1:]
            engine.notice(f"{said}; the run goes on without checkpoints until one can be written.", "error", aloud=True)
        self._failing = True

    # ------------------------------------------------------------------ a run that is taken up

    def resumed(self, found: Checkpoint) -> None:
        """The engine's part of a run that goes on: curves, figures and what the window was told.

        A file that lies in no run's folder, or in another's, begins a run of its own, on the branch that the engine is on.
        """
        from app.training.remembered import since
        from app.training.saving import branch_in, branch_of, events_of, history_of, is_of

        engine, extra, run = self._engine, found.extra, self._engine.run_folder
        own = run is None or is_of(run, found)
        engine.history = history_of(found)
        engine.seconds = float(extra.get("seconds") or 0.0)
        engine.selected_uid = extra.get("selected_uid")
        if own:
            engine.branch = branch_of(found)
        for event in events_of(extra):
            engine.emit(event, again=True)
        if own:
            self._known = True
            told = extra.get("timeline")
            engine.timeline.remember(since(told, found, run) if told and run is not None else told)
            engine.timeline.taken_up()
            before, name = engine.branch, branch_in(run, found) if run is not None else engine.branch
            if name != before:
                engine.timeline.go_on_as(name)
                engine.notice(f"The run had gone further from here, which stays as branch {before}; this one is {name}.")
        if found.path is not None:
            engine.emit(RunSaved(found.state.iteration, found.path.stat().st_mtime, str(found.path), found.state.nbytes,
                                 "resume"), again=True)
        self._autosave.saved(time.monotonic(), self._iteration(), self._mark())


def camera_of(extra: Mapping[str, Any]) -> Camera | None:
    """Where the window looked from when the checkpoint was made."""
    told = extra.get("camera")
    try:
        return None if told is None else Camera(np.array(told["viewmat"], np.float64), np.array(told["K"], np.float64),
                                                int(told["width"]), int(told["height"]))
    except (KeyError, TypeError, ValueError):
        return None


def _plain(camera: Camera) -> dict[str, Any]:
    return {"viewmat": camera.viewmat.tolist(), "K": camera.K.tolist(), "width": camera.width, "height": camera.height}
