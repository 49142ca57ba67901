"""One training run: take a view, render it, compare, go backward, step, densify. Everything in the order of F05."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.config import StrategyName, TrainConfig
from app.data.orient import scene_extent
from app.data.scene import Scene, SceneError, View
from app.messages import Densified
from app.training import schedule
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.base import DensifyRecord, Strategy, TrainState, ViewGradients
from app.training.densify.lineage import Lineage
from app.training.densify.none import NoDensification
from app.training.densify.statistics import GradientStatistics
from app.training.init import Progress, initial_params
from app.training.memory import available_bytes, default_cap
from app.training.optimizer import Adam
from app.training.rows import Rows
from app.training.views import ViewOrder, load_target
from render import interrupt, pipeline, timing
from render.stages.activate import activate
from render.stages.ssim import photometric_loss
from render.types import PARAM_GROUPS, GaussianParams, Gaussians, GradientTap, RenderOutput

STRATEGIES: dict[StrategyName, type[Strategy]] = {"adc": AdaptiveDensityControl, "none": NoDensification}
TAP_FIELDS = ("v_means2d", "v_abs_means2d", "v_conics", "v_colors", "v_opacities")


class TrainingStopped(RuntimeError):
    """A loss or gradient was not finite. The parameters are those of before the step (N16)."""


@dataclass(frozen=True)
class StepReport:
    """What one step did. `loss`, `l1`, `ssim` and `psnr` are means over the step's views, before the update."""

    iteration: int
    loss: float
    psnr: float
    l1: float
    ssim: float
    gaussians: int
    view_name: str
    densified: Densified | None
    stage_ms: dict[str, float]


def psnr_of(mse: float) -> float:
    """Peak signal-to-noise ratio in dB of a mean squared error, for a peak of 1."""
    return -10.0 * math.log10(max(mse, 1e-12))


class Trainer:
    """Trains `scene` (its training split) from `params`, or from its points, or from random ones.

    `progress` is called while the first Gaussians are placed; an exception raised in it ends that.
    `notices` collects sentences for the user; whoever runs the trainer takes them out.
    Raises SceneError when the scene has no view to train on (D22).
    """

    def __init__(self, scene: Scene, config: TrainConfig, *, backend: str = "auto",
                 params: GaussianParams | None = None, progress: Progress | None = None) -> None:
        self.scene = scene
        self.config = config
        self.views: Sequence[View] = scene.train
        if not self.views:
            raise SceneError(f"{scene.path}: no view is left to train on; "
                             "check that the image files are there and named as in the model")
        self.notices: deque[str] = deque(maxlen=1000)
        self.backend = pipeline.resolve_backend(backend)
        self.device = torch.device("cuda" if self.backend == "cuda" else "cpu")
        self.extent = config.extent or self._measure_extent()
        if params is None:
            params, notice = initial_params(scene.points, self.views, sh_degree=config.sh_degree, device=self.device,
                                            init_points=config.init_points, seed=config.seed, progress=progress)
            if notice:
                self.notices.append(notice)
        self.iteration = 0
        self.last_view_index: int | None = None
        self.last_camera = None
        self.tap: GradientTap | None = None
        self.records: deque[DensifyRecord] = deque(maxlen=256)
        self.strategy: Strategy = STRATEGIES[config.densify.strategy]()
        self.schedule = schedule.resolve(config)
        self._order = ViewOrder(len(self.views), config.seed)
        self._warned: set[str] = set()
        self._activated: Gaussians | None = None
        self._start(params)

    def _start(self, params: GaussianParams) -> None:
        rows = Rows(params)
        self.state = TrainState(
            rows=rows, optimizer=Adam(rows), lineage=Lineage(rows["uids"].cpu().numpy()),
            rng=np.random.default_rng([self.config.seed, 2]), extent=self.extent, cap=self.cap,
            activate=self.gaussians, warn=self._warn)
        if self.cap < len(rows):
            self._warn(f"The run starts with {len(rows):,} Gaussians, more than the cap of {self.cap:,}: "
                       "none will be added.")
        self.statistics = GradientStatistics(rows)

    # ------------------------------------------------------------------ what there is to see

    @property
    def params(self) -> GaussianParams:
        """The raw parameters; a new object after every densification."""
        return self.state.rows.params

    @property
    def lineage(self) -> Lineage:
        return self.state.lineage

    @property
    def cap(self) -> int:
        """The largest number of Gaussians there may be."""
        if self.config.densify.cap:
            return self.config.densify.cap
        if not hasattr(self, "_memory_cap"):
            self._memory_cap = default_cap(available_bytes())
        return self._memory_cap

    @property
    def sh_degree(self) -> int:
        """The SH degree in use now."""
        highest = math.isqrt(self.params.shN.shape[1] + 1) - 1
        return self.schedule.sh_degree(self.iteration, min(highest, self.config.sh_degree))

    @property
    def background(self) -> Tensor:
        """[3] colour behind everything."""
        return torch.full((3,), 1.0 if self.config.white_background else 0.0, device=self.device)

    def gaussians(self) -> Gaussians:
        """The activated Gaussians as they are now, without gradients; kept until they change."""
        if self._activated is None:
            with torch.no_grad():
                self._activated = activate(self.params, self.backend)
        return self._activated

    @property
    def last_extents(self) -> Tensor | None:
        """[N,2] px in the last view, 0 = was not in it; None before the first step."""
        return self.state.rows.get("last.extents")

    def gradients(self) -> dict[str, Tensor]:
        """dL/d raw parameter of the last step by group; empty before the first. Born rows have zeros."""
        rows = self.state.rows
        return {name: rows[f"grad.{name}"] for name in PARAM_GROUPS if f"grad.{name}" in rows}

    @torch.no_grad()
    def render(self, camera, **kw: Any) -> RenderOutput:
        """Render the Gaussians as they are; keywords go to render.pipeline.render and win over the run's settings."""
        settings: dict[str, Any] = dict(background=self.background, sh_degree=self.sh_degree, backend=self.backend)
        config = kw.pop("config", self.config.raster)
        gaussians = kw.pop("gaussians", None) or self.gaussians()
        return pipeline.render(gaussians, camera, config, **(settings | kw))

    def set_option(self, path: str, value: Any) -> bool:
        """Replace one configuration field, named as "iterations" or "densify.absgrad"; it acts in the next step.

        Returns False for a field that only acts at the start of a run. Raises ValueError for a path there is not.
        """
        *groups, name = path.split(".")
        owners: list[Any] = [self.config]
        for group in groups:
            owners.append(getattr(owners[-1], group, None))
        named = {f.name: f for f in dataclasses.fields(owners[-1])} if dataclasses.is_dataclass(owners[-1]) else {}
        if name not in named:
            raise ValueError(f"there is no option {path!r}")
        for key, owner in zip((name, *reversed(groups)), reversed(owners), strict=True):
            value = dataclasses.replace(owner, **{key: value})
        self.config = value
        self._apply(path)
        return bool(named[name].metadata.get("live", True))

    def set_backend(self, name: str) -> None:
        """Go on with another backend from the next step on. Raises ValueError for one that cannot run here."""
        self.backend = pipeline.resolve_backend(name)
        self._activated = None

    def _apply(self, path: str) -> None:
        self.schedule = schedule.resolve(self.config)
        self.state.cap = self.cap
        if path == "extent":
            self.extent = self.state.extent = self.config.extent or self._measure_extent()
        if path == "densify.strategy":
            self.strategy = STRATEGIES[self.config.densify.strategy]()
        if path == "densify.absgrad":
            self.statistics.clear()  # half of one statistic and half of the other would be neither
        if path in ("iterations", "schedule_iterations"):
            self.notices.append(schedule.window_moves(self.config))

    # ------------------------------------------------------------------ one step

    def step(self) -> StepReport:
        """Train on the next view (or the next `micro_batch` views).

        Raises TrainingStopped, with nothing changed, when the loss or a gradient is not finite, and
        interrupt.Interrupted when the step was given up before the optimiser: the next one takes the same views.
        """
        # one backward thread: the tap is filled in order, and small graphs gain nothing from more
        with torch.autograd.set_multithreading_enabled(False), timing.step() as stage_ms:
            return self._step(stage_ms)   # whose figures are there when the block has ended

    def _step(self, stage_ms: dict[str, float]) -> StepReport:
        iteration = self.iteration + 1
        rows = self.state.rows
        degree = self.schedule.sh_degree(iteration, math.isqrt(rows["shN"].shape[1] + 1) - 1)
        degree = min(degree, self.config.sh_degree)
        indices, views, terms = [], [], []
        try:
            with interrupt.interruptible():
                for _ in range(self.config.micro_batch):
                    indices.append(self._order.next())
                    seen, numbers = self._backward(indices[-1], degree, iteration)
                    views.append(seen)
                    terms.append(numbers)
        except BaseException as error:
            self._clear_gradients()  # of the views before the one that failed
            if isinstance(error, interrupt.Interrupted):
                self._order.put_back(indices)
            raise
        gradients = self._collect_gradients(degree)
        self._guard(gradients, iteration, self.views[indices[-1]].name)
        for seen in views:
            self.strategy.after_backward(self.state, seen, self.config)
        self.state.optimizer.step(gradients, schedule.learning_rates(self.config, iteration, self.extent),
                                  eps=self.config.adam_eps, backend=self.backend)
        self._activated = None
        self.iteration = iteration
        self._keep(indices[-1], views[-1], gradients)
        record = self.strategy.after_step(self.state, iteration, self.config, self.schedule)
        if record is not None:
            self._densified(record)
        loss, l1, mse, ssim = (sum(column) / len(terms) for column in zip(*terms, strict=True))
        return StepReport(iteration, loss, psnr_of(mse), l1, ssim, len(rows),
                          self.views[indices[-1]].name, record.event if record else None, stage_ms)

    def _backward(self, index: int, degree: int, iteration: int) -> tuple[ViewGradients, tuple[float, ...]]:
        """Render one view and send its loss backward; gradients add up in the parameters' .grad."""
        view, config = self.views[index], self.config
        background = self.background
        tap = GradientTap(absolute=config.densify.absgrad)
        output = pipeline.render(activate(self.params, self.backend), view.camera, config.raster,
                                 background=background, sh_degree=degree, backend=self.backend, tap=tap)
        loss, terms = photometric_loss(output.colors, load_target(view, background), kind=config.loss,
                                       lambda_dssim=config.lambda_dssim, backend=self.backend)
        numbers = (float(loss.detach()), *terms.tolist())
        if not math.isfinite(numbers[0]):
            raise TrainingStopped(f"Training stopped at iteration {iteration}: the loss of view {view.name} is "
                                  f"{numbers[0]}; the parameters are those of iteration {self.iteration}.")
        with timing.measure("backward"):
            loss.backward()
        return ViewGradients(tap, output.projected.extents.detach(), view.camera, self.state.rows.generation), numbers

    def _collect_gradients(self, degree: int) -> dict[str, Tensor]:
        """The mean over the step's views, taken out of .grad. Bands not in use have none."""
        gradients: dict[str, Tensor] = {}
        for name, tensor in self.params.trained().items():
            gradient, tensor.grad = tensor.grad, None
            if gradient is None or (name == "shN" and degree == 0):
                continue
            if self.config.micro_batch > 1:
                gradient = gradient * (1.0 / self.config.micro_batch)
            gradients[name] = gradient
        return gradients

    def _clear_gradients(self) -> None:
        for tensor in self.params.trained().values():
            tensor.grad = None

    def _guard(self, gradients: dict[str, Tensor], iteration: int, view: str) -> None:
        """Stop before Adam when a gradient is not finite. A sum is enough: it carries every NaN and infinity.

        shN, three quarters of all numbers, need not be read: its gradient is that of sh0 times bounded SH bases.
        """
        sums = {name: float(gradient.sum()) for name, gradient in gradients.items() if name != "shN"}
        for name, total in sums.items():
            # a sum of finite values could overflow, so look again before stopping
            if not math.isfinite(total) and not bool(torch.isfinite(gradients[name]).all()):
                bad = torch.nonzero(~torch.isfinite(gradients[name].flatten(1) if gradients[name].dim() > 1
                                                    else gradients[name][:, None]).all(dim=1))[:, 0]
                raise TrainingStopped(
                    f"Training stopped at iteration {iteration}: the gradient of {name} is not finite for "
                    f"{len(bad):,} Gaussians (first: uid {int(self.params.uids[bad[0]])}) in view {view}; "
                    f"the parameters are those of iteration {self.iteration}.")

    def _keep(self, index: int, seen: ViewGradients, gradients: dict[str, Tensor]) -> None:
        """Register what the last backward left, so that surgery carries it along for those who look.

        Until then they see the step before, whole: a step that is given up leaves no gap.
        """
        for prefix in ("grad.", "tap.", "last."):
            self.state.rows.drop(prefix)
        self.last_view_index, self.last_camera = index, seen.camera
        self.tap = tap = seen.tap
        self.state.rows.put("last.extents", seen.extents)
        for name, gradient in gradients.items():
            self.state.rows.put(f"grad.{name}", gradient)
        for name in TAP_FIELDS:
            value = getattr(tap, name)
            if value is not None:
                self.state.rows.put(f"tap.{name}", value)

    def _densified(self, record: DensifyRecord) -> None:
        self._activated = None
        self.records.append(record)
        rows = self.state.rows
        self.tap = GradientTap(self.tap.absolute if self.tap else False,
                               **{name: rows.get(f"tap.{name}") for name in TAP_FIELDS})

    # ------------------------------------------------------------------ small things

    def _measure_extent(self) -> float:
        """From the training cameras alone, as graphdeco: what is held out changes nothing in training."""
        extent = float(scene_extent(self.views))
        if extent > 1e-6:
            return extent
        # one camera, or all in one place: the distance to the points gives the scale instead
        points, camera = self.scene.points, self.views[0].camera
        if points is None or len(points.positions) == 0:
            return 1.0
        distance = float(np.median(np.linalg.norm(points.positions - camera.center, axis=1)))
        self.notices.append(f"The cameras stand in one place; the distance to the points, {distance:.3g}, "
                            "sets the scale of the scene.")
        return distance or 1.0

    def _warn(self, text: str) -> None:
        """Say a sentence once a run."""
        if text not in self._warned:
            self._warned.add(text)
            self.notices.append(text)
