"""The backward pass that remembers almost nothing: forward leaves landmarks, backward walks the tiles again.

Autograd would keep alpha, T and w of every (Gaussian, pixel) pair. Here forward keeps only, per pixel, the final
transmittance, and per tile, its range in the sorted list. Backward recomputes alpha over exactly that list, then

    dL/dc_n      = sum_p w_np g_p,                  g_p = dL/dC_p, since C_p is linear in c_n                    (1)
    T_n          = T_{n+1} / (1 - alpha_n),         back to front from the final T: no T was stored              (2)
    dL/dalpha_n  = T_n (g.c_n - S_n / T_{n+1}),     S_n = sum_{m>n} w_m g.c_m + T_N (g.background + v_T)         (3)
    dL/dsigma_n  = -raw dL/draw,  dL/dopacity_n = G dL/draw,  raw = opacity G, G = exp(-sigma)                   (4)
    dsigma/dmean = -(a dx + b dy, b dx + c dy),     dsigma/d(a,b,c) = (dx^2/2, dx dy, dy^2/2)                    (5)

(3) is dC/dalpha of composite.py with the final transmittance T_N as one more sample of colour `background`.
The kernels follow this file; the words to look for there are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from render.config import RasterConfig
from render.reference.rasterize import assemble, blend, clamp_alpha, cut, fade, tile_pixels
from render.types import Camera, Projected, TileBins


@dataclass
class Landmarks:
    """What forward leaves for backward, beside its inputs."""

    indices_onscreen: Tensor  # [S] which of the N inputs stands at place s of the visible, depth-sorted list
    ids_sorted: Tensor        # [M] places in that list, tile after tile, front to back
    tile_starts: list[int]    # [T+1]
    transmittances: Tensor    # [T,256]


def indices_onscreen(projected: Projected) -> Tensor:
    """[S] original indices of the Gaussians that are kept, front to back.

    Each filter and the sort act on the list of original indices as they act on the data, so entry s always says where
    gradient row s has to go home to.
    """
    original = torch.arange(len(projected.depths), device=projected.depths.device)
    kept = original[projected.extents[:, 0] > 0]                              # culling
    return kept[torch.argsort(projected.depths[kept].detach(), stable=True)]  # depth order


def _landmarks(projected: Projected, bins: TileBins) -> Landmarks:
    home = indices_onscreen(projected)
    place = torch.full((len(projected.depths),), -1, dtype=torch.int64, device=home.device)
    place[home] = torch.arange(len(home), device=home.device)
    return Landmarks(home, place[bins.flatten_ids.long()], bins.tile_offsets.tolist(), projected.depths.new_zeros(0))


def _alpha_slope(raw: Tensor, config: RasterConfig) -> Tensor:
    """d alpha / d raw of clamp and cutoff; autograd of two one-line functions, pointwise."""
    with torch.enable_grad():
        leaf = raw.detach().requires_grad_()
        return torch.autograd.grad(fade(clamp_alpha(leaf, config), config).sum(), leaf)[0]


class RecomputeRasterize(torch.autograd.Function):
    """rasterize() of colours and transmittances with a hand-written, recomputing backward."""

    @staticmethod
    def forward(ctx: Any, means2d: Tensor, conics: Tensor, opacities_eff: Tensor, colors: Tensor, background: Tensor,
                landmarks: Landmarks, camera: Camera, config: RasterConfig) -> tuple[Tensor, Tensor]:
        home = landmarks.indices_onscreen
        rows = [t[home] for t in (means2d, conics, opacities_eff, colors)]    # sorted copies, front to back
        images, transmittances = [], []
        for tile, (start, end) in enumerate(zip(landmarks.tile_starts[:-1], landmarks.tile_starts[1:], strict=True)):
            mean, conic, opacity, color = (row[landmarks.ids_sorted[start:end]] for row in rows)
            mixed = blend(mean, conic, opacity, tile_pixels(tile, camera, background), config)
            images.append(mixed.weights.T @ color + mixed.transmittance[:, None] * background)
            transmittances.append(mixed.transmittance)
        landmarks.transmittances = torch.stack(transmittances)
        ctx.save_for_backward(*rows, background)
        ctx.landmarks, ctx.camera, ctx.config, ctx.count = landmarks, camera, config, len(colors)
        return assemble(torch.stack(images), camera), assemble(landmarks.transmittances, camera)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *rows, background = ctx.saved_tensors
        landmarks, camera, config = ctx.landmarks, ctx.camera, ctx.config
        v_image, v_transmittance = (cut(v, camera) for v in gradients)
        v_sorted = [torch.zeros_like(row) for row in rows]
        v_background = torch.zeros_like(background)
        for tile, (start, end) in enumerate(zip(landmarks.tile_starts[:-1], landmarks.tile_starts[1:], strict=True)):
            ids_tile = landmarks.ids_sorted[start:end]
            final = landmarks.transmittances[tile]
            v_background += final @ v_image[tile]
            v_tile = _tile_backward([row[ids_tile] for row in rows], background, tile_pixels(tile, camera, background),
                                    final, v_image[tile], v_transmittance[tile], config)
            for total, part in zip(v_sorted, v_tile, strict=True):  # a Gaussian's tiles add up
                total.scatter_add_(0, _as_index(ids_tile, part), part)
        v_inputs = [row.new_zeros(ctx.count, *row.shape[1:]) for row in rows]
        for total, part in zip(v_inputs, v_sorted, strict=True):    # from depth order home to the input's order
            total.scatter_add_(0, _as_index(landmarks.indices_onscreen, part), part)
        return (*v_inputs, v_background, None, None, None)


def _as_index(ids: Tensor, rows: Tensor) -> Tensor:
    """Row numbers [n] spread to the shape of rows [n,...], as scatter_add_ wants them."""
    return ids.reshape(-1, *[1] * (rows.ndim - 1)).expand_as(rows)


def _tile_backward(rows: list[Tensor], background: Tensor, pixels: Tensor, final: Tensor, v_image: Tensor,
                   v_transmittance: Tensor, config: RasterConfig) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of one tile's n Gaussians: means2d [n,2], conics [n,3], opacities [n], colours [n,3]."""
    means2d, conics, opacities, colors = rows
    mixed = blend(means2d, conics, opacities, pixels, config)  # recomputed; only alphas, raw and sigmas are used below
    alphas = mixed.alphas

    v_alpha = torch.zeros_like(alphas)
    weights = torch.zeros_like(alphas)
    after = final.clone()                                       # T_{n+1}, from the landmark
    pull_background = v_image @ background + v_transmittance
    hidden = final * pull_background                            # S_n of (3)
    for n in reversed(range(len(alphas))):
        before = after / (1 - alphas[n])                        # (2)
        weights[n] = before * alphas[n]
        pull = v_image @ colors[n]
        v_alpha[n] = before * pull - hidden / (1 - alphas[n])   # (3)
        hidden = hidden + weights[n] * pull
        after = before

    blended = alphas > 0
    v_raw = torch.where(blended, v_alpha * _alpha_slope(mixed.raw, config), 0.0)
    v_sigma = -mixed.raw * v_raw                                # (4)
    dx, dy = (pixels - means2d[:, None]).unbind(-1)
    a, b, c = (conics[:, i, None] for i in range(3))
    v_means2d = -(v_sigma[..., None] * torch.stack([a * dx + b * dy, b * dx + c * dy], dim=-1)).sum(1)       # (5)
    v_conics = (v_sigma[..., None] * torch.stack([dx * dx / 2, dx * dy, dy * dy / 2], dim=-1)).sum(1)
    v_opacities = (v_raw * torch.exp(-mixed.sigmas)).sum(1)
    # (1): [n,P,1] * [1,P,3], summed over the pixels.
    v_colors = (weights.unsqueeze(-1) * v_image.unsqueeze(0)).sum(dim=1)
    return v_means2d, v_conics, v_opacities, v_colors


def rasterize_recompute(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
                        background: Tensor, config: RasterConfig) -> tuple[Tensor, Tensor]:
    """(colors [H,W,3], transmittances [H,W]) as rasterize(), with the backward of this file."""
    return RecomputeRasterize.apply(projected.means2d, projected.conics, opacities_eff, colors, background,
                                    _landmarks(projected, bins), camera, config)  # pyright: ignore[reportReturnType]
