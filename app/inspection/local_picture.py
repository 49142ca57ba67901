"""One Gaussian moved a little: only the tiles that it touches are rendered again.

The rest of the picture, and of the Gaussians, is as it was. What comes out is the picture of the whole scene with that one
entry changed: tests hold it to the whole picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from app.inspection.problem import MARGIN, LocalLoss, Problem, evaluator
from render import interrupt, pipeline
from render.config import TILE_SIZE
from render.types import Camera, GaussianParams, RenderOutput

SLACK = 2
"""px around the footprint at x that a step may move it."""


@dataclass(frozen=True)
class BasePicture:
    """The whole scene at x, float64."""

    problem: Problem
    output: RenderOutput

    @cached_property
    def offsets(self) -> list[int]:
        return self.output.bins.tile_offsets.tolist()


def base_picture(problem: Problem) -> BasePicture:
    """May be given up (render.interrupt.Interrupted)."""
    with interrupt.interruptible(), torch.no_grad():
        output = pipeline.render_params(problem.params, problem.camera, problem.raster, background=problem.background,
                                        sh_degree=problem.sh_degree, backend=evaluator())
    return BasePicture(problem, output)


@dataclass(frozen=True)
class Evaluation:
    """The picture with one entry of one Gaussian changed, seen at the region's pixels [h,w]."""

    value: float             # the local loss
    output: RenderOutput     # of the region and the Gaussians in it
    surrounding: Tensor      # [H',W',3] the region's picture with MARGIN px around it
    raw: Tensor              # [h,w] opacity * exp(-q/2) of the Gaussian, 0 where it is culled
    offered: Tensor          # [h,w] bool: its alpha is at least the cutoff
    listed: Tensor           # [h,w] bool: its tile's list holds the Gaussian
    blended: Tensor          # [h,w] bool: it blends there
    last: Tensor             # [h,w] int64: which of the region's Gaussians is the last that blends, -1 = none


def footprint_box(center: Tensor, extent: Tensor, camera: Camera) -> tuple[int, int, int, int]:
    """(left, top, width, height) px of whole tiles around a Gaussian's footprint, inside the picture; width 0 = outside."""
    edges = []
    for axis, size in ((0, camera.width), (1, camera.height)):
        lo = math.floor(float(center[axis] - extent[axis])) - SLACK
        hi = math.ceil(float(center[axis] + extent[axis])) + SLACK
        lo, hi = max(lo, 0) // TILE_SIZE * TILE_SIZE, min(-(-hi // TILE_SIZE) * TILE_SIZE, size)
        edges.append((lo, max(hi - lo, 0)))
    (left, width), (top, height) = edges
    return (left, top, width, height) if width and height else (0, 0, 0, 0)


@dataclass
class LocalPicture:
    """The region of Gaussian `index`; `whole` takes the whole picture instead, which any step stays inside."""

    base: BasePicture
    index: int
    whole: bool = False
    box: tuple[int, int, int, int] = field(init=False)     # left, top, width, height px of the region
    ids: Tensor = field(init=False)                        # [n] rows of the Gaussians that its tiles list, and `index`
    place: int = field(init=False)                         # of `index` in ids

    def __post_init__(self) -> None:
        problem, output = self.base.problem, self.base.output
        camera, projected = problem.camera, output.projected
        self.box = ((0, 0, camera.width, camera.height) if self.whole
                    else footprint_box(projected.means2d[self.index], projected.extents[self.index], camera))
        left, top, width, height = self.box
        across, _ = camera.tiles
        first, last = left // TILE_SIZE, -(-(left + width) // TILE_SIZE)
        lists = [torch.tensor([self.index], dtype=torch.int32)]
        for row in range(top // TILE_SIZE, -(-(top + height) // TILE_SIZE)):
            start, end = self.base.offsets[row * across + first], self.base.offsets[row * across + last]
            lists.append(output.bins.flatten_ids[start:end])
        self.ids = torch.unique(torch.cat(lists)).long()
        self.place = int(torch.searchsorted(self.ids, self.index))
        self.camera = camera.cropped(*self.box)
        self.params = GaussianParams(**{name: tensor[self.ids].clone() for name, tensor in problem.params.trained().items()},
                                     uids=problem.params.uids[self.ids])
        outer_left, outer_top = max(left - MARGIN, 0), max(top - MARGIN, 0)
        outer_right, outer_bottom = min(left + width + MARGIN, camera.width), min(top + height + MARGIN, camera.height)
        self.outer = (outer_left, outer_top, outer_right - outer_left, outer_bottom - outer_top)
        self.inner = (slice(top - outer_top, top - outer_top + height), slice(left - outer_left, left - outer_left + width))
        self.loss = LocalLoss(problem, self.outer)
        self.surrounding = output.colors[outer_top:outer_bottom, outer_left:outer_right].clone()
        self.pixels = self._pixel_centers()

    def _pixel_centers(self) -> tuple[Tensor, Tensor]:
        x = torch.arange(self.box[2], dtype=torch.float64) + 0.5
        y = torch.arange(self.box[3], dtype=torch.float64) + 0.5
        return x[None, :], y[:, None]

    def entry(self, group: str, component: int) -> float:
        """x as it is stored."""
        return float(getattr(self.params, group)[self.place].reshape(-1)[component])

    @torch.no_grad()
    def render(self, group: str, component: int, x: float) -> RenderOutput:
        """The region with that entry at x; the entry is put back."""
        row = getattr(self.params, group)[self.place].view(-1)
        old = float(row[component])
        row[component] = x
        problem = self.base.problem
        try:
            return pipeline.render_params(self.params, self.camera, problem.raster, background=problem.background,
                                          sh_degree=problem.sh_degree, backend=evaluator())
        finally:
            row[component] = old

    def covers(self, output: RenderOutput) -> bool:
        """Whether the Gaussian's footprint lies inside the region, or outside the whole picture."""
        if self.whole or not float(output.projected.extents[self.place, 0]):
            return True
        center, extent = output.projected.means2d[self.place], output.projected.extents[self.place]
        whole = self.base.problem.camera
        for axis, (start, size, full) in enumerate(zip(self.box[:2], self.box[2:], (whole.width, whole.height), strict=True)):
            lo, hi = float(center[axis] - extent[axis]), float(center[axis] + extent[axis])
            if (lo < 0 and start > 0) or (hi > size and start + size < full):
                return False
        return True

    @torch.no_grad()
    def evaluate(self, group: str, component: int, x: float) -> Evaluation:
        """Loss and masks with that entry at x. Raises ValueError where a large step left the region."""
        output = self.render(group, component, x)
        if not self.covers(output):
            raise ValueError("the step moves the Gaussian out of the region that is rendered")
        surrounding = self.surrounding.clone()
        surrounding[self.inner] = output.colors
        raw, offered, listed = self._own(output)
        last_ids = output.last_ids.long()
        flatten = output.bins.flatten_ids.long()
        last = torch.where(last_ids >= 0, flatten[last_ids.clamp(min=0)] if len(flatten) else -1, -1)
        blended = offered & listed & (last_ids >= self._position(output))
        return Evaluation(self.loss.value(surrounding), output, surrounding, raw, offered, listed, blended, last)

    def _own(self, output: RenderOutput) -> tuple[Tensor, Tensor, Tensor]:
        """(raw, offered, listed) of the Gaussian at the region's pixels."""
        projected, config = output.projected, self.base.problem.raster
        listed = self._position(output) < len(output.bins.flatten_ids)
        if not float(projected.extents[self.place, 0]):
            raw = torch.zeros(self.box[3], self.box[2], dtype=torch.float64)
            return raw, torch.zeros_like(listed), listed
        x, y = self.pixels
        dx, dy = x - projected.means2d[self.place, 0], y - projected.means2d[self.place, 1]
        a, b, c = projected.conics[self.place]
        raw = output.splat_opacities[self.place] * torch.exp(-(0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy))
        return raw, raw.clamp(max=config.alpha_max) >= config.cutoff, listed

    def _position(self, output: RenderOutput) -> Tensor:
        """[h,w] where the Gaussian stands in the pixel's tile list, as last_ids counts; the length of all lists = not."""
        bins, (across, down) = output.bins, self.camera.tiles
        places = torch.nonzero(bins.flatten_ids == self.place).flatten()
        tiles = torch.searchsorted(bins.tile_offsets, places, right=True) - 1
        grid = torch.full((down * across,), len(bins.flatten_ids), dtype=torch.int64)
        grid[tiles] = places
        wide = grid.reshape(down, across).repeat_interleave(TILE_SIZE, 0).repeat_interleave(TILE_SIZE, 1)
        return wide[:self.box[3], :self.box[2]]
