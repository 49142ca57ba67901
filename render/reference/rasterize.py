"""Front-to-back alpha compositing of sorted ellipses, tile by tile (Kerbl et al. 2023, equations 2 and 3).

    q_k     = a dx^2 + 2 b dx dy + c dy^2,  d = pixel centre - mean2d          squared Mahalanobis distance
    raw_k   = opacity_k exp(-q_k / 2)
    alpha_k = min(raw_k, alpha_max), and 0 below the cutoff
    T_k     = prod_{j<k} (1 - alpha_j)                                         transmittance in front of k
    w_k     = T_k alpha_k
    color   = sum_k w_k c_k + T_N background

A Gaussian that would bring the transmittance below transmittance_min is not blended, nor is anything behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from render.config import TILE_SIZE, RasterConfig
from render.shapes import check
from render.types import Camera, Projected, TileBins

PIXELS = TILE_SIZE * TILE_SIZE
_RECORDED_PAIRS = 2**23
"""Above so many (Gaussian, pixel) pairs autograd keeps no per-pair tensors and recomputes each tile in its backward."""
Between = Callable[[], None]
"""Called before each tile or image, on the way back as well; may raise, which ends the work."""


def uninterrupted() -> None:
    """The Between of those who wait for the end."""


def clamp_alpha(raw: Tensor, config: RasterConfig) -> Tensor:
    """min(raw, alpha_max) with the gradient that config.alpha_gradient names where raw > alpha_max.

    exact: 0. straight_through: that of raw. straight_through_clamped: that of raw, scaled by alpha_max/raw.
    The value is the same to the bit in all three: x - x.detach() is 0.
    """
    alpha = torch.clamp(raw, max=config.alpha_max)
    if config.alpha_gradient == "exact":
        return alpha
    slope = 1.0
    if config.alpha_gradient == "straight_through_clamped":
        slope = torch.where(raw > config.alpha_max, config.alpha_max / raw, 1.0).detach()
    return alpha.detach() + (raw - raw.detach()) * slope


def fade(alpha: Tensor, config: RasterConfig) -> Tensor:
    """alpha below the cutoff c becomes 0; with smooth_cutoff it rises through alpha * s((alpha-c)/c) until 2c.

    s(t) = 3t^2 - 2t^3 is C1: 0 at t = 0, 1 at t = 1.
    """
    if config.smooth_cutoff:
        t = torch.clamp((alpha - config.cutoff) / config.cutoff, 0.0, 1.0)
        return alpha * (t * t * (3 - 2 * t))
    return torch.where(alpha >= config.cutoff, alpha, 0.0)


@dataclass
class Blend:
    """n Gaussians, front to back, at P pixels."""

    sigmas: Tensor         # [n,P] q/2; exp(-sigma) is the Gaussian's value
    raw: Tensor            # [n,P] opacity * exp(-sigma)
    offered: Tensor        # [n,P] alpha before the stopping rule
    alphas: Tensor         # [n,P] alpha that is blended; 0 = not
    before: Tensor         # [n,P] transmittance in front of each
    transmittance: Tensor  # [P] behind all

    @property
    def weights(self) -> Tensor:
        """[n,P] T alpha."""
        return self.before * self.alphas


def blend(means2d: Tensor, conics: Tensor, opacities_eff: Tensor, pixels: Tensor, config: RasterConfig) -> Blend:
    """Alpha and transmittance of sorted Gaussians (means2d [n,2], or [n,P,2] one per pixel) at pixels [P,2]."""
    offset = pixels - (means2d[:, None] if means2d.ndim == 2 else means2d)
    dx, dy = offset.unbind(-1)
    a, b, c = (conics[:, i, None] for i in range(3))
    sigmas = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
    raw = opacities_eff[:, None] * torch.exp(-sigmas)
    # sigma < 0 happens only where rounding made a needle's conic indefinite; exp would be huge, so it is left out.
    offered = torch.where(sigmas >= 0, fade(clamp_alpha(raw, config), config), 0.0)
    after = torch.cumprod(1 - offered.detach(), dim=0)
    alphas = torch.where(after >= config.transmittance_min, offered, 0.0)  # after only falls: the rest stays stopped
    after = torch.cumprod(1 - alphas, dim=0)
    before = torch.cat([torch.ones_like(after[:1]), after[:-1]])
    return Blend(sigmas, raw, offered, alphas, before, after[-1] if len(after) else after.new_ones(len(pixels)))


def tile_pixels(tile: int, camera: Camera, like: Tensor) -> Tensor:
    """[256,2] centres of a tile's pixels, row-major; those beyond the image's edge are computed and cropped later."""
    across, _ = camera.tiles
    steps = torch.arange(TILE_SIZE, dtype=like.dtype, device=like.device) + 0.5
    y, x = torch.meshgrid(steps + tile // across * TILE_SIZE, steps + tile % across * TILE_SIZE, indexing="ij")
    return torch.stack([x, y], dim=-1).reshape(-1, 2)


def assemble(tiles: Tensor, camera: Camera) -> Tensor:
    """[T,256,...] values per tile -> [H,W,...]."""
    across, down = camera.tiles
    grid = tiles.reshape(down, across, TILE_SIZE, TILE_SIZE, *tiles.shape[2:]).transpose(1, 2)
    return grid.reshape(down * TILE_SIZE, across * TILE_SIZE, *tiles.shape[2:])[:camera.height, :camera.width]


def cut(image: Tensor, camera: Camera) -> Tensor:
    """[H,W,...] -> [T,256,...], padded with 0: the inverse of assemble."""
    across, down = camera.tiles
    padded = image.new_zeros(down * TILE_SIZE, across * TILE_SIZE, *image.shape[2:])
    padded[:camera.height, :camera.width] = image
    grid = padded.reshape(down, TILE_SIZE, across, TILE_SIZE, *image.shape[2:]).transpose(1, 2)
    return grid.reshape(across * down, PIXELS, *image.shape[2:])


def tile_lists(projected: Projected, opacities_eff: Tensor, bins: TileBins, *more: Tensor) -> list[tuple[Tensor, ...]]:
    """Per tile the rows (means2d, conics, opacities_eff, *more) of its Gaussians, front to back."""
    ids = bins.flatten_ids.long()
    lengths = torch.diff(bins.tile_offsets).tolist()
    rows = (projected.means2d, projected.conics, opacities_eff, *more)
    return list(zip(*(torch.split(torch.index_select(row, 0, ids), lengths) for row in rows), strict=True))


def _tile(means2d: Tensor, conics: Tensor, opacities_eff: Tensor, colors: Tensor, depths: Tensor, background: Tensor,
          pixels: Tensor, config: RasterConfig, between: Between) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(colors [P,3], transmittance [P], depth [P], place of the last contributor in the list [P], -1 = none)."""
    between()
    mixed = blend(means2d, conics, opacities_eff, pixels, config)
    weights = mixed.weights
    color = weights.T @ colors + mixed.transmittance[:, None] * background
    places = torch.arange(len(weights), device=pixels.device)[:, None]
    last = torch.where(weights > 0, places, -1).amax(0) if len(weights) else pixels.new_full((len(pixels),), -1).long()
    return color, mixed.transmittance, weights.T @ depths, last


def rasterize(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
              background: Tensor, config: RasterConfig, depth: bool = False, between: Between = uninterrupted
              ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(colors [H,W,3], transmittances [H,W], depths [H,W] or None, last_ids [H,W] int32).

    colors [N,3]; opacities_eff [N] = opacities times compensations; background [3]. depths is sum_k w_k z_k, not
    normalised, and differentiable. last_ids is the index into flatten_ids of the last Gaussian with w > 0, -1 = none.
    """
    check(means2d=(projected.means2d, "N 2"), colors=(colors, "N 3"), opacities_eff=(opacities_eff, "N"),
          background=(background, "3"), tile_offsets=(bins.tile_offsets, f"{math.prod(camera.tiles) + 1}"))
    dense = torch.is_grad_enabled() and len(bins.flatten_ids) * PIXELS > _RECORDED_PAIRS
    done = []
    for tile, (mean, conic, opacity, color, z) in enumerate(
            tile_lists(projected, opacities_eff, bins, colors, projected.depths)):
        arguments = (mean, conic, opacity, color, z, background, tile_pixels(tile, camera, background), config, between)
        done.append(checkpoint(_tile, *arguments, use_reentrant=False, preserve_rng_state=False) if dense
                    else _tile(*arguments))
        if done[-1][0].requires_grad:
            done[-1][0].register_hook(lambda gradient: between())
    image, transmittance, depths, last = (torch.stack(part) for part in zip(*done, strict=True))
    last_ids = torch.where(last >= 0, last + bins.tile_offsets[:-1, None], -1)
    return (assemble(image, camera), assemble(transmittance, camera), assemble(depths, camera) if depth else None,
            assemble(last_ids, camera).to(torch.int32))


@torch.no_grad()
def count_contributors(projected: Projected, opacities_eff: Tensor, bins: TileBins, camera: Camera,
                       config: RasterConfig, between: Between = uninterrupted) -> Tensor:
    """[H,W] int32: how many Gaussians blend into each pixel (w > 0)."""
    counts = []
    for tile, (mean, conic, opacity) in enumerate(tile_lists(projected, opacities_eff, bins)):
        between()
        mixed = blend(mean, conic, opacity, tile_pixels(tile, camera, opacities_eff), config)
        counts.append((mixed.weights > 0).sum(0))
    return assemble(torch.stack(counts), camera).to(torch.int32)
