"""Gradients for those who look: the tap, and AbsGS's sum of absolute per-pixel gradients (Ye et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from render.config import RasterConfig
from render.reference.rasterize import Between, blend, cut, tile_lists, tile_pixels, uninterrupted
from render.types import Camera, GradientTap, Projected, TileBins


def absolute_means2d_gradient(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins,
                              camera: Camera, background: Tensor, config: RasterConfig, v_colors: Tensor | None,
                              v_transmittances: Tensor | None = None, v_depths: Tensor | None = None,
                              between: Between = uninterrupted) -> Tensor:
    """[N,2] sum over pixels of |dL/dmean2d of that pixel alone|, from the image's cotangents ([H,W,3], [H,W], [H,W]).

    Each pixel gets its own copy of every mean, so that autograd itself keeps the pixels apart. Summing without the
    absolute value gives dL/dmeans2d; opposite pulls on one Gaussian cancel there and add up here.
    """
    rows = [t.detach() for t in (opacities_eff, colors, projected.depths)]
    held = Projected(*(getattr(projected, name).detach()
                       for name in ("means2d", "conics", "depths", "extents", "compensations")))
    height_width = (camera.height, camera.width)
    images = [v if v is not None else background.new_zeros(height_width + tail)
              for v, tail in ((v_colors, (3,)), (v_transmittances, ()), (v_depths, ()))]
    v_color, v_transmittance, v_depth = (cut(v.detach(), camera) for v in images)
    total = torch.zeros_like(held.means2d)
    start = bins.tile_offsets.tolist()
    for tile, (means2d, conics, opacity, color, depth) in enumerate(tile_lists(held, rows[0], bins, *rows[1:])):
        if len(means2d) == 0:
            continue
        between()
        pixels = tile_pixels(tile, camera, background)
        with torch.enable_grad():
            own = means2d[:, None].repeat(1, len(pixels), 1).requires_grad_()  # [n,P,2]
            mixed = blend(own, conics, opacity, pixels, config)
            weights = mixed.weights
            image = weights.T @ color + mixed.transmittance[:, None] * background.detach()
            loss = ((image * v_color[tile]).sum() + (mixed.transmittance * v_transmittance[tile]).sum()
                    + ((weights.T @ depth) * v_depth[tile]).sum())
        (per_pixel,) = torch.autograd.grad(loss, own)
        total.index_add_(0, bins.flatten_ids[start[tile]:start[tile + 1]].long(), per_pixel.abs().sum(1))
    return total


def attach_tap(tap: GradientTap, projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins,
               camera: Camera, background: Tensor, config: RasterConfig,
               picture: tuple[Tensor, Tensor, Tensor | None], between: Between = uninterrupted) -> None:
    """Hook into the graph of a rasterized picture (colors, transmittances, depths), so that backward() fills the tap.

    A picture that records no gradient leaves the tap as it is.
    """
    cotangents: list[Tensor | None] = [None, None, None]

    def keep(name: str):
        def hook(gradient: Tensor) -> None:
            setattr(tap, name, gradient.detach())
            if name == "v_means2d" and tap.absolute:  # by now every output's cotangent has passed
                tap.v_abs_means2d = absolute_means2d_gradient(
                    projected, colors, opacities_eff, bins, camera, background, config, *cotangents, between=between)
                cotangents[:] = [None, None, None]
        return hook

    def remember(place: int):
        def hook(gradient: Tensor) -> None:
            cotangents[place] = gradient.detach()
        return hook

    for name, tensor in (("v_means2d", projected.means2d), ("v_conics", projected.conics), ("v_colors", colors),
                         ("v_opacities", opacities_eff)):
        if tensor.requires_grad:
            tensor.register_hook(keep(name))
    for place, output in enumerate(picture):
        if output is not None and output.requires_grad:
            output.register_hook(remember(place))
