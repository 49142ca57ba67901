"""What a gradient is taken of: Gaussians, a view, the rules and the scalar at the end. And the gradient that is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from render import interrupt, pipeline
from render.backends import cpu
from render.config import RasterConfig
from render.reference.ssim import WINDOW
from render.reference.ssim import ssim_map as reference_ssim_map
from render.stages.ssim import photometric_loss
from render.types import Camera, GaussianParams

SSIM_REACH = WINDOW // 2
"""px: a pixel of the SSIM map reads its picture so far around."""
MARGIN = 2 * SSIM_REACH
"""px around changed pixels that have to be known for the loss there: the map's pixels within SSIM_REACH change, and read
the picture within SSIM_REACH of themselves. Farther map pixels of a crop are wrong at its rim, by a constant."""


@dataclass(frozen=True)
class Problem:
    """Tensors are on the CPU and detached. `target` [H,W,3] float64 is the photograph of "l1_ssim" and "mse";
    `cotangent` [H,W,3] float64 replaces the loss by sum(cotangent * picture)."""

    params: GaussianParams
    camera: Camera
    raster: RasterConfig
    sh_degree: int
    background: Tensor              # [3] float64
    loss: str = "l1_ssim"
    lambda_dssim: float = 0.2
    target: Tensor | None = None
    cotangent: Tensor | None = None
    view: str = ""

    @property
    def loss_name(self) -> str:
        return "cotangent" if self.cotangent is not None else self.loss

    @property
    def pixels(self) -> int:
        """Numbers in the picture, over which the loss is a mean."""
        return 3 * self.camera.width * self.camera.height

    @property
    def has_l1(self) -> bool:
        return self.cotangent is None and self.loss == "l1_ssim"


def random_cotangent(camera: Camera, seed: int) -> Tensor:
    """[H,W,3] float64, standard normal over the number of values, so that the scalar is of a loss's size."""
    numbers = torch.Generator().manual_seed(seed)
    shape = (camera.height, camera.width, 3)
    return torch.randn(shape, generator=numbers, dtype=torch.float64) / (3 * camera.width * camera.height)


def converted(params: GaussianParams, dtype: torch.dtype, device: torch.device | None = None) -> GaussianParams:
    """Detached copies in another precision: float32 values are exact in float64."""
    return GaussianParams(**{name: tensor.detach().to(device or tensor.device, dtype, copy=True)
                             for name, tensor in params.trained().items()}, uids=params.uids)


def evaluator() -> str:
    """The backend that finite differences are rendered with, always in float64: the kernels where they can be built."""
    return "cpu" if cpu.available() else "reference"


def whole_loss(problem: Problem, picture: Tensor, backend: str) -> Tensor:
    """The scalar of a whole picture [H,W,3], differentiable, as training computes it on that backend."""
    if problem.cotangent is not None:
        return (problem.cotangent.to(picture) * picture).sum()
    assert problem.target is not None
    return photometric_loss(picture, problem.target.to(picture), kind=problem.loss, lambda_dssim=problem.lambda_dssim,
                            backend=backend)[0]


@dataclass(frozen=True)
class LocalLoss:
    """The part of the scalar that the pixels of a box depend on. It differs from the whole by a constant, as long as
    pixels change only where they are MARGIN px inside the box, or its edge is the picture's."""

    problem: Problem
    box: tuple[int, int, int, int]   # left, top, width, height px

    def _cut(self, image: Tensor) -> Tensor:
        left, top, width, height = self.box
        return image[top:top + height, left:left + width].contiguous()

    @property
    def share(self) -> float:
        return 3 * self.box[2] * self.box[3] / self.problem.pixels

    def value(self, picture: Tensor) -> float:
        """Of the box's picture [h,w,3] float64, with the product's own loss."""
        problem = self.problem
        if problem.cotangent is not None:
            return float((self._cut(problem.cotangent) * picture).sum())
        assert problem.target is not None
        with torch.no_grad():
            loss, _ = photometric_loss(picture, self._cut(problem.target), kind=problem.loss,
                                       lambda_dssim=problem.lambda_dssim, backend=evaluator())
        return float(loss) * self.share

    def magnitude(self, picture: Tensor, value: float) -> float:
        """Sum of the absolute values of what is added up for a value, on which its rounding depends."""
        if self.problem.cotangent is not None:
            return float((self._cut(self.problem.cotangent) * picture).abs().sum())
        return abs(value) + (self.problem.lambda_dssim * self.share if self.problem.loss == "l1_ssim" else 0.0)

    def signs(self, picture: Tensor) -> Tensor | None:
        """[h,w,3] sign of picture minus photograph, on which L1's gradient depends; None for other losses."""
        if not self.problem.has_l1:
            return None
        assert self.problem.target is not None
        return torch.sign(picture - self._cut(self.problem.target))

    def smooth(self, picture: Tensor, signs: Tensor | None) -> Tensor:
        """The same in plain PyTorch, with |picture - photograph| replaced by signs * (picture - photograph)."""
        problem = self.problem
        if problem.cotangent is not None:
            return (self._cut(problem.cotangent) * picture).sum()
        assert problem.target is not None
        target = self._cut(problem.target)
        if signs is None:
            return ((picture - target) ** 2).sum() / problem.pixels
        weight = problem.lambda_dssim
        l1, similarity = (signs * (picture - target)).sum(), reference_ssim_map(picture, target).sum()
        return ((1 - weight) * l1 - weight * similarity) / problem.pixels


def analytic_gradients(problem: Problem, backend: str, dtype: torch.dtype) -> Mapping[str, Tensor]:
    """dL/d raw parameter by group, as a training step on `backend` computes it, in `dtype`; float64 on the CPU.

    May be given up (render.interrupt.Interrupted). What lies outside `sh_degree` has no entry, or zeros.
    """
    device = pipeline.device_of(backend)
    params = converted(problem.params, dtype, device).requires_grad_()
    with interrupt.interruptible(), torch.autograd.set_multithreading_enabled(False):
        output = pipeline.render_params(params, problem.camera, problem.raster, sh_degree=problem.sh_degree, backend=backend,
                                        background=problem.background.to(device, dtype))
        loss = whole_loss(problem, output.colors, backend)
        if loss.requires_grad:
            loss.backward()
    return {name: tensor.grad.detach().cpu().double() for name, tensor in params.trained().items() if tensor.grad is not None}


def in_float64(problem: Problem) -> Problem:
    return replace(problem, params=converted(problem.params, torch.float64))
