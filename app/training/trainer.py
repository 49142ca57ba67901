"""One training run: take a view, render it, compare, go backward, step, densify. Everything in the order of F05."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from app.training.densify.base import DensifyRecord, Strategy, TrainState, ViewGradients, union
from app.training.densify.lineage import Lineage
from app.training.densify.none import NoDensification
from app.training.densify.statistics import GradientStatistics
from app.training.init import Progress, initial_params
from app.training.memory import available_bytes, default_cap
from app.training.optimizer import Adam
from app.training.rows import Rows
from app.training.verdict import Measured, TrainingStopped, all_finite, first_bad
from app.training.views import ViewOrder, load_target
from render import interrupt, pipeline, timing
from render.backends import cuda
from render.stages.activate import activate
from render.stages.ssim import photometric_loss
from render.types import PARAM_GROUPS, GaussianParams, Gaussians, GradientTap, RenderOutput

STRATEGIES: dict[StrategyName, type[Strategy]] = {"adc": AdaptiveDensityControl, "none": NoDensification}
TAP_FIELDS = ("v_means2d", "v_abs_means2d", "v_conics", "v_colors", "v_opacities")


@dataclass(frozen=True)
class StepReport:
    """What one step did. `loss`, `l1`, `ssim` and `psnr` are means over the step's views, before the update.

    On a GPU these four are the latest that the host knows: those of the step `measured` (0 = none yet).
    """

    iteration: int
    loss: float
    psnr: float
    l1: float
    ssim: float
    gaussians: int
    view_name: str
    densified: Densified | None
    stage_ms: dict[str, float]
    measured: int


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
        self.device = pipeline.device_of(self.backend)
        self._memory_cap: int | None = None      # of the device's free memory
        self.extent = config.extent or self._measure_extent()
        if params is None:
            params, notice = initial_params(scene.points, self.views, sh_degree=config.sh_degree, device=self.device,
                                            init_points=config.init_points, seed=config.seed, progress=progress)
            if notice:
                self.notices.append(notice)
        self.iteration = 0
        self.measured = Measured()
        self._failed, self._failed_loss = 0, math.nan   # the iteration that a GPU found not to be finite
        self.last_view_index: int | None = None
        self.last_camera = None
        self.last_config: TrainConfig | None = None   # that the last step went by
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
        if self._memory_cap is None:
            free = cuda.free_bytes() if self.device.type == "cuda" else None
            self._memory_cap = default_cap(available_bytes() if free is None else free)
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
        backend = pipeline.resolve_backend(name)
        self.settle()
        device = pipeline.device_of(backend)
        self.state.rows.move(device)   # copies all before it changes anything
        if device.type != "cuda":
            cuda.release()
        self.backend, self.device, self._memory_cap = backend, device, None
        self.state.cap = self.cap
        self._activated = None
        self._take_up_tap()

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
        mark = cuda.mark if self.device.type == "cuda" else None
        with torch.autograd.set_multithreading_enabled(False), timing.step(mark) as stage_ms:
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
            gradients = self._collect_gradients(degree)
        except BaseException as error:
            self._clear_gradients()  # of the views before the one that failed
            if isinstance(error, interrupt.Interrupted) or self._of_before(error, iteration):
                self._order.put_back(indices)
            raise
        ok = self._judge(iteration, gradients, terms, self.views[indices[-1]].name)
        for seen in views:
            self.strategy.after_backward(self.state, replace(seen, ok=ok), self.config)
        self.state.optimizer.step(gradients, schedule.learning_rates(self.config, iteration, self.extent),
                                  eps=self.config.adam_eps, backend=self.backend, ok=ok,
                                  extents=union(views) if self.config.sparse_adam else None)
        self._activated = None
        self.iteration = iteration
        self._keep(indices[-1], views[-1], gradients)
        if self.schedule.densifies(iteration) or self.schedule.resets(iteration):
            self.settle()   # these wait for the device as it is
        record = self.strategy.after_step(self.state, iteration, self.config, self.schedule)
        if record is not None:
            self._densified(record)
        found = self.measured
        return StepReport(iteration, found.loss, found.psnr, found.l1, found.ssim, len(rows), self.views[indices[-1]].name,
                          record.event if record else None, stage_ms, found.iteration)

    def _backward(self, index: int, degree: int, iteration: int) -> tuple[ViewGradients, Tensor]:
        """Render one view and send its loss backward; gradients add up in the parameters' .grad.

        The second result is [4] = loss, l1, mse, ssim, where the renderer has them.
        """
        view, config = self.views[index], self.config
        background = self.background
        tap = GradientTap(absolute=config.densify.absgrad)
        output = pipeline.render_params(self.params, view.camera, config.raster, background=background, sh_degree=degree,
                                        backend=self.backend, tap=tap)
        self._stop_if_failed()   # what is behind the number of tile intersections was read with it
        loss, terms = photometric_loss(output.colors, load_target(view, background), kind=config.loss,
                                       lambda_dssim=config.lambda_dssim, backend=self.backend)
        numbers = torch.cat([loss.detach().reshape(1), terms])
        if not self.deferred and not math.isfinite(float(loss.detach())):
            raise TrainingStopped(_no_loss(iteration, view.name, float(loss.detach())))
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

    @property
    def deferred(self) -> bool:
        """Whether what a step measured is read in the next one, so that the host does not wait for the device twice."""
        return self.backend == "cuda"

    def _judge(self, iteration: int, gradients: dict[str, Tensor], terms: list[Tensor], view: str) -> Tensor | None:
        """Stop before Adam when a gradient is not finite; on a GPU the [1] flag that makes Adam stand still instead."""
        numbers = torch.stack(terms).mean(0) if self.deferred else None
        if numbers is not None:
            ok = all_finite(gradients, numbers)
            cuda.later.put(torch.cat([ok.double(), numbers.double()]), lambda values: self._told(iteration, values))
            return ok
        bad = first_bad(gradients)
        if bad is not None:
            raise TrainingStopped(self._bad_gradient(iteration, view, *bad))
        # one after the other: torch's own mean would depend on its number of threads
        columns = zip(*(row.tolist() for row in terms), strict=True)
        self.measured = Measured(iteration, *(sum(column) / len(terms) for column in columns))
        return None

    def _of_before(self, error: BaseException, iteration: int) -> bool:
        """Whether a step ends because the one before it had failed, which counts it back."""
        return isinstance(error, TrainingStopped) and self.iteration < iteration - 1

    def _told(self, iteration: int, values: list[float]) -> None:
        if values[0]:
            self.measured = Measured(iteration, *values[1:])
        else:
            self._failed = iteration
            self._failed_loss = values[1]

    def settle(self) -> None:
        """Know all that the steps so far measured. Raises TrainingStopped when the last of them was not finite."""
        if self.deferred:
            cuda.later.settle()
            self._stop_if_failed()

    def _stop_if_failed(self) -> None:
        """Adam and the statistics stood still on the device in the step that failed; the rest is taken back here."""
        if not self._failed:
            return
        iteration, self._failed = self._failed, 0
        self.iteration = iteration - 1
        self.state.optimizer.take_back()
        view = self.views[self.last_view_index or 0].name
        if not math.isfinite(self._failed_loss):
            raise TrainingStopped(_no_loss(iteration, view, self._failed_loss))
        raise TrainingStopped(self._bad_gradient(iteration, view, *(first_bad(self.gradients()) or ("shN", 0, 0))))

    def _bad_gradient(self, iteration: int, view: str, name: str, count: int, row: int) -> str:
        return (f"Training stopped at iteration {iteration}: the gradient of {name} is not finite for {count:,} Gaussians "
                f"(first: uid {int(self.params.uids[row])}) in view {view}; "
                f"the parameters are those of iteration {iteration - 1}.")

    def _keep(self, index: int, seen: ViewGradients, gradients: dict[str, Tensor]) -> None:
        """Register what the last backward left, so that surgery carries it along for those who look.

        Until then they see the step before, whole: a step that is given up leaves no gap.
        """
        for prefix in ("grad.", "tap.", "last."):
            self.state.rows.drop(prefix)
        self.last_view_index, self.last_camera, self.last_config = index, seen.camera, self.config
        self.tap = tap = seen.tap
        self.state.rows.put("last.extents", seen.extents)
        for name, gradient in gradients.items():
            self.state.rows.put(f"grad.{name}", gradient)
        for name in TAP_FIELDS:
            value = getattr(tap, name)
            if value is not None:
                self.state.rows.put(f"tap.{name}", value)

    def _densified(self, record: DensifyRecord) -> None:
        self.records.append(record)
        self.edited()

    def edited(self) -> None:
        """Rows have changed between steps, by densification or by hand."""
        self._activated = None
        self._take_up_tap()

    def _take_up_tap(self) -> None:
        """The tap is what the registry holds now: rows have changed, or their device."""
        rows = self.state.rows
        if self.tap is not None:
            self.tap = GradientTap(self.tap.absolute, **{name: rows.get(f"tap.{name}") for name in TAP_FIELDS})

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


def _no_loss(iteration: int, view: str, loss: float) -> str:
    return (f"Training stopped at iteration {iteration}: the loss of view {view} is {loss}; "
            f"the parameters are those of iteration {iteration - 1}.")
