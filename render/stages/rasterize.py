"""Stage rasterize: sorted ellipses -> picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from render import interrupt, timing
from render.backends import buffers, cpu, cuda
from render.backends.signatures import BUCKET, bucket_bound
from render.config import TILE_SIZE, RasterConfig
from render.reference.absgrad import attach_tap
from render.reference.rasterize import rasterize as reference_rasterize
from render.types import Camera, GradientTap, Projected, TileBins


def _rows(bins: TileBins) -> Tensor:
    """[M,2] the rows to visit; all of them where the binning did not say."""
    if bins.rows is not None:
        return bins.rows
    return torch.tensor([0, TILE_SIZE], dtype=torch.uint8).repeat(len(bins.flatten_ids), 1)


def pack(k: cpu.CpuKernels, projected: Projected, opacities_eff: Tensor, colors: Tensor, depth: bool) -> Tensor:
    """[N,record] what the inner loops read of each Gaussian, one or two cache lines each."""
    n = len(opacities_eff)
    records = buffers.empty((n, k.record_size), opacities_eff.dtype)
    k.rasterize_pack(n, projected.means2d.detach(), projected.conics.detach(), projected.extents,
                     opacities_eff.detach(), colors.detach(), projected.depths.detach() if depth else None, records)
    return records


class _Rasterize(torch.autograd.Function):
    """Keeps, beside its inputs, only the final transmittance and the last index of each pixel."""

    @staticmethod
    def forward(ctx: Any, means2d: Tensor, conics: Tensor, depths: Tensor, colors: Tensor, opacities_eff: Tensor,
                background: Tensor, extents: Tensor, compensations: Tensor, bins: TileBins, camera: Camera,
                config: RasterConfig, with_depth: bool, tap: GradientTap | None) -> tuple[Tensor | None, ...]:
        k = cpu.kernels(means2d.dtype)
        projected = Projected(means2d, conics, depths, extents, compensations)
        records = pack(k, projected, opacities_eff, colors, with_depth)
        shape = (camera.height, camera.width)
        picture, transmittances = buffers.empty((*shape, 3), means2d.dtype), buffers.empty(shape, means2d.dtype)
        depth = buffers.empty(shape, means2d.dtype) if with_depth else None
        last_ids = buffers.empty(shape, torch.int32)
        k.rasterize_fwd(k.camera(camera, config), k.raster(config), background, bins.tile_offsets, bins.flatten_ids,
                        _rows(bins), records, picture, transmittances, depth, last_ids)
        ctx.save_for_backward(conics, opacities_eff, background, records, transmittances, last_ids)
        ctx.bins, ctx.camera, ctx.config, ctx.tap = bins, camera, config, tap
        ctx.mark_non_differentiable(last_ids)
        ctx.set_materialize_grads(False)
        return picture, transmittances, depth, last_ids

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        v_picture, v_transmittances, v_depth, _ = cotangents
        conics, opacities, background, records, transmittances, last_ids = ctx.saved_tensors
        bins, camera, config, tap = ctx.bins, ctx.camera, ctx.config, ctx.tap
        n, k = len(opacities), cpu.kernels(conics.dtype)
        v_picture = conics.new_zeros(camera.height, camera.width, 3) if v_picture is None else v_picture.contiguous()
        v_transmittances, v_depth = (None if v is None else v.contiguous() for v in (v_transmittances, v_depth))
        absolute = tap is not None and tap.absolute
        pairs = buffers.empty((len(bins.flatten_ids), k.pair_size), conics.dtype)
        k.rasterize_bwd(k.camera(camera, config), k.raster(config), background, bins.tile_offsets, bins.flatten_ids,
                        bins.emit_ids, _rows(bins), records, transmittances, last_ids, v_picture, v_transmittances, v_depth,
                        int(absolute), pairs)
        v_means2d, v_conics, v_opacities, v_colors = (buffers.empty(s, conics.dtype) for s in ((n, 2), (n, 3), (n,), (n, 3)))
        v_depths = None if v_depth is None else conics.new_empty(n)
        v_abs = buffers.empty((n, 2), conics.dtype) if absolute else None
        k.rasterize_gather(n, bins.emit_offsets, pairs, conics, opacities, v_means2d, v_conics, v_opacities, v_colors,
                           v_depths, v_abs)
        _fill(tap, v_means2d, v_abs, v_conics, v_colors, v_opacities)
        v_background = (v_picture * transmittances[..., None]).sum((0, 1)) if ctx.needs_input_grad[5] else None
        return v_means2d, v_conics, v_depths, v_colors, v_opacities, v_background, *(None,) * 7


def _fill(tap: GradientTap | None, v_means2d: Tensor, v_abs_means2d: Tensor | None, v_conics: Tensor, v_colors: Tensor,
          v_opacities: Tensor) -> None:
    if tap is not None:
        tap.v_means2d, tap.v_abs_means2d, tap.v_conics = v_means2d, v_abs_means2d, v_conics
        tap.v_colors, tap.v_opacities = v_colors, v_opacities


def _backward_by_buckets(k: cuda.CudaKernels, rules: tuple[Any, Any], splats: list[Tensor], transmittances: Tensor,
                         last_ids: Tensor, cotangents: tuple[Tensor | None, ...], gradients: tuple[Tensor | None, ...]) -> None:
    """Rebuild each pixel's state in front of every bucket, then a warp a bucket goes backward. The number of buckets is not
    read, which would wait for the device: there is room for as many as there can be."""
    background, tile_offsets, flatten_ids, *ellipses = splats
    per_tile = (torch.diff(tile_offsets) + (BUCKET - 1)) // BUCKET
    offsets = torch.cat([per_tile.new_zeros(1), torch.cumsum(per_tile, 0)])
    most = bucket_bound(len(flatten_ids), len(per_tile))
    tiles = torch.full((most,), -1, dtype=torch.int32, device=offsets.device)
    states = k.empty(most, 2, TILE_SIZE * TILE_SIZE)
    k.rasterize_buckets_states(*rules, *splats, offsets, transmittances, last_ids, *cotangents, tiles, states)
    v_picture, _, v_depth = cotangents
    k.rasterize_buckets_bwd(*rules, tile_offsets, flatten_ids, *ellipses, offsets, tiles, states, last_ids, v_picture, v_depth,
                            *gradients)


class _RasterizeCuda(torch.autograd.Function):
    """The same on CUDA: a block a tile reads the splats through shared memory, so nothing is packed beforehand."""

    @staticmethod
    def forward(ctx: Any, means2d: Tensor, conics: Tensor, depths: Tensor, colors: Tensor, opacities_eff: Tensor,
                background: Tensor, bins: TileBins, camera: Camera, config: RasterConfig, with_depth: bool,
                tap: GradientTap | None) -> tuple[Tensor | None, ...]:
        k = cuda.kernels(means2d.dtype)
        h, w = camera.height, camera.width
        picture, transmittances, last_ids = k.empty(h, w, 3), k.empty(h, w), k.empty(h, w, dtype=torch.int32)
        depth = k.empty(h, w) if with_depth else None
        splats = (background, bins.tile_offsets, bins.flatten_ids, means2d, conics, opacities_eff, colors, depths)
        k.rasterize_fwd(k.camera(camera, config), k.raster(config), *splats, picture, transmittances, depth, last_ids)
        ctx.save_for_backward(*splats, transmittances, last_ids)
        ctx.camera, ctx.config, ctx.tap = camera, config, tap
        ctx.mark_non_differentiable(last_ids)
        ctx.set_materialize_grads(False)
        return picture, transmittances, depth, last_ids

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        v_picture, v_transmittances, v_depth, _ = cotangents
        *splats, transmittances, last_ids = ctx.saved_tensors
        camera, tap, means2d = ctx.camera, ctx.tap, splats[3]
        n, k = len(means2d), cuda.kernels(means2d.dtype)
        v_picture = k.zeros(camera.height, camera.width, 3) if v_picture is None else v_picture.contiguous()
        v_transmittances, v_depth = (None if v is None else v.contiguous() for v in (v_transmittances, v_depth))
        v_means2d, v_conics, v_opacities, v_colors = k.zeros(n, 2), k.zeros(n, 3), k.zeros(n), k.zeros(n, 3)
        v_depths = None if v_depth is None else k.zeros(n)
        v_abs = k.zeros(n, 2) if tap is not None and tap.absolute else None
        rules = k.camera(camera, ctx.config), k.raster(ctx.config)
        cotangents = v_picture, v_transmittances, v_depth
        gradients = v_means2d, v_conics, v_opacities, v_colors, v_depths, v_abs
        if ctx.config.cuda_backward == "buckets":
            _backward_by_buckets(k, rules, splats, transmittances, last_ids, cotangents, gradients)
        else:
            k.rasterize_bwd(*rules, *splats, transmittances, last_ids, *cotangents, *gradients)
        _fill(tap, v_means2d, v_abs, v_conics, v_colors, v_opacities)
        v_background = (v_picture * transmittances[..., None]).sum((0, 1)) if ctx.needs_input_grad[5] else None
        return v_means2d, v_conics, v_depths, v_colors, v_opacities, v_background, *(None,) * 5


def rasterize(projected: Projected, colors: Tensor, opacities_eff: Tensor, bins: TileBins, camera: Camera,
              background: Tensor, config: RasterConfig, *, depth: bool, tap: GradientTap | None, backend: str
              ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(colors, transmittances, depths or None, last_ids); see render/reference/rasterize.py."""
    with timing.measure("rasterize"):
        if backend == "reference":
            picture = reference_rasterize(projected, colors, opacities_eff, bins, camera, background, config, depth,
                                          interrupt.check)
            if tap is not None:
                attach_tap(tap, projected, colors, opacities_eff, bins, camera, background, config, picture[:3],
                           interrupt.check)
            return picture
        if backend == "cuda":
            return _RasterizeCuda.apply(projected.means2d, projected.conics, projected.depths, colors, opacities_eff,
                                        background, bins, camera, config, depth, tap)
        return _Rasterize.apply(projected.means2d, projected.conics, projected.depths, colors, opacities_eff, background,
                                projected.extents, projected.compensations, bins, camera, config, depth, tap)


def count_contributors(projected: Projected, opacities_eff: Tensor, colors: Tensor, bins: TileBins, camera: Camera,
                       config: RasterConfig) -> Tensor:
    """[H,W] int32 on the CPU kernels: how many Gaussians blend into each pixel."""
    k = cpu.kernels(opacities_eff.dtype)
    records = pack(k, projected, opacities_eff, colors, False)
    counts = buffers.empty((camera.height, camera.width), torch.int32)
    k.rasterize_count(k.camera(camera, config), k.raster(config), bins.tile_offsets, bins.flatten_ids, _rows(bins),
                      records, counts)
    return counts


def count_contributors_cuda(projected: Projected, opacities_eff: Tensor, colors: Tensor, bins: TileBins, camera: Camera,
                            config: RasterConfig) -> Tensor:
    """The same on CUDA."""
    k = cuda.kernels(opacities_eff.dtype)
    counts = k.empty(camera.height, camera.width, dtype=torch.int32)
    k.rasterize_count(k.camera(camera, config), k.raster(config), colors.new_zeros(3), bins.tile_offsets, bins.flatten_ids,
                      projected.means2d, projected.conics, opacities_eff, colors, None, counts)
    return counts
