"""What a strategy may learn of the Gaussians in the training views: how much each paints, and where the picture is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from app.data.scene import View
from app.training.arrays import host
from app.training.views import load_target
from render import pipeline
from render.stages.ssim import photometric_loss

if TYPE_CHECKING:
    from app.training.trainer import Trainer

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Grey of a colour (ITU-R BT.601)."""
LOSS_WEIGHT, EDGE_WEIGHT = 50.0, 50.0
"""Shares of the error and of the edges in the weight of a pixel (the published coefficients)."""


@dataclass(frozen=True)
class Seen:
    """One view; arrays have a row per Gaussian, 0 where it is not in the picture."""

    loss: float              # L1 and SSIM as in training
    visible: np.ndarray      # [N] bool
    depths: np.ndarray       # [N] camera z
    radii: np.ndarray        # [N] px
    blend: np.ndarray        # [N] sum of its weights w over the pixels
    spread: np.ndarray       # [N] px: sum of w times the distance from its mean, root mean square
    saliency: np.ndarray     # [N] sum of w times the pixel's weight


class Survey:
    """Looks at the run's Gaussians in its training views."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __len__(self) -> int:
        return len(self._trainer.views)

    def see(self, index: int) -> Seen:
        """Training view `index`, with the Gaussians as they are."""
        trainer = self._trainer
        view, gaussians = trainer.views[index], trainer.gaussians()
        target = load_target(view, trainer.background)
        picture = trainer.render(view.camera)
        loss, _ = photometric_loss(picture.colors, target, kind=trainer.config.loss, lambda_dssim=trainer.config.lambda_dssim,
                                   backend=trainer.backend)
        weights = LOSS_WEIGHT * stretched(error_map(host(picture.colors), host(target))) + EDGE_WEIGHT * stretched(
            edges(host(target)))
        maps = np.stack([weights, np.ones_like(weights), np.zeros_like(weights)], axis=2)
        # As in the quantity "contribution": the derivative of a weighted sum of all pixels by one Gaussian's colour is the
        # sum of its weights w there, each times the pixel's own.
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            numbers = torch.zeros((len(gaussians), 3), device=trainer.device, requires_grad=True)
            output = pipeline.render(gaussians, view.camera, trainer.config.raster, background=trainer.background,
                                     sh_degree=trainer.sh_degree, backend=trainer.backend, colors=numbers)
            sums, = torch.autograd.grad((output.colors * torch.from_numpy(maps).to(trainer.device)).sum(), numbers)
        projected = picture.projected
        extents, conics = host(projected.extents), host(projected.conics).astype(np.float64)
        visible, sums = extents[:, 0] > 0, host(sums)
        a, b, c = conics.T
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (a + c) / (a * c - b * b)   # trace of the covariance: E |d|^2 under the ellipse's own weights
        variance = np.where(visible & np.isfinite(variance) & (variance > 0), variance, 0.0)
        blend = np.where(visible, sums[:, 1], 0.0)
        return Seen(float(loss), visible, np.where(visible, host(projected.depths), 0.0), extents.max(axis=1), blend,
                    blend * np.sqrt(variance), np.where(visible, sums[:, 0], 0.0))

    def name(self, index: int) -> str:
        view: View = self._trainer.views[index]
        return view.name


def error_map(picture: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[H,W] mean over channels of the absolute error."""
    return np.abs(picture - target).mean(axis=2, dtype=np.float32)


def edges(target: np.ndarray) -> np.ndarray:
    """[H,W]: 8 times the grey of a pixel less that of its neighbours, held inside 0 to 1; 0 at the rim."""
    grey = np.round((target * 255.0) @ LUMA)   # as the published code takes them: in whole steps of 1/255
    found = np.zeros_like(grey)
    h, w = grey.shape
    around = sum(grey[1 + dy:h - 1 + dy, 1 + dx:w - 1 + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)) if min(h, w) > 2 else 0
    found[1:-1, 1:-1] = np.clip(9.0 * grey[1:-1, 1:-1] - around, 0.0, 255.0)
    return found / np.float32(255.0)


def stretched(values: np.ndarray) -> np.ndarray:
    """Linearly to 0 ... 1; all 0 where they are all the same."""
    lo, hi = float(values.min()), float(values.max())
    return (values - np.float32(lo)) / np.float32(hi - lo) if hi > lo else np.zeros_like(values)
