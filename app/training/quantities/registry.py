"""The one registry of per-Gaussian numbers: heatmap, histogram, table, filter and selection all read from it.

A new quantity is one function with @probe above it, in the file of its kind beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from app.data.scene import SceneError
from render.config import RasterConfig
from render.stages.gaussian import splats_of
from render.types import Camera, Gaussians, Projected

if TYPE_CHECKING:
    from app.training.trainer import Trainer

Needs = Literal["gaussians", "view", "trainer"]
"""What a quantity exists with: any Gaussians, a camera that looks at them, or a run that trains them."""


class Unreadable(SceneError):
    """A quantity that has no values here, or not yet; the message is one sentence for the user."""


@dataclass
class Subject:
    """What quantities are read from."""

    gaussians: Gaussians
    raster: RasterConfig
    sh_degree: int
    backend: str
    trainer: Trainer | None = None
    camera: Camera | None = None      # of the picture, for what belongs to a view

    @property
    def training(self) -> Trainer:
        assert self.trainer is not None, "a quantity that needs a trainer was read without one"
        return self.trainer

    @property
    def view(self) -> Camera:
        assert self.camera is not None, "a quantity that needs a view was read without one"
        return self.camera

    @property
    def device(self) -> torch.device:
        return self.gaussians.means.device

    @cached_property
    def splats(self) -> tuple[Projected, Tensor, Tensor]:
        """The Gaussians as this view's ellipses, their colours and opacities."""
        return splats_of(self.gaussians, self.view, self.raster, self.sh_degree, self.backend)


@dataclass(frozen=True)
class Probe:
    name: str
    label: str                    # says which gradient: signed sum, sum of absolutes or norm (F09)
    unit: str
    signed: bool                  # takes a diverging colour map around 0
    log: bool                     # spans decades
    help: str
    needs: Needs
    values: Callable[[Subject], Tensor | None]   # [N], or None while there is nothing to show
    unseen: Callable[[Subject], Tensor] | None   # [N] bool: no view has seen it, so its value says nothing (F17)
    missing: str                  # what brings values where there are none yet


@dataclass(frozen=True)
class Reading:
    """A probe's values; `unseen` marks the Gaussians whose value says nothing."""

    probe: Probe
    values: Tensor    # [N] float32
    unseen: Tensor    # [N] bool


PROBES: dict[str, Probe] = {}


def probe(name: str, label: str, unit: str, help: str, *, signed: bool = False, log: bool = False, needs: Needs = "trainer",
          unseen: Callable[[Subject], Tensor] | None = None, missing: str = "take a training step first"):
    """Register a function Subject -> [N] values (None = not available yet)."""

    def register(function: Callable[[Subject], Tensor | None]) -> Callable[[Subject], Tensor | None]:
        PROBES[name] = Probe(name, label, unit, signed, log, help, needs, function, unseen, missing)
        return function

    return register
