"""Stage rasterize: sorted ellipses -> picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import timing
from render.backends import cpu
from render.config import RasterConfig
from render.reference.absgrad import attach_tap
from render.reference.rasterize import rasterize as reference_rasterize
from render.types import Camera, GradientTap, Projected, TileBins


def pack(k: cpu.Kernels, projected: Projected, opacities_eff: Tensor, colors: Tensor, config: RasterConfig,
         depth: bool) -> Tensor:
    """[N,record] what the inner loops read of each Gaussian, one or two cache lines each."""
    n = len(opacities_eff)
    raw = torch.empty(n * k.record_size + 16, dtype=opacities_eff.dtype)
    skip = -raw.data_ptr() % 64 // raw.element_size()
    records = raw[skip:skip + n * k.record_size].view(n, k.record_size)
    k.rasterize_pack(k.raster(config), n, projected.means2d.detach(), projected.conics.detach(), projected.extents,
                     opacities_eff.detach(), colors.detach(), projected.depths.detach() if depth else None, records)
    return records


class _Rasterize(torch.autograd.Function):
    """Keeps, beside its inputs, only the final transmittance and the last index of each pixel."""

    @staticmethod
    def forward(ctx: Any, means2d: Tensor, conics: Tensor, depths: Tensor, colors: Tensor, opacities_eff: Tensor,
                background: Tensor, extents: Tensor, compensations: Tensor, bins: TileBins, camera: Camera,
                config: RasterConfig, with_depth: bool, tap: GradientTap | None) -> tuple[Tensor, ...]:
        k = cpu.kernels(means2d.dtype)
        projected = Projected(means2d, conics, depths, extents, compensations)
        records = pack(k, projected, opacities_eff, colors, config, with_depth)
        shape = (camera.height, camera.width)
        picture, transmittances = means2d.new_empty(*shape, 3), means2d.new_empty(shape)
        depth = means2d.new_empty(shape) if with_depth else None
        last_ids = torch.empty(shape, dtype=torch.int32)
        k.rasterize_fwd(k.camera(camera, config), k.raster(config), background, bins.tile_offsets, bins.flatten_ids, records,
                        picture, transmittances, depth, last_ids)
        ctx.save_for_backward(conics, opacities_eff, background, records, transmittances, last_ids)
        ctx.bins, ctx.camera, ctx.config, ctx.tap = bins, camera, config, tap
        ctx.mark_non_differentiable(last_ids)
        ctx.set_materialize_grads(False)
        return picture, transmittances, depth, last_ids

    @staticmethod
    def backward(ctx: Any, v_picture: Tensor | None, v_transmittances: Tensor | None, v_depth: Tensor | None,
                 _: Any) -> tuple[Tensor | None, ...]:
        conics, opacities, background, records, transmittances, last_ids = ctx.saved_tensors
        bins, camera, config, tap = ctx.bins, ctx.camera, ctx.config, ctx.tap
        n, k = len(opacities), cpu.kernels(conics.dtype)
        v_picture = conics.new_zeros(camera.height, camera.width, 3) if v_picture is None else v_picture.contiguous()
        v_transmittances, v_depth = (None if v is None else v.contiguous() for v in (v_transmittances, v_depth))
        absolute = tap is not None and tap.absolute
        pairs = conics.new_empty(len(bins.flatten_ids), k.pair_size)
        k.rasterize_bwd(k.camera(camera, config), k.raster(config), background, bins.tile_offsets, bins.flatten_ids,
                        bins.emit_ids, records, transmittances, last_ids, v_picture, v_transmittances, v_depth,
                        int(absolute), pairs)
        v_means2d, v_conics, v_opacities, v_colors = (conics.new_empty(s) for s in ((n, 2), (n, 3), (n,), (n, 3)))
        v_depths = None if v_depth is None else conics.new_empty(n)
        v_abs = conics.new_empty(n, 2) if absolute else None
        k.rasterize_gather(n, bins.emit_offsets, pairs, conics, opacities, v_means2d, v_conics, v_opacities, v_colors,
                           v_depths, v_abs)
        if tap is not None:
            tap.v_means2d, tap.v_abs_means2d, tap.v_conics = v_means2d, v_abs, v_conics
            tap.v_colors, tap.v_opacities = v_colors, v_opacities
        v_background = (v_picture * transmittances[..., None]).sum((0, 1)) if ctx.needs_input_grad[5] else None
        return v_means2d, v_conics, v_depths, v_colors, v_opacities, v_background, *(None,) * 7


def rasterize(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
              background: Tensor, config: RasterConfig, *, depth: bool, tap: GradientTap | None, backend: str
              ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(colors, transmittances, depths or None, last_ids); see render/reference/rasterize.py."""
    with timing.measure("rasterize"):
        if backend == "reference":
            picture = reference_rasterize(projected, colors, opacities_eff, bins, camera, background, config, depth)
            if tap is not None:
                attach_tap(tap, projected, colors, opacities_eff, bins, camera, background, config, picture[:3])
            return picture
        return _Rasterize.apply(projected.means2d, projected.conics, projected.depths, colors, opacities_eff, background,
                                projected.extents, projected.compensations, bins, camera, config, depth, tap)


def count_contributors(projected: Projected, opacities_eff: Tensor, colors: Tensor, bins: TileBins, camera: Camera,
                       config: RasterConfig) -> Tensor:
    """[H,W] int32 on the CPU kernels: how many Gaussians blend into each pixel."""
    k = cpu.kernels(opacities_eff.dtype)
    records = pack(k, projected, opacities_eff, colors, config, False)
    counts = torch.empty(camera.height, camera.width, dtype=torch.int32)
    k.rasterize_count(k.camera(camera, config), k.raster(config), bins.tile_offsets, bins.flatten_ids, records, counts)
    return counts
