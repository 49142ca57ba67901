"""What panels may ask of an instrument: frozen dataclasses of plain values that compare by value. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from render.types import Camera


class Unanswerable(ValueError):
    """A question that has no answer now; the message is one sentence for the user."""


@dataclass(frozen=True)
class Sight:
    """A camera that compares by value."""

    viewmat: tuple[float, ...]   # [16] row-major
    K: tuple[float, ...]         # [9]
    width: int
    height: int
    near: float
    far: float

    @classmethod
    def of(cls, camera: Camera) -> Sight:
        """Of a whole picture."""
        return cls(tuple(np.asarray(camera.viewmat, np.float64).reshape(-1).tolist()),
                   tuple(np.asarray(camera.K, np.float64).reshape(-1).tolist()), camera.width, camera.height, camera.near,
                   camera.far)

    @property
    def camera(self) -> Camera:
        return Camera(np.array(self.viewmat).reshape(4, 4), np.array(self.K).reshape(3, 3), self.width, self.height, self.near,
                      self.far)


@dataclass(frozen=True)
class XRayQuestion:
    """What is blended at column x, row y of the picture that `sight` sees? `view` is the scene view that this is."""

    sight: Sight
    x: int
    y: int
    view: int | None = None


@dataclass(frozen=True)
class ChainQuestion:
    """What is there from the loss to each parameter of Gaussian `uid`? `sight` projects one without a gradient."""

    uid: int
    sight: Sight | None = None


@dataclass(frozen=True)
class HistogramQuestion:
    """How is a quantity distributed? `sight` is for one that belongs to a view; `log` None = what suits it."""

    quantity: str
    bins: int = 64
    log: bool | None = None
    sight: Sight | None = None


@dataclass(frozen=True)
class TableQuestion:
    """Which Gaussians lead by a quantity? `columns` are quantities to show beside it."""

    quantity: str
    columns: tuple[str, ...] = ()
    order: str = "largest"       # or "smallest", "largest absolute"
    count: int = 50
    selected_only: bool = False
    sight: Sight | None = None


@dataclass(frozen=True)
class UpdatesQuestion:
    """How far does each step move each parameter group?"""


@dataclass(frozen=True)
class SummaryQuestion:
    """Sums, means and extremes of quantities over the selected Gaussians."""

    quantities: tuple[str, ...]
    sight: Sight | None = None
