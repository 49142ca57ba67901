"""Which Gaussians may touch which tile, front to back: one depth order over Gaussians, then a stable sort by tile."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from render.config import TILE_SIZE, RasterConfig
from render.reference.project import footprint_level
from render.reference.rasterize import Between, uninterrupted
from render.shapes import check
from render.types import Camera, Projected, TileBins

BYTES_PER_INTERSECTION = 64
"""What one (tile, Gaussian) pair costs a training step on the CPU kernels, float32: flatten_ids and emit_ids (int32 each),
two rows (uint8), scratch of the counting sort (6) and the gradient record of 12 numbers that the backward leaves."""
_CHUNK = 2**18  # candidate pairs tested at once; bounds the memory of the test, not its result


class IntersectionBudgetError(RuntimeError):
    """The Gaussians touch more tiles than the byte budget allows."""


def check_intersections(count: int, extents: Tensor, config: RasterConfig) -> None:
    """Raise IntersectionBudgetError, before anything is allocated, if `count` pairs do not fit.

    extents [N,2] px: the largest are named in the message, since they are who fills the budget.
    """
    if count < 0:
        raise IntersectionBudgetError(f"binning counted {count} tile intersections: the count overflowed")
    budget = config.max_intersection_bytes
    if count * BYTES_PER_INTERSECTION <= budget and count < 2**31:
        return
    radii, ids = torch.topk(extents.max(dim=-1).values, min(3, extents.shape[0]))
    named = zip(radii.tolist(), ids.tolist(), strict=True)
    largest = ", ".join(f"{radius:.0f} px (Gaussian {index})" for radius, index in named)
    why = (f"{count * BYTES_PER_INTERSECTION} bytes, more than the budget max_intersection_bytes {budget}"
           if count < 2**31 else "more than the 2147483647 that an index can name")
    raise IntersectionBudgetError(
        f"{count} tile intersections need {why}; the largest footprints are {largest}. "
        "Prune the largest Gaussians, render smaller or raise max_intersection_bytes.")


def nearest_q(conics: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """[P] least q(d) = a dx^2 + 2b dx dy + c dy^2 over the rectangle lo <= d <= hi; conics [P,3], lo, hi [P,2].

    q is convex with its minimum 0 at d = 0: inside the rectangle it is 0, else the minimum lies on one of the four
    edges, where q is a parabola whose vertex is clamped to the edge.
    """
    a, b, c = conics.unbind(-1)
    inside = ((lo <= 0) & (hi >= 0)).all(-1)
    best = torch.full_like(a, torch.inf)
    for side in (lo, hi):
        dx = side[:, 0]
        dy = torch.minimum(torch.maximum(-b * dx / c, lo[:, 1]), hi[:, 1])
        best = torch.minimum(best, a * dx * dx + 2 * b * dx * dy + c * dy * dy)
        dy = side[:, 1]
        dx = torch.minimum(torch.maximum(-b * dy / a, lo[:, 0]), hi[:, 0])
        best = torch.minimum(best, a * dx * dx + 2 * b * dx * dy + c * dy * dy)
    return torch.where(inside, 0.0, best)


def _pairs(projected: Projected, level: Tensor, camera: Camera) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunks of touching (Gaussian ids, tile ids), int64, Gaussian-major and row-major inside a Gaussian."""
    across, down = camera.tiles
    ids = torch.nonzero(projected.extents[:, 0] > 0).flatten()
    center, extents = projected.means2d[ids], projected.extents[ids]
    tiles = torch.tensor([across, down], device=ids.device)
    first = torch.clamp((center - extents) / TILE_SIZE, min=0).floor().long()
    last = torch.minimum(((center + extents) / TILE_SIZE).clamp(max=float(max(across, down))).floor().long(), tiles - 1)
    span = torch.clamp(last - first + 1, min=0)
    candidates = span[:, 0] * span[:, 1]
    groups = torch.div(torch.cumsum(candidates, 0), _CHUNK, rounding_mode="floor")
    for rows in torch.split(torch.arange(len(ids), device=ids.device), torch.unique_consecutive(
            groups, return_counts=True)[1].tolist()):
        count = candidates[rows]
        owner = torch.repeat_interleave(rows, count)
        started = torch.repeat_interleave(torch.cumsum(count, 0) - count, count)
        local = torch.arange(len(owner), device=ids.device) - started
        tx = first[owner, 0] + local % span[owner, 0]
        ty = first[owner, 1] + local // span[owner, 0]
        tile = torch.stack([tx, ty], dim=-1)
        # Pixel centres of the tile, seen from the mean; the last tile of a row or column may be cut by the image.
        size = center.new_tensor([camera.width, camera.height])
        lo = tile * TILE_SIZE + 0.5 - center[owner]
        hi = torch.minimum((tile + 1) * TILE_SIZE - 0.5, size - 0.5) - center[owner]
        touches = nearest_q(projected.conics[ids[owner]], lo, hi) <= level[ids[owner]]
        yield ids[owner][touches], (ty * across + tx)[touches]


@torch.no_grad()
def bin_tiles(projected: Projected, opacities_eff: Tensor, camera: Camera, config: RasterConfig,
              between: Between = uninterrupted) -> TileBins:
    """Lists per tile of the Gaussians whose ellipse {q <= 2 ln(opacity/cutoff)} reaches a pixel centre of the tile.

    opacities_eff [N] are opacities times compensations. Exact for ellipse against rectangle and conservative by
    FOOTPRINT_MARGIN. Equal depths keep index order. Counting comes first: a count above the byte budget (64 bytes per
    intersection) raises IntersectionBudgetError before the lists are allocated.
    """
    check(means2d=(projected.means2d, "N 2"), conics=(projected.conics, "N 3"), depths=(projected.depths, "N"),
          extents=(projected.extents, "N 2"), opacities_eff=(opacities_eff, "N"))
    n, device = len(opacities_eff), opacities_eff.device
    across, down = camera.tiles
    level = footprint_level(opacities_eff, config)

    counts = torch.zeros(n, dtype=torch.int64, device=device)
    for gaussians, _ in _pairs(projected, level, camera):
        between()
        counts += torch.bincount(gaussians, minlength=n)
    check_intersections(int(counts.sum()), projected.extents, config)

    chunks = []
    for chunk in _pairs(projected, level, camera):
        between()
        chunks.append(chunk)
    empty = torch.zeros(0, dtype=torch.int64, device=device)
    gaussians = torch.cat([empty, *(g for g, _ in chunks)])
    tiles = torch.cat([empty, *(t for _, t in chunks)])
    rank = torch.empty(n, dtype=torch.int64, device=device)
    rank[torch.argsort(projected.depths, stable=True)] = torch.arange(n, device=device)
    order = torch.argsort(tiles * n + rank[gaussians], stable=True)
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    per_tile = torch.bincount(tiles, minlength=across * down)
    return TileBins(
        tile_offsets=torch.cat([zero, torch.cumsum(per_tile, 0)]),
        flatten_ids=gaussians[order].to(torch.int32),
        emit_ids=order.to(torch.int32),
        emit_offsets=torch.cat([zero, torch.cumsum(counts, 0)]),
    )
