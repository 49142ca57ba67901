"""The alpha-rule laboratory: the same view and loss under two rules, and two copies of the run trained on under them."""

from __future__ import annotations

import copy
from collections.abc import Generator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from app.data.scene import View
from app.inspection.rules import Comparison, Lane, Lanes, OneRule, Rule
from app.training.arrays import host
from app.training.densify.statistics import screen_gradient
from app.training.evaluate import score_view
from app.training.trainer import Trainer
from app.training.verdict import psnr_of
from app.training.views import load_target
from render import interrupt, pipeline
from render.config import RasterConfig
from render.reference.rasterize import blend, tile_lists, tile_pixels
from render.stages.ssim import photometric_loss
from render.types import Camera, GaussianParams, GradientTap, RenderOutput

Progress = tuple[float, str]
TOP = 50
"""Rows of the table of largest differences."""
TILES_A_TURN = 4


def clamped(output: RenderOutput, camera: Camera, config: RasterConfig) -> Generator[Progress, None, tuple[float, float]]:
    """(share of pixels, share of blended pairs) where opacity G exceeds alpha_max, over the tiles turn by turn."""
    detached = replace(output.projected, **{name: getattr(output.projected, name).detach()
                                            for name in ("means2d", "conics", "depths", "extents", "compensations")})
    opacities = output.splat_opacities.detach()
    across, _ = camera.tiles
    pixels = pairs = total = 0
    lists = tile_lists(detached, opacities, output.bins)
    for tile, (means2d, conics, opacity) in enumerate(lists):
        if len(means2d):
            at = tile_pixels(tile, camera, opacities)
            inside = (at[:, 0] < camera.width) & (at[:, 1] < camera.height)
            mixed = blend(means2d, conics, opacity, at, config)
            blended = (mixed.weights > 0) & inside
            over = blended & (mixed.raw > config.alpha_max)
            pixels += int(over.any(0).sum())
            pairs += int(over.sum())
            total += int(blended.sum())
        if tile % TILES_A_TURN == TILES_A_TURN - 1:
            yield tile / len(lists), "counting clamped pixels"
    return pixels / (camera.width * camera.height), pairs / max(total, 1)


def compare_rules(trainer: Trainer, view: View, first: Rule, second: Rule) -> Generator[Progress | None, None, Comparison]:
    """A job: gradients of a view's loss under two rules. Training's own gradients stay as they are.

    Raises ValueError for an alpha_max that the run's cutoff does not allow.
    """
    found: list[tuple[OneRule, Tensor, dict[str, np.ndarray]]] = []
    for place, rule in enumerate((first, second)):
        yield 0.5 * place, f"going backward with {rule.text}"
        config = rule.on(trainer.config.raster)
        while True:
            try:
                with interrupt.interruptible():
                    output, gradients, loss, psnr = _backward(trainer, view, config)
                break
            except interrupt.Interrupted:   # somebody waits for the thread; this goes on in the next turn
                yield None
        counting = clamped(output, view.camera, config)
        shares = None
        while shares is None:
            try:
                fraction, text = next(counting)
                yield 0.5 * place + 0.5 * fraction, text
            except StopIteration as end:
                shares = end.value
        found.append((OneRule(rule, loss, psnr, *shares), output.colors.detach(), gradients))
    (a, image_a, of_a), (b, image_b, of_b) = found
    values = {name: np.stack([of_a[name], of_b[name]]) for name in of_a}
    tops = {name: np.argsort(-np.abs(pair[0] - pair[1]), kind="stable")[:TOP] for name, pair in values.items()}
    return Comparison(view.name, trainer.iteration, a, b, float((image_a - image_b).abs().max()),
                      host(trainer.params.uids).copy(), values, tops)


def _backward(trainer: Trainer, view: View, config: RasterConfig
              ) -> tuple[RenderOutput, dict[str, np.ndarray], float, float]:
    """(picture, per-Gaussian gradients by quantity, loss, PSNR) of a view with copies of the parameters."""
    background = trainer.background
    params = GaussianParams(**{name: tensor.detach().clone().requires_grad_()
                               for name, tensor in trainer.params.trained().items()}, uids=trainer.params.uids)
    tap = GradientTap()
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        output = pipeline.render_params(params, view.camera, config, background=background, sh_degree=trainer.sh_degree,
                                        backend=trainer.backend, tap=tap)
        loss, terms = photometric_loss(output.colors, load_target(view, background), kind=trainer.config.loss,
                                       lambda_dssim=trainer.config.lambda_dssim, backend=trainer.backend)
        loss.backward()
    assert tap.v_means2d is not None and tap.v_opacities is not None
    means = params.means.grad
    assert means is not None
    gradients = {"mean2d": host(screen_gradient(tap.v_means2d, view.camera.width, view.camera.height)),
                 "opacity": host(tap.v_opacities), "means": host(torch.sqrt((means * means).sum(1)))}
    return output, gradients, float(loss.detach()), psnr_of(float(terms[1]))


def fork(trainer: Trainer, rule: Rule) -> Trainer:
    """A copy of the run as it is now that shares nothing with it but the photographs, under another rule."""
    trainer.settle()
    shared = {id(trainer.scene): trainer.scene, id(trainer.views): trainer.views}
    twin = copy.deepcopy(trainer, shared)
    twin.config = replace(twin.config, raster=rule.on(twin.config.raster))
    return twin


def train_lanes(trainer: Trainer, first: Rule, second: Rule, steps: int) -> Generator[Lanes | None, None, Lanes]:
    """A job: both copies take `steps` steps, one after the other, on the same views; yields what there is so far.

    The run itself does not move. Raises TrainingStopped when a lane's loss or gradient is not finite.
    """
    lanes = [fork(trainer, rule) for rule in (first, second)]
    curves = np.full((2, 2, steps), np.nan)
    held_out = [float("nan")] * 2

    def state(done: int) -> Lanes:
        a, b = (Lane(rule, curves[i, 0, :done].copy(), curves[i, 1, :done].copy(), len(lane.params), held_out[i])
                for i, (rule, lane) in enumerate(zip((first, second), lanes)))
        return Lanes(trainer.iteration, steps, done, a, b)

    for step in range(steps):
        for i, lane in enumerate(lanes):
            while True:
                try:
                    lane.step()
                    break
                except interrupt.Interrupted:   # as above
                    yield None
            lane.settle()
            curves[i, :, step] = lane.measured.loss, lane.measured.psnr
        yield state(step + 1)
    views = trainer.scene.test
    for i, lane in enumerate(lanes):
        scores = []
        for view in views:
            scores.append(score_view(lane, view).psnr)
            yield state(steps)
        held_out[i] = float(np.mean(scores)) if scores else float("nan")
    return state(steps)
