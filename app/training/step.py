"""One step in its parts: gradients of the next view (or views), the optimiser, what the strategy does then (F05)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from app.data.scene import SceneError
from app.training import schedule
from app.training.densify.base import ViewGradients
from app.training.judge import Judge
from app.training.verdict import Measured, TrainingStopped, first_bad
from app.training.views import load_target
from render import interrupt, pipeline, timing
from render.backends import cuda
from render.stages.ssim import photometric_loss
from render.types import GradientTap, RenderOutput

if TYPE_CHECKING:
    from app.training.trainer import Trainer

Phase = Literal["", "backward", "update"]
"""What the step under way has done so far: nothing, found its gradients, or also moved the parameters by them."""


class Stepping:
    """The step that a trainer is at. Between two steps `phase` is empty."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.phase: Phase = ""
        self.indices: list[int] = []         # views of the step under way, or of the last one
        self.first_unborn = 1 << 62          # uid that was to be given out next when the last update was made
        self.judge = Judge()
        self._ok: Tensor | None = None       # [1] on a GPU: 0 = the gradients of the step under way are not finite

    # ------------------------------------------------------------------ the parts

    @torch.no_grad()
    def forward(self) -> tuple[str, Measured]:
        t = self._trainer
        with interrupt.interruptible():
            index, iteration = t.order.peek(), t.iteration + 1
            _, loss, terms = self._compare(index, self._degree(iteration), None)
        return t.views[index].name, Measured(iteration, float(loss), *terms.tolist())

    def find_gradients(self) -> None:
        t = self._trainer
        iteration, degree = t.iteration + 1, self._degree(t.iteration + 1)
        indices, views, terms = [], [], []
        try:
            with interrupt.interruptible():
                for _ in range(t.config.micro_batch):
                    indices.append(t.order.next())
                    seen, numbers = self._backward(indices[-1], degree, iteration)
                    views.append(seen)
                    terms.append(numbers)
            gradients = self._collect_gradients(degree)
        except BaseException as error:
            self._clear_gradients()  # of the views before the one that failed
            if not isinstance(error, (SceneError, OSError)):   # a photograph that cannot be read is passed over
                t.order.put_back(indices)   # nothing has changed: the same views come again, in a replay too
            raise
        try:
            self._ok = self._check(iteration, gradients, terms, t.views[indices[-1]].name)
        except TrainingStopped:
            t.order.put_back(indices)
            raise
        gradients = t.strategy.regularise(t.state, gradients, t.config)
        for seen in views:
            t.strategy.after_backward(t.state, replace(seen, ok=self._ok), t.config)
        t.keep(indices[-1], views, gradients)
        self.phase, self.indices = "backward", indices

    def update(self) -> None:
        """Move the parameters by the gradients that the registry holds."""
        t = self._trainer
        iteration, rows = t.iteration + 1, t.state.rows
        assert t.last_config is not None
        t.last_config = replace(t.config, raster=t.last_config.raster)
        extents = rows.get("last.union")
        t.state.optimizer.step(t.gradients(), schedule.learning_rates(t.config, iteration, t.extent),
                               eps=t.config.adam_eps, backend=t.backend, settings=t.config.optimizer, ok=self._ok,
                               extents=(rows["last.extents"] if extents is None else extents)
                               if t.config.sparse_adam else None)
        self._ok, self.first_unborn = None, t.lineage.next_uid
        self.phase = "update"

    # ------------------------------------------------------------------ gradients

    def _degree(self, iteration: int) -> int:
        """The SH degree that a step is taken with."""
        t = self._trainer
        degree = t.schedule.sh_degree(iteration, math.isqrt(t.state.rows["shN"].shape[1] + 1) - 1)
        return min(degree, t.config.sh_degree)

    def _compare(self, index: int, degree: int, tap: GradientTap | None) -> tuple[RenderOutput, Tensor, Tensor]:
        """(picture, loss, [3] = l1, mse, ssim) of a view."""
        t = self._trainer
        view, config, background = t.views[index], t.config, t.background
        output = pipeline.render_params(t.params, view.camera, config.raster, background=background, sh_degree=degree,
                                        backend=t.backend, tap=tap)
        self.stop_if_failed()   # what is behind the number of tile intersections was read with it
        loss, terms = photometric_loss(output.colors, load_target(view, background), kind=config.loss,
                                       lambda_dssim=config.lambda_dssim, backend=t.backend)
        return output, loss, terms

    def _backward(self, index: int, degree: int, iteration: int) -> tuple[ViewGradients, Tensor]:
        """Render one view and send its loss backward; gradients add up in the parameters' .grad.

        The second result is [4] = loss, l1, mse, ssim, where the renderer has them.
        """
        t = self._trainer
        view, tap = t.views[index], GradientTap(absolute=t.strategy.wants_absolute(t.config))
        output, loss, terms = self._compare(index, degree, tap)
        numbers = torch.cat([loss.detach().reshape(1), terms])
        if not t.deferred and not math.isfinite(float(loss.detach())):
            raise TrainingStopped(_no_loss(iteration, view.name, float(loss.detach())))
        with timing.measure("backward"):
            loss.backward()
        return ViewGradients(tap, output.projected.extents.detach(), view.camera, t.state.rows.generation), numbers

    def _collect_gradients(self, degree: int) -> dict[str, Tensor]:
        """The mean over the step's views, taken out of .grad. Bands not in use have none."""
        gradients: dict[str, Tensor] = {}
        batch = self._trainer.config.micro_batch
        for name, tensor in self._trainer.params.trained().items():
            gradient, tensor.grad = tensor.grad, None
            if gradient is None or (name == "shN" and degree == 0):
                continue
            gradients[name] = gradient * (1.0 / batch) if batch > 1 else gradient
        return gradients

    def _clear_gradients(self) -> None:
        for tensor in self._trainer.params.trained().values():
            tensor.grad = None

    # ------------------------------------------------------------------ is it finite

    def _check(self, iteration: int, gradients: dict[str, Tensor], terms: list[Tensor], view: str) -> Tensor | None:
        """Stop before Adam when a gradient is not finite; on a GPU the [1] flag that makes Adam stand still instead."""
        if self._trainer.deferred:
            return self.judge.ask(iteration, gradients, terms)
        bad = first_bad(gradients)
        if bad is not None:
            raise TrainingStopped(self._bad_gradient(iteration, view, *bad))
        self.judge.take(iteration, terms)
        return None

    def settle(self) -> None:
        if self._trainer.deferred:
            cuda.later.settle()
            self.stop_if_failed()

    def stop_if_failed(self) -> None:
        """Adam and the statistics stood still on the device in the step that failed; the rest is taken back here."""
        t, judge = self._trainer, self.judge
        if not judge.failed:
            return
        iteration, judge.failed = judge.failed, 0
        if t.iteration >= iteration:   # else its update was not made yet
            t.iteration = iteration - 1
            t.state.optimizer.take_back()
        self.phase = ""
        view = t.views[t.last_view_index or 0].name
        if not math.isfinite(judge.failed_loss):
            raise TrainingStopped(_no_loss(iteration, view, judge.failed_loss))
        raise TrainingStopped(self._bad_gradient(iteration, view, *(first_bad(t.gradients()) or ("shN", 0, 0))))

    def _bad_gradient(self, iteration: int, view: str, name: str, count: int, row: int) -> str:
        return (f"Training stopped at iteration {iteration}: the gradient of {name} is not finite for {count:,} Gaussians "
                f"(first: uid {int(self._trainer.params.uids[row])}) in view {view}; "
                f"the parameters are those of iteration {iteration - 1}.")


def _no_loss(iteration: int, view: str, loss: float) -> str:
    return (f"Training stopped at iteration {iteration}: the loss of view {view} is {loss}; "
            f"the parameters are those of iteration {iteration - 1}.")
