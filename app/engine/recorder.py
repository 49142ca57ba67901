"""The record of the run in the window: fed by the engine in passing, written by a thread of its own (app/records)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.data.cameras_json import write_cameras_json
from app.engine.holding import Holding, writers
from app.engine.publish import device_name
from app.messages import Densified, EngineFailed, Evaluated, Event, Notice, OptionChanged, RunSaved
from app.options import flatten, is_live
from app.records.about import about
from app.records.place import Place, prune_demos, runs_root
from app.records.record import PICTURED_VIEWS, RunRecord
from app.records.thumbnails import spread

if TYPE_CHECKING:
    from app.data.scene import View
    from app.engine.jobs import Work
    from app.engine.loop import Engine
    from app.training.evaluate import Seen
    from app.training.trainer import StepReport

KEPT_LINES = 1000


class Recorder:
    """`folder` is that of the run now; it comes to be with the first step. None where nothing is recorded.

    Others may put files into it at any time, and lines into its events.jsonl by note().
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._holding = engine, Holding(engine)
        self.folder: Path | None = None
        self._record: RunRecord | None = None
        self._ended: list[RunRecord] = []
        self._begun = False
        self._before: list[Callable[[RunRecord], object]] = []   # lines that wait for it to begin
        self._log_step: Any = None       # app.training.recording's, which comes with torch
        self._named: str | None = None   # the scene that the folder named by the user belongs to

    # ------------------------------------------------------------------ where

    def start_over(self) -> None:
        """Another model, or the same scene from the start: what comes now is another run.

        In a folder that the user named a reset run goes on, as another branch.
        """
        model, place = self._engine.model, self._engine.settings.record
        self._begun, self._before = False, []
        if place is None or model is None or model.trainer is None:
            self._leave(None)
            return
        if self._named is None and place.folder is not None:
            self._named = model.path
        folder = place.folder if model.path == self._named else None
        self._leave(folder or Place(root=place.root).choose(model.path))
        if folder is not None and folder.is_dir() and not self._holding.take(folder):   # before a branch there gets a name
            self._leave(None)

    def resume_in(self, folder: Path) -> None:
        """The run that was taken up again goes on in its own folder; the next step says from which iteration."""
        self._begun, self._before = False, []
        mine = self._engine.settings.record is not None and (not folder.exists() or self._holding.take(folder))
        self._leave(folder if mine else None)   # one that is not there is made with the first step, as of a new run

    def went_on(self) -> None:
        """The run goes on from the iteration at which it is now, on the branch on which it is now."""
        engine = self._engine
        if self._begun and self._record is not None and engine.model is not None:   # else the first step says so
            parent, new = engine.timeline.begins()
            self._record.go_on(engine.model.iteration, engine.seconds, branch=engine.branch, parent=parent, new=new,
                               config=flatten(engine.config))

    @property
    def holds_folder(self) -> bool:
        """Whether the folder is this run's to write into."""
        return self.folder is not None and self._holding.holds(self.folder)

    def _leave(self, folder: Path | None) -> None:
        """End the record of now, unless it lies in `folder`, where the next run is recorded."""
        release = self._holding.leave(folder)
        if self._record is None or self._record.folder == folder:
            if writers(self._engine):   # it waits for them
                self._engine.background(lambda report: release(), "release")
            else:
                release()
        else:
            self._record.end(release)
            self._ended = [record for record in self._ended if record.going] + [self._record]
            self._record = None
        self.folder = folder

    def complete(self) -> None:
        """The run is left: what was done to one that was taken up, but not trained on, is written too."""
        model = self._engine.model
        if self._before and not self._begun and self.holds_folder and model is not None and model.trainer is not None:
            self._begin(model.iteration)

    def end(self) -> None:
        """The engine stops. join() waits for what is still to be written."""
        self.complete()
        if self._begun:
            self.note("closed")
        self._leave(None)

    def join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for record in self._ended:
            record.close(max(0.0, deadline - time.monotonic()))
            while record.problems:
                self._engine.notice(record.problems.popleft(), "warning", aloud=True)
            if not record.whole:
                why = "it was still being written" if record.going else "what could not be written is said above"
                self._engine.unsaved.add(record)
                self._engine.notice(f"The run's record in {record.folder} is not complete: {why}.", "error", aloud=True)

    # ------------------------------------------------------------------ what the engine tells

    def stepped(self, report: StepReport) -> None:
        """A step was taken. Most of them cost a comparison or two here."""
        if not self._begun and (self.folder is None or not self._begin(report.iteration - 1)):
            return
        record, model = self._record, self._engine.model
        assert record is not None and model is not None and model.trainer is not None
        if self._log_step(record, model.trainer, report, self._engine.seconds):
            while record.problems:
                self._engine.notice(record.problems.popleft(), "warning", aloud=True)

    def event(self, event: Event) -> None:
        """What the window hears and the record keeps."""
        engine, seconds = self._engine, self._engine.seconds
        if isinstance(event, Densified):
            from app.training.recording import log_densified

            self._tell(lambda record: log_densified(record, event, seconds))
        elif isinstance(event, Evaluated):
            assert engine.model is not None
            count, last = len(engine.model.params), event.iteration >= engine.model.options.iterations
            self._tell(lambda record: record.evaluated(
                event.iteration, seconds, psnr=event.psnr, ssim=event.ssim, gaussians=count,
                views=[{"name": name, "psnr": psnr, "ssim": ssim} for name, psnr, ssim in event.views], last=last))
        elif isinstance(event, OptionChanged) and self._begun:   # else config.json has it; some act at the start of a run only
            self._tell(lambda record: record.note("option", event.iteration, seconds, name=event.name, old=event.old,
                                                  new=event.new, live=is_live(event.name), source=event.source))
        elif isinstance(event, RunSaved):
            self._tell(lambda record: record.note("saved", event.iteration, seconds, path=event.path, reason=event.reason))
        elif isinstance(event, EngineFailed):
            self.note("failed", text=event.summary)
        elif isinstance(event, Notice) and event.level == "error":
            self.note("error", text=event.text)

    def note(self, event: str, **fields: Any) -> None:
        """A line in events.jsonl, at the iteration of now."""
        model, seconds = self._engine.model, self._engine.seconds
        if model is not None and model.trainer is not None:
            iteration = model.iteration
            self._tell(lambda record: record.note(event, iteration, seconds, **fields))

    def _tell(self, line: Callable[[RunRecord], object]) -> None:
        """To the record, or as soon as there is one: it begins with the first step."""
        if self._begun and self._record is not None:
            line(self._record)
        elif self.folder is not None:
            self._before = [*self._before[-KEPT_LINES:], line]

    def seen(self, views: list[View], *, asked: bool) -> Seen | None:
        """What an evaluation calls with each view and its render; None where no thumbnails are due."""
        record, model = self._record, self._engine.model
        if record is None or not self._begun or model is None or not views:
            return None
        iteration = model.iteration
        if not (asked or iteration >= model.options.iterations or record.wants_pictures(iteration)):
            return None
        from app.training.recording import thumbnails

        return thumbnails(record, iteration, views, white=model.options.white_background)

    def pictures(self) -> Work:
        """Part of a job, where no views are held out: thumbnails of a few training views, one a turn."""
        model = self._engine.model
        if model is None or model.trainer is None:
            return
        trainer = model.trainer
        seen = self.seen(list(trainer.views), asked=True)
        if seen is None:
            return
        names = spread([view.name for view in trainer.views], PICTURED_VIEWS)
        for index, view in enumerate(view for view in trainer.views if view.name in names):
            yield index / len(names), f"drawing {view.name} for the record"
            seen(view, trainer.render(view.camera).colors.clamp(0.0, 1.0))

    # ------------------------------------------------------------------

    def _begin(self, iteration: int) -> bool:
        """Make the folder and describe the run; where that cannot be done the run goes on without a record."""
        engine, folder, place = self._engine, self.folder, self._engine.settings.record
        assert folder is not None and engine.model is not None and engine.model.trainer is not None
        if place is not None and folder != place.folder and not self._holding.holds(folder) and folder.exists():
            folder = self.folder = Place(root=place.root).choose(engine.model.path)   # another has chosen it meanwhile
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            engine.notice(f"The run is not recorded: {folder} cannot be made ({(error.strerror or str(error)).lower()}); "
                          "training goes on, and -m names another folder.", "warning", aloud=True)
            self._leave(None)
            return False
        if not self._holding.take(folder):
            self._leave(None)
            return False
        from app.training.recording import Opening, described, log_step

        self._log_step = log_step
        settings, scene = engine.settings, engine.model.trainer.scene
        what = described(scene, Opening(settings.resolution, settings.long_side, "", settings.eval_every))
        parent, new = engine.timeline.begins()
        if self._record is None:
            self._record = RunRecord(folder, tensorboard=bool(place and place.tensorboard))
        self._record.begin(
            about(flatten(engine.config), what, backend=engine.backend, threads=settings.threads,
                  device=device_name(engine.backend)),
            branch=engine.branch, parent=parent, new=new, iteration=iteration, seconds=engine.seconds if iteration else 0.0)
        self._record.later(lambda: write_cameras_json(folder / "cameras.json", scene.views))
        if what["kind"] == "demo" and folder.parent == self._root():
            self._record.later(lambda: prune_demos(folder.parent, folder))
        self._begun, before = True, self._before
        self._before = []
        for line in before:
            line(self._record)
        return True

    def _root(self) -> Path:
        place = self._engine.settings.record
        return place.root if place is not None and place.root is not None else runs_root()
