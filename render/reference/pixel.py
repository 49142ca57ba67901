"""One pixel taken apart: every Gaussian that the rasterizer blends there, in its order, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from render.config import TILE_SIZE, RasterConfig
from render.reference.rasterize import blend
from render.types import Camera, Projected, TileBins


@dataclass(frozen=True)
class PixelContributions:
    """n contributors (w > 0) of a pixel, front to back; row k of every tensor is the same Gaussian."""

    x: int
    y: int
    ids: Tensor               # [n] int64 Gaussian indices
    depths: Tensor            # [n] camera z
    powers: Tensor            # [n] -q/2: the exponent of the Gaussian at the pixel's centre, <= 0
    raw_alphas: Tensor        # [n] opacity * exp(power)
    alphas: Tensor            # [n] after clamp and cutoff: what is blended
    clamped: Tensor           # [n] bool: raw alpha exceeded alpha_max
    transmittances: Tensor    # [n] in front of each
    weights: Tensor           # [n] T * alpha
    colors: Tensor            # [n,3]
    transmittance: Tensor     # [] behind all: the weight of the background
    background: Tensor        # [3]
    stopped_by: int | None    # the Gaussian that the stopping rule refused; None = the list ended

    def __len__(self) -> int:
        return len(self.ids)

    def composite(self) -> Tensor:
        """[3] the pixel's colour from these rows alone; equals the rendered pixel."""
        return self.weights @ self.colors + self.transmittance * self.background

    def strongest(self) -> int | None:
        """Index of the Gaussian with the largest weight; None where only the background is seen."""
        return int(self.ids[torch.argmax(self.weights)]) if len(self.ids) else None


@torch.no_grad()
def pixel_contributions(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
                        background: Tensor, config: RasterConfig, x: int, y: int) -> PixelContributions:
    """Contributors at pixel column x, row y (its centre is x + 0.5, y + 0.5). Raises ValueError outside the image."""
    if not (0 <= x < camera.width and 0 <= y < camera.height):
        raise ValueError(f"pixel ({x}, {y}) lies outside the {camera.width}x{camera.height} image")
    tile = y // TILE_SIZE * camera.tiles[0] + x // TILE_SIZE
    start, end = bins.tile_offsets[tile:tile + 2].tolist()
    ids = bins.flatten_ids[start:end].long()
    center = projected.means2d.new_tensor([[x + 0.5, y + 0.5]])
    mixed = blend(projected.means2d[ids], projected.conics[ids], opacities_eff[ids], center, config)
    weights = mixed.weights[:, 0]
    stopped = torch.nonzero((mixed.offered[:, 0] > 0) & (mixed.alphas[:, 0] == 0)).flatten()
    rows = torch.nonzero(weights > 0).flatten()
    ids_blended = ids[rows]
    return PixelContributions(
        x=x, y=y, ids=ids_blended, depths=projected.depths[ids_blended], powers=-mixed.sigmas[rows, 0],
        raw_alphas=mixed.raw[rows, 0], alphas=mixed.alphas[rows, 0], clamped=mixed.raw[rows, 0] > config.alpha_max,
        transmittances=mixed.before[rows, 0], weights=weights[rows], colors=colors[ids_blended].detach(),
        transmittance=mixed.transmittance[0], background=background,
        stopped_by=int(ids[stopped[0]]) if len(stopped) else None)
