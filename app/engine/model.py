"""What is on show: the Gaussians of a trainer, or of a PLY that is only looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from app.config import TrainConfig
from app.data.scene import Scene
from render.config import RasterConfig
from render.pipeline import device_of, render
from render.stages.activate import activate
from render.types import Camera, Gaussians, RenderOutput

if TYPE_CHECKING:
    from app.engine.foreseen import Plans
    from app.training.densify.base import Candidates
    from app.training.quantities.registry import Reading
    from app.training.trainer import Trainer
    from render.types import GaussianParams


KEPT_VIEWS = 4
"""Quantities of a view are kept for so many of the newest (quantity, camera) pairs."""


@dataclass
class Model:
    """Gaussians and everything needed to draw them. With a trainer it follows the trainer's parameters and options."""

    path: str
    trainer: Trainer | None = None
    scene: Scene | None = None
    fixed_params: GaussianParams | None = None          # the rest is for a model without a trainer
    fixed_config: TrainConfig = field(default_factory=TrainConfig)
    fixed_backend: str = ""
    version: int = 0                                    # moves when anything that a picture depends on moves
    intersection_bytes: int = 0                         # of the picture drawn last
    opening: Mapping[str, Any] = field(default_factory=dict)   # how the scene was opened: path, resolution ...
    _activated: Gaussians | None = None
    marks: dict[str, torch.Tensor] = field(default_factory=dict)           # of a model without a trainer; see mark()
    _plans: Plans | None = None                         # of the next densification
    _readings: dict[tuple, Reading] = field(default_factory=dict)          # of the model as it is

    @property
    def params(self) -> GaussianParams:
        if self.trainer is not None:
            return self.trainer.params
        assert self.fixed_params is not None
        return self.fixed_params

    @property
    def backend(self) -> str:
        return self.trainer.backend if self.trainer is not None else self.fixed_backend

    @property
    def options(self) -> TrainConfig:
        return self.trainer.config if self.trainer is not None else self.fixed_config

    @property
    def iteration(self) -> int:
        return self.trainer.iteration if self.trainer is not None else 0

    @property
    def sh_degree(self) -> int:
        """The degree in use; while training it rises to the configured one."""
        if self.trainer is not None:
            return self.trainer.sh_degree
        return round((self.params.shN.shape[1] + 1) ** 0.5) - 1

    @property
    def background(self) -> torch.Tensor:
        """[3] the colour behind everything, the one that training uses."""
        return torch.full((3,), 1.0 if self.options.white_background else 0.0, device=self.params.means.device)

    def use_backend(self, name: str) -> None:
        """Go on with another backend, and on its device. Raises ValueError for one that cannot run here."""
        if self.trainer is not None:
            self.trainer.set_backend(name)
        else:
            assert self.fixed_params is not None
            self.fixed_params = self.fixed_params.to(device_of(name))
            self.marks = {mark: mask.to(device_of(name)) for mark, mask in self.marks.items()}
            self.fixed_backend = name
        self.moved()

    def moved(self) -> None:
        """Parameters or options changed: pictures and activations of before no longer hold."""
        self.version += 1
        self._activated = None
        self._readings = {}

    # ------------------------------------------------------------------ what the user marked

    def mark(self, name: str) -> torch.Tensor | None:
        """[N] bool of a mark of app/training/marks.py; None where nothing has it."""
        return self.trainer.state.rows.get(name) if self.trainer is not None else self.marks.get(name)

    def set_mark(self, name: str, mask: np.ndarray | None) -> None:
        """Replace a mark; None or nothing but False takes it away."""
        kept = mask is not None and bool(mask.any())
        tensor = torch.from_numpy(np.ascontiguousarray(mask)).to(self.params.means.device) if kept else None
        if self.trainer is not None:
            rows = self.trainer.state.rows
            rows.drop(name)
            if tensor is not None:
                rows.put(name, tensor)
        else:
            self.marks.pop(name, None)
            if tensor is not None:
                self.marks[name] = tensor
        self.version += 1   # pictures show marks; activations and quantities hold

    # ------------------------------------------------------------------ quantities

    def reading(self, name: str, camera: Camera | None = None) -> Reading:
        """A per-Gaussian quantity, worked out once for a state of the model. Raises Unreadable, with a sentence."""
        from app.training.probes import PROBES, readable
        from app.training.quantities.registry import Subject

        of_view = name in PROBES and PROBES[name].needs == "view"
        key = (name, *_bytes(camera)) if of_view and camera is not None else (name,)
        if key not in self._readings:
            if of_view:   # of the newest few cameras only: an orbit passes thousands
                for old in [known for known in self._readings if len(known) > 1][:1 - KEPT_VIEWS]:
                    del self._readings[old]
            subject = Subject(self.gaussians(), self.options.raster, self.sh_degree, self.backend, self.trainer, camera)
            self._readings[key] = readable(subject, name)
        return self._readings[key]

    def candidates(self) -> Candidates | None:
        """What the next densification would do; None without a run. Its rows are those of now."""
        if self.trainer is None:
            return None
        from app.engine.foreseen import planned

        self._plans = planned(self, self._plans)
        return self._plans.plan

    @property
    def planned_at(self) -> int:
        """The iteration that the candidates are those of: that of now, or shortly before where they cost much."""
        return self._plans.iteration if self._plans is not None else 0

    def gaussians(self) -> Gaussians:
        """Activated Gaussians of the current parameters, detached."""
        if self._activated is None:
            with torch.no_grad():
                trainer = self.trainer
                self._activated = trainer.gaussians() if trainer is not None else activate(self.params, self.backend)
        return self._activated

    def image_bytes(self) -> int:
        """Decoded photographs that are held now."""
        return self.scene.image_bytes() if self.scene is not None else 0

    def render(self, camera: Camera, *, gaussians: Gaussians | None = None, raster: RasterConfig | None = None,
               background: torch.Tensor | None = None, colors: torch.Tensor | None = None, depth: bool = False
               ) -> RenderOutput:
        """One picture under no_grad, of other Gaussians, rules, background or colours [N,3] where they are given."""
        with torch.no_grad():
            output = render(gaussians or self.gaussians(), camera, raster or self.options.raster,
                            background=self.background if background is None else background,
                            sh_degree=self.sh_degree, backend=self.backend, depth=depth, colors=colors)
        bins = output.bins
        self.intersection_bytes = sum(t.numel() * t.element_size() for t in (
            bins.tile_offsets, bins.flatten_ids, bins.emit_ids, bins.emit_offsets, bins.rows) if t is not None)
        return output


def _bytes(camera: Camera) -> tuple:
    """Equal for cameras that see the same."""
    return camera.viewmat.tobytes(), camera.K.tobytes(), camera.width, camera.height, camera.near, camera.far
