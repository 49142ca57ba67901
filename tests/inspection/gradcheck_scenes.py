"""Problems for the gradient check: random scenes, and scenes that stand on exactly one kink."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np
import torch

from app.inspection.local_picture import Evaluation, LocalPicture, base_picture
from app.inspection.problem import Problem, random_cotangent
from render.config import RasterConfig
from render.types import Camera, GaussianParams
from tests.scenes import make_camera, make_random, params_from

GREY = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64)
"""A background that no term may forget."""


def problem_of(params: GaussianParams, camera: Camera, loss: str = "l1_ssim", *, sh_degree: int = 3, seed: int = 0,
               raster: RasterConfig | None = None) -> Problem:
    """With a random photograph, or a random cotangent for loss "cotangent"."""
    problem = Problem(params, camera, raster or RasterConfig(), sh_degree, GREY, view="test")
    if loss == "cotangent":
        return replace(problem, cotangent=random_cotangent(camera, seed))
    numbers = torch.Generator().manual_seed(seed)
    target = torch.rand(camera.height, camera.width, 3, generator=numbers, dtype=torch.float64)
    return replace(problem, loss=loss, target=target)


def random_problem(loss: str = "l1_ssim", *, n: int = 90, width: int = 50, height: int = 37, seed: int = 0,
                   raster: RasterConfig | None = None) -> Problem:
    """Every sixth Gaussian is so opaque that alpha is clamped around its mean."""
    case = make_random(n, width, height, seed, opacity=(0.05, 0.97), sigma=(1.0, 5.0))
    logits = case.params.logit_opacities.clone()
    logits[::6] = 6.5
    return problem_of(replace(case.params, logit_opacities=logits), case.camera, loss, raster=raster, seed=seed)


def visible(problem: Problem) -> list[int]:
    return torch.nonzero(base_picture(problem).output.projected.extents[:, 0] > 0).flatten().tolist()


def few(*, depths: tuple[float, ...] = (3.0,), opacities: tuple[float, ...] = (0.8,), sigmas: tuple[float, ...] = (3.0,),
        pixels: tuple[tuple[float, float], ...] = ((20.3, 14.2),), near: float = 0.01, loss: str = "mse") -> Problem:
    """Round Gaussians at given places, in the order of the arguments; the first is the one that moves."""
    camera = make_camera(40, 28, near=near)
    n = len(depths)
    params = params_from(camera, np.array(pixels), np.array(depths), np.repeat(np.array(sigmas)[:, None], 3, 1),
                         np.array(opacities), np.full((n, 3), 0.6), sh_noise=0.02, seed=1)
    return problem_of(params, camera, loss)


def with_entry(problem: Problem, group: str, component: int, x: float) -> Problem:
    tensor = getattr(problem.params, group).clone()
    tensor[0].view(-1)[component] = x
    return replace(problem, params=replace(problem.params, **{group: tensor}))


def at_flip(problem: Problem, group: str, component: int, lo: float, hi: float,
            look: Callable[[LocalPicture, Evaluation], Hashable]) -> Problem:
    """The problem with Gaussian 0's entry within 1e-9 of where look() changes, on the side of `lo`."""
    base = base_picture(problem)

    def seen(x: float) -> Hashable:
        local = LocalPicture(base, 0, whole=True)
        return look(local, local.evaluate(group, component, x))

    at_lo = seen(lo)
    assert seen(hi) != at_lo, "nothing flips between the two ends"
    while abs(hi - lo) > 1e-9:
        middle = 0.5 * (lo + hi)
        lo, hi = (middle, hi) if seen(middle) == at_lo else (lo, middle)
    return with_entry(problem, group, component, lo)


def toward_camera(problem: Problem) -> int:
    """The world axis along which depth changes most."""
    return int(np.abs(problem.camera.viewmat[2, :3]).argmax())
