"""What a run tells its record (app/records), with a window and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from app.data.checkpoints import MAIN, Saved
from app.data.scene import Scene, View
from app.demo import demo_folder
from app.messages import Densified
from app.options import flatten
from app.records.about import about
from app.records.record import PICTURED_VIEWS, RunRecord
from app.records.thumbnails import spread
from app.training import schedule
from app.training.arrays import to_uint8
from app.training.evaluate import Evaluation, Seen
from app.training.memory import peak_rss_bytes
from app.training.trainer import StepReport, Trainer


@dataclass(frozen=True)
class Opening:
    """How the scene was opened, so that the record says how to open it again."""

    resolution: int = -1
    long_side: int = 0
    images: str = ""
    eval_every: int = 0


def described(scene: Scene, how: Opening) -> dict[str, Any]:
    """The scene of a record."""
    path = Path(scene.path).resolve()
    return {"path": str(path), "name": path.name, "kind": "demo" if path == demo_folder().resolve() else scene.kind,
            **asdict(how), "train_views": len(scene.train), "test_views": len(scene.test)}


def log_step(record: RunRecord, trainer: Trainer, report: StepReport, seconds: float) -> bool:
    """Log a step that is due, and the last of the run in any case; whether it was. `seconds` of training since its start."""
    last = report.iteration >= trainer.config.iterations
    measured = report.measured   # on a GPU, the step before
    if not last and not record.wants(measured):
        return False
    record.step(measured, seconds=seconds, loss=report.loss, l1=report.l1, psnr=report.psnr, ssim=report.ssim,
                gaussians=report.gaussians, sh_degree=trainer.sh_degree,
                means_lr=schedule.means_lr(trainer.config, measured, trainer.extent), memory=memory_bytes(trainer), last=last)
    return True


def log_densified(record: RunRecord, event: Densified, seconds: float) -> None:
    """Who was born and who died, and by which strategy; `gaussians` is their number afterwards."""
    fields = asdict(event)
    iteration, count = fields.pop("iteration"), fields.pop("count")
    record.note("densified", iteration, seconds, **fields, gaussians=count)


def memory_bytes(trainer: Trainer) -> int | None:
    """At most so far: of the GPU's memory where the run is there, else of the process."""
    return torch.cuda.max_memory_allocated() if trainer.device.type == "cuda" else peak_rss_bytes()


def thumbnails(record: RunRecord, iteration: int, views: Sequence[View], *, white: bool) -> Seen:
    """What is to be called with views and their renders: a few of `views`, the same ones each time, get a thumbnail."""
    chosen = spread([view.name for view in views], PICTURED_VIEWS)
    level = 1.0 if white else 0.0

    def seen(view: View, image: torch.Tensor) -> None:
        if view.name in chosen:
            record.picture(iteration, view.name, to_uint8(image), view.load, (level, level, level))

    return seen


class Recording:
    """The record of a run without a window, in `out`; `seconds` are those of training alone."""

    def __init__(self, out: Path, trainer: Trainer, *, threads: int, how: Opening, tensorboard: bool = False,
                 say: Callable[[str], None] = print, seconds: float = 0.0, branch: str = MAIN, parent: str = "",
                 new: bool = True) -> None:
        self._trainer, self._say = trainer, say
        self.record = RunRecord(out, tensorboard=tensorboard)
        what = about(flatten(trainer.config), described(trainer.scene, how), backend=trainer.backend, threads=threads)
        self.record.begin(what, branch=branch, parent=parent, new=new, iteration=trainer.iteration, seconds=seconds)

    def stepped(self, report: StepReport, seconds: float) -> None:
        if log_step(self.record, self._trainer, report, seconds):
            self.complain()
        if report.densified is not None:
            log_densified(self.record, report.densified, seconds)

    def complain(self) -> None:
        """Pass on what cannot be written."""
        while self.record.problems:
            self._say(self.record.problems.popleft())

    def note(self, event: str, seconds: float, **fields: object) -> None:
        self.record.note(event, self._trainer.iteration, seconds, **fields)

    def saved(self, checkpoint: Saved | None, seconds: float) -> None:
        """A checkpoint was written, or none was due."""
        if checkpoint is not None:
            self.note("saved", seconds, path=str(checkpoint.path), reason=checkpoint.reason)

    @property
    def seen(self) -> Seen:
        """For the evaluation of the held-out views."""
        trainer = self._trainer
        return thumbnails(self.record, trainer.iteration, trainer.scene.test, white=trainer.config.white_background)

    def evaluated(self, found: Evaluation, seconds: float) -> None:
        self.record.evaluated(found.iteration, seconds, psnr=found.psnr, ssim=found.ssim, lpips=found.lpips,
                              gaussians=len(self._trainer.params), views=[asdict(view) for view in found.views],
                              last=found.iteration >= self._trainer.config.iterations)

    def pictures(self) -> None:
        """Thumbnails of training views, for a scene that holds out none."""
        trainer = self._trainer
        seen = thumbnails(self.record, trainer.iteration, trainer.views, white=trainer.config.white_background)
        names = spread([view.name for view in trainer.views], PICTURED_VIEWS)
        for view in trainer.views:
            if view.name in names:
                seen(view, trainer.render(view.camera).colors.clamp(0.0, 1.0))

    def close(self) -> None:
        """Wait until all is written, and say what could not be."""
        self.record.close()
        self.complain()

    @property
    def whole(self) -> bool:
        """Whether all that was told is written; known after close()."""
        return self.record.whole
