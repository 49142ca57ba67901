"""Held-out views measured: PSNR, SSIM, and LPIPS where its package and weights are at hand."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from app.data.scene import View
from app.training.trainer import Trainer
from app.training.verdict import psnr_of
from app.training.views import load_target
from render import interrupt
from render.stages.ssim import photometric_loss

LPIPS_BACKBONE = "vgg16-397923af.pth"
"""torchvision's file name of the weights that LPIPS (VGG), as graphdeco reports it, is computed with."""

Metric = Callable[[Tensor, Tensor], float]
Seen = Callable[[View, Tensor], None]
"""Told of each view and its render [H,W,3] in [0,1]."""


@dataclass(frozen=True)
class ViewScore:
    name: str
    psnr: float
    ssim: float
    lpips: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """Scores of views at an iteration; the means are over views, NaN where there is none."""

    iteration: int
    views: tuple[ViewScore, ...]
    lpips_missing: str | None = None   # why there is no LPIPS

    @property
    def psnr(self) -> float:
        return statistics.fmean(view.psnr for view in self.views) if self.views else math.nan

    @property
    def ssim(self) -> float:
        return statistics.fmean(view.ssim for view in self.views) if self.views else math.nan

    @property
    def lpips(self) -> float | None:
        known = [view.lpips for view in self.views if view.lpips is not None]
        return statistics.fmean(known) if known else None


def find_lpips() -> tuple[Metric | None, str | None]:
    """(the metric, None), or (None, why there is none). Nothing is downloaded."""
    try:
        import lpips  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None, "the package lpips is not installed"
    weights = Path(torch.hub.get_dir()) / "checkpoints" / LPIPS_BACKBONE
    if not weights.exists():
        return None, f"the weights {LPIPS_BACKBONE} are not in torch's hub folder"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's deprecations are not the user's
        net = lpips.LPIPS(net="vgg", verbose=False).eval()

    def measure(image: Tensor, target: Tensor) -> float:
        pair = [t.permute(2, 0, 1)[None].cpu() * 2.0 - 1.0 for t in (image, target)]
        with torch.no_grad():
            return float(net(*pair))

    return measure, None


@torch.no_grad()
def score_view(trainer: Trainer, view: View, lpips: Metric | None = None, seen: Seen | None = None) -> ViewScore:
    """Render a view as training would and compare; colours are clamped to [0,1] first."""
    output = trainer.render(view.camera)
    image, target = output.colors.clamp(0.0, 1.0), load_target(view, trainer.background)
    _, terms = photometric_loss(image, target, kind="l1_ssim", lambda_dssim=0.2, backend=trainer.backend)
    _, mse, ssim = terms.tolist()
    if seen is not None:
        seen(view, image)
    return ViewScore(view.name, psnr_of(mse), ssim, lpips(image, target) if lpips else None)


def evaluation_job(trainer: Trainer, views: Sequence[View], *, with_lpips: bool = False, seen: Seen | None = None
                   ) -> Generator[tuple[float, str] | None, None, Evaluation]:
    """A job to be advanced turn by turn: yields (fraction done, what comes next), returns the Evaluation.

    Each turn decodes, or renders and compares, one view. The Gaussians must not change while it runs.
    """
    metric, missing = find_lpips() if with_lpips else (None, "not asked for")
    iteration = trainer.iteration
    scores: list[ViewScore] = []
    for i, view in enumerate(views):
        yield i / len(views), f"evaluating {view.name}"
        view.load()  # decoding has a turn of its own; the picture stays in the scene's cache
        yield (i + 0.5) / len(views), f"evaluating {view.name}"
        while True:
            try:
                with interrupt.interruptible():
                    scores.append(score_view(trainer, view, metric, seen))
                break
            except interrupt.Interrupted:   # somebody waits for the thread; the view is measured in the next turn
                yield None
    return Evaluation(iteration, tuple(scores), missing)


def evaluate(trainer: Trainer, views: Sequence[View] | None = None, *, with_lpips: bool = False,
             seen: Seen | None = None) -> Evaluation:
    """The whole evaluation at once, of the held-out views unless others are given."""
    job = evaluation_job(trainer, trainer.scene.test if views is None else views, with_lpips=with_lpips,
                         seen=seen)
    while True:
        try:
            next(job)
        except StopIteration as end:
            return end.value
