"""The one thread that touches tensors: drain commands, advance jobs, take a step, draw the view, publish, rest.

Torch is imported on this side only, by the first job, so that a window can open while it loads.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config import TrainConfig
from app.data.checkpoints import MAIN, begins_as
from app.data.scene import SceneError
from app.engine import commands, work
from app.engine.background import Background, Report
from app.engine.checkpoints import Checkpoints
from app.engine.control import Control
from app.engine.full import out_of_memory
from app.engine.inspector import Inspector
from app.engine.jobs import Jobs, Refused
from app.engine.pacing import Pace
from app.engine.publish import Publisher
from app.engine.recorder import Recorder
from app.engine.selecting import Selection
from app.engine.settings import EngineSettings
from app.engine.steps import Steps
from app.engine.timeline.timeline import Timeline
from app.engine.view import Viewer
from app.history import History, Smoothed
from app.mailbox import Fifo, Latest
from app.messages import (
    Command,
    EngineFailed,
    Event,
    InspectRequest,
    Notice,
    SavePly,
    Select,
    SetOption,
    SetOptions,
    SetPace,
    Snapshot,
    ViewRequest,
)
from app.training.backend import set_threads
from render import interrupt

if TYPE_CHECKING:
    from app.engine.model import Model

JOIN_SECONDS = 30.0
"""How long close() waits for what cannot be given up: an optimiser step, a densification, a file that is written."""
STUMBLED_SECONDS = 0.5
"""Between two turns of which the first failed: what fails in each of them takes no processor, and commands are heard."""
PATIENT = (SavePly, Select, SetOption, SetOptions, SetPace)
"""Commands that wait for the step or the picture under way; sliders send many. All others end it."""


class Engine:
    """Owns the model and its thread. The window talks to the five mailboxes only.

    `commands` and `events` are FIFOs that lose nothing; the others keep the newest value.
    """

    def __init__(self, config: TrainConfig | None = None, settings: EngineSettings | None = None) -> None:
        self.signal = threading.Event()
        self.interrupt = interrupt.Request()
        self.commands: Fifo[Command] = Fifo(self.signal, self._sent)
        self.view_requests: Latest[ViewRequest] = Latest(self.signal)
        self.inspect_requests: Latest[InspectRequest] = Latest(self.signal)
        self.news = threading.Event()            # set with every event and snapshot, for readers that sleep
        self.events: Fifo[Event] = Fifo(self.news)
        self.snapshots: Latest[Snapshot] = Latest(self.news)

        self.settings = settings or EngineSettings()
        self.config = config or TrainConfig()    # what the next run starts with
        self.backend = self.settings.backend     # resolved by the first job
        self.usable_backends: tuple[str, ...] = ()   # found out by the first job
        self.model: Model | None = None
        self.running = False
        self.steps_left: int | None = None       # of a Step command; None = no limit
        self.failed = False
        self.commands_done = 0
        self.stopping = threading.Event()
        self.unsaved: set[object] = set()        # what could not be written at the close; it is said too
        self.clock: Callable[[], float] = time.monotonic

        self.jobs = Jobs(self.emit, self.job_failed)
        self.pace = Pace()
        self.viewer = Viewer(self)
        self.inspector = Inspector(self)
        self.publisher = Publisher(self)
        self.recorder = Recorder(self)
        self.checkpoints = Checkpoints(self)
        self.timeline = Timeline(self)
        self.control = Control(self)
        self.steps = Steps(self)
        self.backgrounds: list[Background] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._shared = 0, ""                     # (threads, backend) that the threads were last set for
        self._stumbled_at: tuple[str, int] | None = None   # what a turn failed at last, and the commands until then
        self.start_over()

    def start_over(self) -> None:
        """Forget what the run so far left behind: curves, timings, the selection."""
        self.history = History()
        self.stage_ms = Smoothed()
        self.seconds = 0.0                       # spent in steps
        self.view_name = ""
        self.last_loss = self.last_psnr = float("nan")
        self.last_measured = 0                   # the iteration they belong to
        self.selected_uid: int | None = None     # the Gaussian that is inspected
        self.selection = Selection(self)
        self.last_evaluation = work.LastEvaluation()
        self.recorder.start_over()
        folder = self.run_folder                 # one that had a run keeps it: this one is another branch
        self.branch = MAIN if folder is None else begins_as(folder, self.checkpoints.writing(folder))
        self.checkpoints.start_over()
        self.control.start_over()

    # ------------------------------------------------------------------ from other threads

    def start(self) -> Engine:
        self._thread.start()
        return self

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the thread to end after what it is doing now. Returns at once."""
        self.stopping.set()
        self.signal.set()
        self.interrupt.make()

    def close(self, timeout: float = JOIN_SECONDS) -> bool:
        """stop() and wait for the thread to end; False when it has not ended within `timeout` seconds (G14)."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def join_helpers(self, timeout: float = JOIN_SECONDS) -> None:
        """Wait for helper threads (loading, compiling) that were told to stop, so that the process can end cleanly."""
        deadline = time.monotonic() + timeout
        for background in self.backgrounds:
            background.join(max(0.0, deadline - time.monotonic()))
        self.recorder.join(max(0.0, deadline - time.monotonic()))

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run now, which is made with its first step; None where nothing is recorded."""
        return self.recorder.folder

    def _sent(self, command: Command) -> None:
        """In the thread of the sender: a user who waits ends the work that may be given up; it is done again later."""
        if not isinstance(command, PATIENT):
            self.interrupt.make()

    # ------------------------------------------------------------------ said to the user

    def emit(self, event: Event, *, again: bool = False) -> None:
        """Tell the window; with `again`, of what the run's record has already."""
        self.events.put(event)
        if not again:
            self.recorder.event(event)
        self.checkpoints.event(event)
        self.timeline.heard(event)
        self.publisher.dirty = True

    def notice(self, text: str, level: Any = "info", *, aloud: bool = False) -> None:
        """One sentence in the window; `aloud` on stderr as well."""
        text = text if text.endswith((".", "!", "?")) else f"{text}."
        self.emit(Notice(text, level))
        if aloud:
            print(f"splatscope: {text}", file=sys.stderr, flush=True)

    def fail(self, doing: str, error: BaseException) -> None:
        """An exception nobody expected: the user gets to read it, and the run pauses."""
        self.running, self.steps_left, self.failed = False, None, True
        self.control.drop()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        summary = f"{doing} failed: {type(error).__name__}: {error}"
        print(f"splatscope: {summary}", file=sys.stderr, flush=True)
        if self.settings.debug:
            print(text, file=sys.stderr, flush=True)
        self.emit(EngineFailed(summary, text))

    def went_wrong(self, doing: str, error: BaseException) -> None:
        """Say what is known of an error; one that nobody expected stops the run."""
        if self.steps.owed(error):
            self.checkpoints.save("stop")
        elif not out_of_memory(self, error):
            self.fail(doing, error)

    def job_failed(self, name: str, error: BaseException) -> None:
        if self.stopping.is_set() and name == work.SAVING:
            self.unsaved.add(name)
        if isinstance(error, (SceneError, Refused, OSError)):
            self.notice(str(error), "error", aloud=self.stopping.is_set())   # already a sentence for the user
        elif not out_of_memory(self, error):
            self.fail(name, error)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        interrupt.listen(self.interrupt)
        self.jobs.add(work.prepare(self))
        try:
            while not self.stopping.is_set():
                try:
                    self.turn()
                    self._rest()
                except Exception as error:  # noqa: BLE001 - shown to the user
                    self._stumbled(error)
        finally:
            self._end()

    def _stumbled(self, error: Exception) -> None:
        """A turn failed at what nobody expected: the thread lives on. What fails in each turn is said once, until the user
        sends something."""
        at = f"{type(error).__name__}: {error}", self.commands_done
        if at != self._stumbled_at:
            self._stumbled_at = at
            with contextlib.suppress(Exception):   # what tells may be what fails; the event goes out first
                self.went_wrong("A turn of the engine", error)
                self.publisher.publish()
        self.signal.wait(STUMBLED_SECONDS)

    def _end(self) -> None:
        """The last work of the thread. What fails in one part of it is said, and keeps no other from being done."""
        def cancel_helpers() -> None:
            for background in self.backgrounds:
                background.cancel()

        for doing, action in (("Taking the last commands", self._take_commands),
                              ("Saving the Gaussians", lambda: self.jobs.finish(work.SAVING)),
                              ("Ending the long tasks", self.jobs.cancel_all), ("Ending the helpers", cancel_helpers),
                              ("Saving the run", self.checkpoints.leave), ("Saving the run", self.checkpoints.join),
                              ("Ending the record", self.recorder.end)):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - said on stderr
                self.unsaved.add(doing)
                with contextlib.suppress(Exception):
                    self.fail(doing, error)

    def turn(self) -> None:
        """One round. Nothing in it waits, and what it does not finish it takes up in the next round."""
        self.signal.clear()   # before reading: what arrives from here on ends the next rest, or the work of this turn
        self.interrupt.clear()
        done = self.commands_done
        self._take_commands()
        if self.stopping.is_set():
            return
        if self.commands_done > done:
            self.publisher.publish()   # the user sees the answer before the next picture is begun
        self.viewer.poll()
        self.inspector.poll()
        self.share_threads()
        self.jobs.advance(self.clock)
        self.checkpoints.advance()
        self.timeline.looks.advance()
        due = self.viewer.due()
        if due is not None and due <= self.clock():
            try:
                self._finish_device()
                self.viewer.draw()
            except interrupt.Interrupted:
                return
            except Exception as error:  # noqa: BLE001 - shown to the user
                self.went_wrong("Drawing the view", error)
        if not self._inspect():
            return
        self.publisher.publish_if_due()
        if self.control.pending:
            self.control.take_part()
        elif self.step_allowed():
            self.steps.step()
        elif not self.running:
            self.steps.settle()

    def _finish_device(self) -> None:
        """Let a GPU end the step it is at: what a picture costs is measured, and this is not the picture's."""
        if self.model is not None and self.model.backend == "cuda":
            from render.backends import cuda

            cuda.finish()

    def _inspect(self) -> bool:
        """Answer what is due of what open panels ask; False when somebody waits for the thread. Not while the user drags."""
        due = self._inspection_due()
        if due is None or due > self.clock():
            return True
        try:
            self.inspector.answer()
        except interrupt.Interrupted:
            return False
        except Exception as error:  # noqa: BLE001 - shown to the user
            self.went_wrong("An instrument", error)
        return True

    def _take_commands(self) -> None:
        """Carry out what the window sent. Once it closes, only a save still counts."""
        for command in self.commands.drain():
            if self.stopping.is_set() and not isinstance(command, SavePly):
                continue
            try:
                commands.handle(self, command)
            except Exception as error:  # noqa: BLE001 - shown to the user
                self.went_wrong(type(command).__name__, error)
            self.commands_done += 1
            self.publisher.dirty = True

    def _rest(self) -> None:
        """Sleep until a command, a view request, news of a helper thread or the next due time, unless there is work."""
        busy = self.control.pending or self.step_allowed() or (self.jobs.current and not self.jobs.waiting)
        if self.stopping.is_set() or busy:
            return
        due = [t for t in (self.viewer.due(), self.publisher.due(), self._inspection_due(), self.checkpoints.due())
               if t is not None]
        timeout = max(0.0, min(due) - self.clock()) if due else None
        if timeout != 0.0:
            self.signal.wait(timeout)

    def _inspection_due(self) -> float | None:
        return None if self.viewer.moving or self.jobs.exclusive else self.inspector.due()

    # ------------------------------------------------------------------ training

    @property
    def training(self) -> bool:
        """Whether the model is on its way, also while a job holds it up for a moment."""
        model = self.model
        return bool(self.running and model is not None and model.trainer is not None
                    and (model.iteration < model.options.iterations or self.control.phase == "update"))

    @property
    def wants_steps(self) -> bool:
        """Whether training would take a step if it got the time."""
        return self.training and not self.jobs.exclusive

    @property
    def state(self) -> str:
        if self.jobs.has(work.OPENING) or (self.model is None and self.jobs.has(work.PREPARING)):
            return "loading"
        if self.failed:
            return "failed"
        if self.model is None:
            return "empty"
        trainer = self.model.trainer
        if trainer is not None and trainer.iteration >= trainer.config.iterations and not trainer.phase:
            return "finished"
        return "running" if self.running else "paused"

    def step_allowed(self) -> bool:
        return self.wants_steps and self.pace.step_allowed(
            self.clock(), moving=self.viewer.moving, view_due=self.viewer.due())

    def share_threads(self) -> None:
        """While the user drags, one core is the window's; else training may use them all."""
        threads = max(1, self.settings.threads - 1) if self.viewer.moving else self.settings.threads
        if (threads, self.backend) != self._shared and not self.jobs.has(work.PREPARING):
            set_threads(threads, self.backend)
            self._shared = threads, self.backend
            self.publisher.dirty = True

    @property
    def threads_in_use(self) -> int:
        """Kernel threads; 0 before the renderer is ready."""
        return self._shared[0]

    def background(self, task: Callable[[Report], Any], name: str) -> Background:
        """Start `task(report)` in a helper thread whose news wake this one up."""
        self.backgrounds = [b for b in self.backgrounds if not b.done.is_set()]
        helper = Background(task, self.signal.set, name)
        self.backgrounds.append(helper)
        return helper
