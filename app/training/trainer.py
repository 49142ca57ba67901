"""One training run: take a view, render it, compare, go backward, step, densify. Everything in the order of F05."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.config import StrategyName, TrainConfig
from app.data.orient import scene_extent
from app.data.scene import Scene, SceneError, View
from app.messages import Densified
from app.options import with_options
from app.training import schedule
from app.training.densify.absgs import AbsGS
from app.training.densify.adc import AdaptiveDensityControl
from app.training.densify.base import Candidates, DensifyRecord, Strategy, TrainState, ViewGradients, union
from app.training.densify.lineage import Lineage
from app.training.densify.mcmc import MarkovChain
from app.training.densify.none import NoDensification
from app.training.densify.records import keep_within
from app.training.densify.statistics import GradientStatistics
from app.training.densify.survey import Survey
from app.training.densify.taming import Taming
from app.training.init import Progress, initial_params
from app.training.memory import available_bytes, default_cap
from app.training.optimizer import Optimizer
from app.training.rows import Rows
from app.training.step import Phase, Stepping
from app.training.verdict import Measured
from app.training.views import ViewOrder
from render import pipeline, timing
from render.backends import cuda
from render.stages.activate import activate
from render.types import PARAM_GROUPS, Camera, GaussianParams, Gaussians, GradientTap, RenderOutput

STRATEGIES: dict[StrategyName, type[Strategy]] = {
    "adc": AdaptiveDensityControl, "absgs": AbsGS, "mcmc": MarkovChain, "taming": Taming, "none": NoDensification}
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
    """Trains `scene` (its training split) from `params` as they are, or from its points, or from random ones.

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
        self.memory_cap: int | None = None      # of the device's free memory
        self.said: set[str] = set()              # sentences that a run says once
        if params is None:
            params, notice = initial_params(scene.points, self.views, sh_degree=config.sh_degree, device=self.device,
                                            init_points=config.init_points, seed=config.seed, progress=progress)
            if notice:
                self.notices.append(notice)
            params = STRATEGIES[config.densify.strategy]().admit(params, self.cap, self._warn)
        self.take_up(params)

    def take_up(self, params: GaussianParams) -> None:
        """Begin with these Gaussians: nothing is known of them, and no step was taken."""
        self.iteration = 0
        self.stepping = Stepping(self)
        self.last_view_index: int | None = None
        self.last_camera: Camera | None = None
        self.last_config: TrainConfig | None = None   # that the last step went by
        self.tap: GradientTap | None = None
        self.records: deque[DensifyRecord] = deque(maxlen=256)
        self.extent = self.config.extent or self.measured_extent
        self.strategy: Strategy = STRATEGIES[self.config.densify.strategy]()
        self.schedule = schedule.resolve(self.config)
        self.order = ViewOrder(len(self.views), self.config.seed)
        self._activated: Gaussians | None = None
        rows = Rows(params)
        self.state = TrainState(
            rows=rows, optimizer=Optimizer(rows), lineage=Lineage(rows["uids"].cpu().numpy()),
            rng=np.random.default_rng([self.config.seed, 2]), extent=self.extent, cap=self.cap,
            activate=self.gaussians, warn=self._warn, survey=Survey(self))
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
        if self.memory_cap is None:
            free = cuda.free_bytes() if self.device.type == "cuda" else None
            self.memory_cap = default_cap(available_bytes() if free is None else free)
        return self.memory_cap

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

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Replace several fields, all or none. Raises OptionError, a ValueError of one sentence."""
        self.config = with_options(self.config, values)
        for path in values:
            self._apply(path)

    def set_backend(self, name: str) -> None:
        """Go on with another backend from the next step on. Raises ValueError for one that cannot run here."""
        backend = pipeline.resolve_backend(name)
        self.settle()
        device = pipeline.device_of(backend)
        self.state.rows.move(device)   # copies all before it changes anything
        if device.type != "cuda":
            cuda.release()
        self.backend, self.device, self.memory_cap = backend, device, None
        self.state.cap = self.cap
        self._activated = None
        self._take_up_tap()

    def _apply(self, path: str) -> None:
        self.schedule = schedule.resolve(self.config)
        self.state.cap = self.cap
        if path == "extent":
            self.extent = self.state.extent = self.config.extent or self.measured_extent
        half = False
        if path == "densify.strategy":
            before, self.strategy = self.strategy, STRATEGIES[self.config.densify.strategy]()
            self.strategy.taken_up(self.state)
            # absolutes of the views so far may be missing; decided by what a checkpoint has, so that a resumed run agrees
            half = type(before) is not type(self.strategy) and self.strategy.wants_absolute(self.config)
        if half or path == "densify.absgrad":
            self.statistics.clear()  # half of one statistic and half of the other would be neither
        if path == "densify.cap":
            self.strategy.taken_up(self.state)
        if path in ("iterations", "schedule_iterations"):
            self.notices.append(schedule.window_moves(self.config))

    # ------------------------------------------------------------------ one step

    def step(self) -> StepReport:
        """Train on the next view (or the next `micro_batch` views), or end the step that is under way.

        Raises TrainingStopped, with nothing changed, when the loss or a gradient is not finite, and
        interrupt.Interrupted when the step was given up before the optimiser: the next one takes the same views.
        """
        with self._timed() as stage_ms:
            if not self.phase:
                self.stepping.find_gradients()
            if self.phase == "backward":
                self._move()
            event = self._change_rows()
        return self._report(event, stage_ms)   # whose figures are there when the block has ended

    def forward(self) -> tuple[str, Measured]:
        """(name, what is measured) of the view that comes next; nothing changes. Raises interrupt.Interrupted."""
        return self.stepping.forward()

    def backward(self) -> StepReport:
        """The gradients of the next step alone: parameters stand still until update() or step(). Raises as step()."""
        with self._timed() as stage_ms:
            if not self.phase:
                self.stepping.find_gradients()
                self.settle()
        return self._report(None, stage_ms)

    def update(self) -> StepReport:
        """The optimiser's part of the step under way; what the strategy does behind it is left to step(). Raises as step()."""
        with self._timed() as stage_ms:
            if not self.phase:
                self.stepping.find_gradients()
            if self.phase == "backward":
                self._move()
        return self._report(None, stage_ms)

    @property
    def phase(self) -> Phase:
        """How far the step under way is."""
        return self.stepping.phase

    @property
    def measured(self) -> Measured:
        """What the newest step measured that is known by now."""
        return self.stepping.judge.measured

    @measured.setter
    def measured(self, value: Measured) -> None:
        self.stepping.judge.measured = value

    @property
    def deferred(self) -> bool:
        """Whether what a step measured is read in the next one, so that the host does not wait for the device twice."""
        return self.backend == "cuda"

    def settle(self) -> None:
        """Know all that the steps so far measured. Raises TrainingStopped when the last of them was not finite."""
        self.stepping.settle()

    @contextmanager
    def _timed(self) -> Iterator[dict[str, float]]:
        # one backward thread: the tap is filled in order, and small graphs gain nothing from more
        mark = cuda.mark if self.device.type == "cuda" else None
        with torch.autograd.set_multithreading_enabled(False), timing.step(mark) as stage_ms:
            yield stage_ms

    def _report(self, event: Densified | None, stage_ms: dict[str, float]) -> StepReport:
        found = self.measured
        return StepReport(self.iteration, found.loss, found.psnr, found.l1, found.ssim, len(self.state.rows),
                          self.views[self.last_view_index or 0].name, event, stage_ms, found.iteration)

    def _move(self) -> None:
        self.stepping.update()
        self._activated = None
        self.iteration += 1

    def _change_rows(self) -> Densified | None:
        """What the strategy does after the update; the step is then over."""
        if self.schedule.densifies(self.iteration) or self.schedule.resets(self.iteration):
            self.settle()   # these wait for the device as it is
        record = self.strategy.after_step(self.state, self.iteration, self.config, self.schedule)
        self.stepping.phase = ""
        if record is not None:
            self._densified(record)
        return record.event if record is not None else None

    # ------------------------------------------------------------------ what a step leaves behind

    def keep(self, index: int, views: Sequence[ViewGradients], gradients: dict[str, Tensor]) -> None:
        """Register what the last backward left, so that surgery carries it along for those who look, and for the update.

        Until then they see the step before, whole: a step that is given up leaves no gap.
        """
        seen, rows = views[-1], self.state.rows
        for prefix in ("grad.", "tap.", "last."):
            rows.drop(prefix)
        self.last_view_index, self.last_camera, self.last_config = index, seen.camera, self.config
        self.tap = tap = seen.tap
        rows.put("last.extents", seen.extents)
        if len(views) > 1:
            rows.put("last.union", union(views))
        for name, gradient in gradients.items():
            rows.put(f"grad.{name}", gradient)
        for name in TAP_FIELDS:
            value = getattr(tap, name)
            if value is not None:
                rows.put(f"tap.{name}", value)

    def candidates(self) -> Candidates:
        """What the next densification would do as things stand now; changes nothing."""
        self.settle()
        iteration = self.schedule.next_densification(self.iteration) or self.iteration
        return self.strategy.candidates(self.state, iteration, self.config, self.schedule)

    def densify_now(self) -> DensifyRecord | None:
        """A densification at once, whatever the schedule says; None, with the reason in strategy.refused, where nothing can be
        done."""
        self.settle()
        record = self.strategy.densify_now(self.state, self.iteration, self.config, self.schedule)
        if record is not None:
            self._densified(record)
        return record

    def _densified(self, record: DensifyRecord) -> None:
        self.records.append(record)
        keep_within(self.records)
        self.edited()

    def edited(self) -> None:
        """Rows have changed between steps, by densification or by hand."""
        self.rows_changed()

    def rows_changed(self) -> None:
        """What was read from the registry before does not hold any more."""
        self._activated = None
        self._take_up_tap()

    def _take_up_tap(self) -> None:
        """The tap is what the registry holds now: rows have changed, or their device."""
        rows = self.state.rows
        if self.tap is not None or "tap.v_means2d" in rows:
            absolute = self.tap.absolute if self.tap is not None else "tap.v_abs_means2d" in rows
            self.tap = GradientTap(absolute, **{name: rows.get(f"tap.{name}") for name in TAP_FIELDS})

    # ------------------------------------------------------------------ small things

    @cached_property
    def measured_extent(self) -> float:
        """World radius, from the training cameras alone, as graphdeco: what is held out changes nothing in training."""
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
        if text not in self.said:
            self.said.add(text)
            self.notices.append(text)

