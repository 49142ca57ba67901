"""A training run without a window: a progress bar, and files as graphdeco names them."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from app.config import TrainConfig
from app.data.atomic import write_atomic
from app.data.cameras_json import write_cameras_json
from app.data.checkpoints import Saved, is_run
from app.data.gaussians import write_gaussians
from app.data.scene import Scene, SceneError
from app.messages import Evaluated
from app.options import config_from, flatten
from app.progress import progress_bar
from app.records.about import versions
from app.records.lock import take
from app.records.place import prepare_output
from app.records.read import RESULTS, set_aside
from app.signals import terminated_politely, whole_steps
from app.training.arrays import to_arrays
from app.training.autosave import AutosaveConfig
from app.training.backend import Ready, ready_backend, set_threads, usable_cores
from app.training.checkpoint import Checkpoint
from app.training.evaluate import Evaluation, evaluate
from app.training.memory import peak_rss_bytes
from app.training.recording import Opening, Recording, described
from app.training.saving import Saver, resume
from app.training.trainer import StepReport, Trainer
from app.training.verdict import TrainingStopped

SMOOTHING = 0.05
"""Share of the newest step in the loss and PSNR that the bar shows: single views differ by several dB."""


@dataclass
class Progress:
    """The bar on stderr, with loss and PSNR smoothed over views."""

    total: int
    quiet: bool
    initial: int = 0       # iterations done before
    loss: float = math.nan
    psnr: float = math.nan
    bar: tqdm = field(init=False)

    def __post_init__(self) -> None:
        self.bar = progress_bar(self.total, unit="it", desc="training", quiet=self.quiet, initial=self.initial)

    def step(self, report: StepReport) -> None:
        for name in ("loss", "psnr") if report.measured else ():
            old, new = getattr(self, name), getattr(report, name)
            setattr(self, name, new if math.isnan(old) else old + SMOOTHING * (new - old))
        if not self.quiet:
            self.bar.set_postfix_str(f"loss {self.loss:.4f}, PSNR {self.psnr:.2f} dB, {report.gaussians:,} Gaussians",
                                     refresh=False)
        self.bar.update()


def say(sentence: str) -> None:
    """One line on stderr, above the progress bar where there is one."""
    tqdm.write(f"splatscope: {sentence}", file=sys.stderr)


def save_point_cloud(trainer: Trainer, out: Path) -> tuple[Path, int]:
    """Write point_cloud/iteration_N/point_cloud.ply; returns it and how many non-finite rows were left out (C06).

    Raises TrainingStopped when no Gaussian is finite: culled ones leave loss and gradients finite, so only here it shows.
    """
    path = out / "point_cloud" / f"iteration_{trainer.iteration}" / "point_cloud.ply"
    arrays = to_arrays(trainer.params)
    if len(arrays.means) and not np.isfinite(arrays.means).all(axis=1).any():
        raise TrainingStopped(f"No Gaussian is finite at iteration {trainer.iteration}, so nothing is saved: "
                              "train again with lower learning rates (--means_lr and the others).")
    return path, write_gaussians(path, arrays)


@terminated_politely()
def train_headless(scene: Scene, config: TrainConfig, out: Path, *, backend: str = "auto", threads: int = 0,
                   test_iterations: Collection[int] = (), save_iterations: Collection[int] = (),
                   quiet: bool = False, autosave: AutosaveConfig | None = None, resume_from: Checkpoint | None = None,
                   opening: Opening | None = None, tensorboard: bool = False) -> dict[str, Any]:
    """Train to the end and write PLY, checkpoints, cameras.json, results.json and the record under `out`; returns the results.

    `opening` says in the record how the scene was opened; `tensorboard` needs its package.

    With `resume_from` the run goes on where that checkpoint was, with the options of `config`. The last iteration is always
    saved, and evaluated when the scene has held-out views. `seconds` is training alone: loading, evaluation and saving are
    not in it. Raises SceneError for input that cannot be used. Whatever ends a run early (TrainingStopped, Ctrl-C, SIGTERM,
    a photograph that cannot be decoded) is raised after the last good parameters are saved.
    """
    prepare_output(out)
    with take(out) as held:
        ready = _ready(backend)
        threads = threads or usable_cores()
        set_threads(threads, ready.name)
        trainer, seconds, history = begin(scene, config, ready.name, resume_from)
        for sentence in [*([held.problem] if held.problem else []), *set_aside(out)]:
            say(sentence)
        how = opening or Opening()
        saver = Saver(out, autosave or AutosaveConfig(), lambda: {"scene": described(scene, how), "seconds": leg.seconds}, say,
                      resume_from)
        recording = Recording(out, trainer, threads=threads, how=how, tensorboard=tensorboard, say=say, seconds=seconds,
                              branch=saver.branch, parent=saver.parent, new=saver.new)
        leg = Leg(trainer, out, saver, recording, Progress(config.iterations, quiet, trainer.iteration), history, seconds)
        write_cameras_json(out / "cameras.json", scene.views)
        leg.run(test_iterations, save_iterations, fresh=resume_from is None)
        results = summarise(trainer, leg.evaluation, history, leg.seconds, threads, leg.progress)
        text = json.dumps(results, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_atomic(out / RESULTS, lambda stream: stream.write(text.encode()))
    if not recording.whole:
        raise SceneError(f"the run is trained and saved in {out}, but its record there is not complete: what could not be "
                         "written is said above")
    return results


@dataclass
class Leg:
    """The run from where it begins or goes on to where it ends, and who is told of its steps."""

    trainer: Trainer
    out: Path
    saver: Saver
    recording: Recording
    progress: Progress
    history: list[dict[str, float]]        # scores of the held-out views
    seconds: float                         # of training, earlier legs included
    evaluation: Evaluation | None = None   # the last
    cloud: tuple[int, Path] | None = None  # the last point cloud: of which iteration, and where
    checkpoint: Saved | None = None        # the last

    def run(self, test_iterations: Collection[int], save_iterations: Collection[int], *, fresh: bool) -> None:
        trainer = self.trainer
        try:
            if fresh and is_run(self.out):
                say(f"{self.out} has checkpoints of an earlier run, which stay; this one begins anew as {self.saver.branch}, "
                    "and --resume will mean it (--start_checkpoint FILE goes on with the other)")
                self.saver.save(trainer, "start")   # so that resuming means this run from now on
            self.say_notices()   # where the run starts from, before it does
            while trainer.iteration < trainer.config.iterations:
                self.step()
                last = trainer.iteration == trainer.config.iterations
                if last or trainer.iteration in test_iterations:
                    self.measure()
                if last or trainer.iteration in save_iterations:
                    self.keep()
            self.recording.note("finished", self.seconds)
        except BaseException as error:
            self.recording.note("stopped", self.seconds, reason=str(error) or type(error).__name__)
            self.rescue()
            raise
        finally:
            self.progress.bar.close()
            self.recording.close()

    def step(self) -> None:
        began = time.perf_counter()
        with whole_steps():
            report = self.trainer.step()
        self.seconds += time.perf_counter() - began
        self.progress.step(report)
        self.saver.stepped(report)
        self.saved(self.saver.save_if_due(self.trainer))
        self.recording.stepped(report, self.seconds)
        self.say_notices()

    def say_notices(self) -> None:
        while self.trainer.notices:
            say(self.trainer.notices.popleft())

    def measure(self) -> None:
        """Scores of the held-out views, at the end with LPIPS; where none are held out the record gets thumbnails at least."""
        trainer = self.trainer
        trainer.settle()
        if not trainer.scene.test:
            self.recording.pictures()
            return
        last = trainer.iteration == trainer.config.iterations
        found = self.evaluation = evaluate(trainer, with_lpips=last, seen=self.recording.seen)
        self.recording.evaluated(found, self.seconds)
        self.saver.event(Evaluated(found.iteration, found.psnr, found.ssim,
                                   tuple((view.name, view.psnr, view.ssim) for view in found.views)))
        self.history.append({"iteration": trainer.iteration, "psnr": found.psnr, "ssim": found.ssim})
        if not last:
            say(f"iteration {trainer.iteration}: held-out PSNR {found.psnr:.2f} dB, SSIM {found.ssim:.4f}")

    def keep(self) -> None:
        """Write the point cloud and a checkpoint of this iteration."""
        trainer = self.trainer
        trainer.settle()
        path, dropped = save_point_cloud(trainer, self.out)
        self.cloud = trainer.iteration, path
        self.recording.note("saved", self.seconds, path=str(path), gaussians=len(trainer.params) - dropped)
        if dropped:
            say(f"{dropped:,} Gaussians were not finite and are not in {path}")
        reason = "end" if trainer.iteration == trainer.config.iterations else "user"
        self.saved(self.saver.save(trainer, reason))

    def saved(self, checkpoint: Saved | None) -> None:
        """A checkpoint was written, or none was due."""
        self.checkpoint = checkpoint or self.checkpoint
        self.recording.saved(checkpoint, self.seconds)

    def rescue(self) -> None:
        """Save what a run that ends early has reached, and say where; a failure here must not hide why it ended. What is on
        disk of this iteration already is not given up for it: an older file stays where a new one cannot be written."""
        trainer = self.trainer
        if not trainer.iteration:
            return
        onward = "; --resume goes on from there"
        try:
            self.saver.save(trainer, "stop")
        except Exception as error:
            if self.checkpoint is None or self.checkpoint.iteration != trainer.iteration:
                onward = ""
                say(f"no checkpoint of iteration {trainer.iteration} could be saved ({error})")
        try:
            if self.cloud is not None and self.cloud[0] == trainer.iteration:
                path = self.cloud[1]
            else:
                path, _ = save_point_cloud(trainer, self.out)
        except Exception as error:
            say(f"the parameters of iteration {trainer.iteration} could not be saved ({error})")
        else:
            say(f"the parameters of iteration {trainer.iteration} are saved in {path}{onward}")


def _ready(backend: str) -> Ready:
    """The backend, built; what there is to say of it is said. Raises SceneError."""
    try:
        ready = ready_backend(backend)
    except ValueError as error:
        raise SceneError(f"{error}; --backend reference runs everywhere, slowly") from None
    if ready.sentence:
        say(ready.sentence)
    return ready


def begin(scene: Scene, config: TrainConfig, backend: str, found: Checkpoint | None
          ) -> tuple[Trainer, float, list[dict[str, float]]]:
    """(trainer, seconds trained so far, evaluations so far) of a new run, or of one that goes on.

    Raises SceneError for a checkpoint that does not fit the scene, or whose run has already ended.
    """
    if found is None:
        return Trainer(scene, config, backend=backend), 0.0, []
    if found.state.iteration >= config.iterations:
        raise SceneError(f"the run is at iteration {found.state.iteration:,} of {config.iterations:,}, so nothing is left to "
                         "train: give more with --iterations")
    trainer = Trainer(scene, config, backend=backend, params=found.state.params())
    before = flatten(config_from(found.state.meta.get("config", {}))[0])
    changes = {path: value for path, value in flatten(config).items() if value != before[path]}
    for sentence in resume(trainer, found, changes):
        say(sentence)
    say(f"resumed at iteration {trainer.iteration:,} from {found.path}" if found.path else
        f"resumed at iteration {trainer.iteration:,}")
    return trainer, float(found.extra.get("seconds", 0.0)), list(found.extra.get("history", []))


def summarise(trainer: Trainer, evaluation: Evaluation | None, history: list[dict[str, float]], seconds: float,
              threads: int, progress: Progress) -> dict[str, Any]:
    """What results.json holds; what could not be measured is null, with the reason beside it."""
    results: dict[str, Any] = {"psnr": None, "ssim": None, "lpips": None, "views": []}
    if evaluation is None:
        results["reason"] = "no held-out views: use --eval, or the scene is too small to hold any out"
    else:
        views = [asdict(view) for view in evaluation.views]
        results |= {"psnr": evaluation.psnr, "ssim": evaluation.ssim, "lpips": evaluation.lpips, "views": views}
        if evaluation.lpips is None:
            results["lpips_reason"] = evaluation.lpips_missing
            for view in views:
                del view["lpips"]
    return results | {
        "history": history,
        "train_loss": progress.loss, "train_psnr": progress.psnr,
        "iterations": trainer.iteration, "seconds": seconds,
        "iterations_per_second": trainer.iteration / seconds if seconds else None,
        "gaussians": len(trainer.params), "peak_rss_bytes": peak_rss_bytes(),
        "backend": trainer.backend, "threads": threads, "seed": trainer.config.seed,
        "train_views": len(trainer.views), "test_views": len(trainer.scene.test),
        "versions": versions(),
    }
