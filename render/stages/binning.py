"""Stage binning: which Gaussians may touch which tile, front to back."""

from __future__ import annotations

import torch
from torch import Tensor

from render import interrupt, timing
from render.backends import buffers, cpu, cuda
from render.config import RasterConfig
from render.reference.binning import BYTES_PER_INTERSECTION, check_intersections
from render.reference.binning import bin_tiles as reference_bin_tiles
from render.types import Camera, Projected, TileBins


def _bin_cpu(projected: Projected, opacities: Tensor, camera: Camera, config: RasterConfig) -> TileBins:
    k = cpu.kernels(opacities.dtype)
    view, rules = k.camera(camera, config), k.raster(config)
    means2d, conics, depths, extents = (t.detach() for t in (
        projected.means2d, projected.conics, projected.depths, projected.extents))
    n, tiles = len(opacities), camera.tiles[0] * camera.tiles[1]
    order = buffers.empty((n,), torch.int32)
    bounds = torch.empty(k.chunks + 1, dtype=torch.int64)
    visible = k.binning_order(view, n, means2d, depths, extents, order, bounds)
    bound = int(bounds[-1])  # of the boxes' tiles, never below the exact count
    # A bound within twice the budget is counted exactly before it is judged; the scratch list stays that small.
    if bound * BYTES_PER_INTERSECTION > 2 * config.max_intersection_bytes:
        check_intersections(bound, extents, config)
    pairs, rows = buffers.empty((bound,), torch.int32), buffers.empty((bound, 2), torch.uint8)
    emit_offsets, tile_offsets = buffers.empty((n + 1,), torch.int64), torch.empty(tiles + 1, dtype=torch.int64)
    cursors = buffers.empty((k.chunks * tiles,), torch.int64)
    count = k.binning_count(view, rules, n, visible, means2d, conics, extents, opacities.detach(), order, bounds, pairs,
                            rows, emit_offsets, tile_offsets, cursors)
    check_intersections(count, extents, config)
    flatten_ids, emit_ids = (buffers.empty((count,), torch.int32) for _ in range(2))
    tile_rows = buffers.empty((count, 2), torch.uint8)
    k.binning_emit(tiles, n, visible, order, bounds, pairs, rows, emit_offsets, cursors, flatten_ids, emit_ids, tile_rows)
    return TileBins(tile_offsets, flatten_ids, emit_ids, emit_offsets, tile_rows)


NARROW_TILES = 2**15 - 1
"""Tile keys are 16 bits wide up to so many tiles: half of what a sort of 32 bits moves."""


def _bin_cuda(projected: Projected, opacities: Tensor, camera: Camera, config: RasterConfig) -> TileBins:
    """Torch sorts, the kernels count and emit. Reading the number of pairs is the only wait for the device in a step."""
    k = cuda.kernels(opacities.dtype)
    n, tiles = len(opacities), camera.tiles[0] * camera.tiles[1]
    means2d, conics, depths, extents = (t.detach() for t in (
        projected.means2d, projected.conics, projected.depths, projected.extents))
    order = torch.sort(depths, stable=True).indices.to(torch.int32)
    inputs = (k.camera(camera, config), k.raster(config), torch.finfo(opacities.dtype).eps, n, order, means2d, conics,
              extents, opacities.detach())
    counts = k.empty(n, dtype=torch.int32)
    k.binning_count(*inputs, counts)
    ends = torch.cumsum(counts, 0, dtype=torch.int64)
    (total,) = map(int, cuda.later.read(ends[-1:])) if n else (0,)
    check_intersections(total, extents, config)
    wide = tiles > NARROW_TILES
    keys, ids = k.empty(total, dtype=torch.int32 if wide else torch.int16), k.empty(total, dtype=torch.int32)
    (k.binning_emit32 if wide else k.binning_emit16)(*inputs, ends - counts, counts, keys, ids)
    keys, places = torch.sort(keys, stable=True)
    offsets = k.empty(tiles + 1, dtype=torch.int64)
    (k.binning_ranges32 if wide else k.binning_ranges16)(total, tiles, keys, offsets)
    return TileBins(offsets, ids[places])


def bin_tiles(projected: Projected, opacities_eff: Tensor, camera: Camera, config: RasterConfig,
              backend: str) -> TileBins:
    """See render/reference/binning.py; carries no gradient."""
    with timing.measure("binning"):
        if backend == "reference":
            return reference_bin_tiles(projected, opacities_eff, camera, config, interrupt.check)
        if backend == "cuda":
            return _bin_cuda(projected, opacities_eff, camera, config)
        return _bin_cpu(projected, opacities_eff, camera, config)
