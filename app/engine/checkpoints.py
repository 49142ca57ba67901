"""The run of the window on disk: saved by itself while it trains, when it stops and when the window closes (C10, C11)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.data.checkpoints import Saved, is_run, place, thin_out
from app.data.scene import SceneError
from app.engine.background import Background, Report
from app.messages import Densified, Evaluated, Event, RunSaved
from app.training.autosave import Autosave
from render.types import Camera

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.checkpoint import Checkpoint

HISTORY = "history."
KEPT_EVENTS = 5000
"""Events that a checkpoint tells the window of again; a run of 30,000 iterations has some hundred."""


class Checkpoints:
    """Writes in a helper thread, one file at a time; only the copy of the state is made in the engine's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._events: list[Event] = []
        self.start_over()

    def start_over(self) -> None:
        """Another run: what is still being written is written to its end."""
        self._writing: Background | None = None
        self._failing = False
        self._events = []
        self._known = False                  # whether the folder has been looked at
        self._autosave = Autosave(self._engine.settings.autosave, time.monotonic(), self._iteration())

    def _iteration(self) -> int:
        return self._engine.model.iteration if self._engine.model is not None else 0

    # ------------------------------------------------------------------ told by the engine

    def event(self, event: Event) -> None:
        """What is told again when the run is taken up later."""
        if isinstance(event, (Densified, Evaluated)):
            self._events.append(event)
            del self._events[:-KEPT_EVENTS]

    def advance(self) -> None:
        """After a step, and when news of a helper arrive: save if it is time, and say how the last save went."""
        if self._writing is not None and self._writing.done.is_set():
            self._written(self._writing)
        if self._writing is None and self._ready():
            reason = self._autosave.due(time.monotonic(), self._iteration()) or self._first()
            if reason:
                self.save(reason)

    def _first(self) -> str:
        """A folder with checkpoints of an earlier run gets one of this run at once: resuming means this one from now on."""
        if self._known or self._engine.run_folder is None:
            return ""
        self._known = True
        return "start" if is_run(self._engine.run_folder) else ""

    def branched(self, events: list[Event]) -> None:
        """The run goes on as another branch, on which `events` have happened."""
        self._events = sorted(events, key=lambda event: event.iteration)[-KEPT_EVENTS:]   # type: ignore[attr-defined]
        self._autosave.saved(time.monotonic(), self._iteration())

    def save(self, reason: str) -> bool:
        """Begin to write one; False where the run is not kept, or one is being written."""
        engine = self._engine
        if self._writing is not None or not self._ready():
            return False
        work = self._work(reason)
        self._autosave.saved(time.monotonic(), self._iteration())
        self._writing = engine.background(lambda report: work(), "checkpoint")
        return True

    def leave(self) -> None:
        """Another run comes: what this one has reached since the last save is written behind its back."""
        if not self._ready() or not self._autosave.due_at_all(self._iteration()):
            return
        before, work = self._writing, self._work("close")

        def write(report: Report) -> Saved:
            if before is not None:
                before.join(60.0)
            return work()

        self._writing = self._engine.background(write, "checkpoint")

    def close(self) -> None:
        """The window closes: what has been reached since the last save is written, and waited for."""
        if self._writing is not None:
            self._writing.join(60.0)
            self._written(self._writing)
        if not self._ready() or not self._autosave.due_at_all(self._iteration()):
            return
        try:
            self._work("close")()
        except Exception as error:  # noqa: BLE001 - said on stderr, the window is gone
            self._engine.notice(f"The run could not be saved: {error}", "error", aloud=True)

    # ------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether there is a run that is kept, and anything of it to save."""
        engine = self._engine
        model = engine.model
        return (engine.run_folder is not None and engine.run_folder.is_dir() and model is not None
                and model.trainer is not None and model.iteration > 0)

    def _work(self, reason: str) -> Any:
        """The state as it is now is copied at once; what is returned writes it."""
        from app.training import checkpoint
        from app.training.state import RunState, capture

        engine = self._engine
        assert engine.model is not None and engine.model.trainer is not None and engine.run_folder is not None
        state = capture(engine.model.trainer)
        state = RunState({**state.arrays, **self._curves()}, state.meta)
        run, branch, extra = engine.run_folder, engine.branch, self._extra()
        budget = engine.settings.autosave.budget

        def write() -> Saved:
            saved = checkpoint.write(place(run, state.iteration, branch), state, extra, branch=branch,
                                     reason=reason)
            thin_out(run, budget)
            return saved

        return write

    def _curves(self) -> dict[str, np.ndarray]:
        return {HISTORY + name: np.stack(series.values()).copy() for name, series in self._engine.history.series.items()}

    def _extra(self) -> dict[str, Any]:
        """Beside the state: where the scene is, what the window looked at, and what it was told."""
        engine = self._engine
        model, request = engine.model, engine.viewer.request
        assert model is not None
        return {"scene": dict(model.opening), "seconds": engine.seconds, "branch": engine.branch,
                "timeline": engine.timeline.memory(),
                "camera": _plain(request.camera) if request is not None else None,
                "view_index": request.view_index if request is not None else None, "selected_uid": engine.selected_uid,
                "history": [{"iteration": e.iteration, "psnr": e.psnr, "ssim": e.ssim} for e in self._events
                            if isinstance(e, Evaluated)],
                "events": [{"kind": type(event).__name__, **asdict(event)} for event in self._events]}

    def _written(self, helper: Background) -> None:
        self._writing = None
        error = helper.error
        if error is None:
            self._failing = False
            saved: Saved = helper.result
            self._engine.emit(RunSaved(saved.iteration, saved.saved_at, str(saved.path), saved.nbytes, saved.reason))
            if saved.reason == "user":
                self._engine.notice(f"Saved {saved.path}.")
            return
        self._autosave.missed()
        sentence = str(error) if isinstance(error, (SceneError, OSError)) else f"{type(error).__name__}: {error}"
        if not self._failing:
            self._engine.notice(f"{sentence}; training goes on without checkpoints until one can be written.", "error",
                                aloud=True)
        self._failing = True

    # ------------------------------------------------------------------ a run that is taken up

    def resumed(self, found: Checkpoint) -> None:
        """The engine's part of a run that goes on: curves, figures and what the window was told."""
        engine, extra = self._engine, found.extra
        for name, series in engine.history.series.items():
            table = found.state.arrays.get(HISTORY + name)
            if table is not None:
                series.extend(*table)
        engine.seconds = float(extra.get("seconds") or 0.0)
        self._known = True
        engine.branch = str(extra.get("branch") or engine.branch)
        engine.selected_uid = extra.get("selected_uid")
        for told in extra.get("events", ()):
            event = _event(told)
            if event is not None:
                engine.emit(event)
        engine.timeline.remember(extra.get("timeline"))
        self._autosave.saved(time.monotonic(), self._iteration())
        if found.path is not None:
            engine.emit(RunSaved(found.state.iteration, found.path.stat().st_mtime, str(found.path), found.state.nbytes,
                                 "resume"))


def _event(told: Mapping[str, Any]) -> Event | None:
    """The event as it was told; None for one that this version does not know."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Densified, Evaluated)}
    values = {name: tuple(map(tuple, value)) if isinstance(value, list) else value for name, value in told.items()
              if name != "kind"}
    try:
        return kinds[told["kind"]](**values)
    except (KeyError, TypeError):
        return None


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


def run_of(path: Path) -> Path | None:
    """The run folder that a checkpoint file lies in; None where it was taken out of one."""
    folder = path.parent.parent.parent
    return folder if path.parent.parent.name == "checkpoints" else None
