"""Tile lists of the reference renderer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from render.config import TILE_SIZE, RasterConfig
from render.reference import binning
from render.reference.binning import IntersectionBudgetError, bin_tiles, check_intersections
from render.reference.project import footprint_level, project
from render.reference.rasterize import count_contributors
from tests import scenes

CONFIG = RasterConfig()


def binned(case: scenes.Case, config: RasterConfig = CONFIG):
    g = case.gaussians()
    projected = project(g.means, g.quats, g.scales, g.opacities, case.camera, config)
    opacities = g.opacities * projected.compensations
    return projected, opacities, bin_tiles(projected, opacities, case.camera, config)


def lists(bins) -> list[list[int]]:
    offsets = bins.tile_offsets.tolist()
    return [bins.flatten_ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


def q_at(projected, i: int, x, y):
    dx, dy = x - projected.means2d[i, 0].item(), y - projected.means2d[i, 1].item()
    a, b, c = projected.conics[i].tolist()
    return a * dx * dx + 2 * b * dx * dy + c * dy * dy


@pytest.mark.parametrize("name", ["needles", "not_a_tile_multiple", "outside_clamp", "one_pixel_wide", "random"])
def test_a_tile_lists_exactly_the_ellipses_that_reach_its_pixel_centres(name):
    case = scenes.make_random(90, 90, 70, 1) if name == "random" else scenes.EDGE_CASES[name]()
    projected, opacities, bins = binned(case)
    level = footprint_level(opacities, CONFIG)
    across, down = case.camera.tiles
    listed_pairs = 0
    for tile, listed in enumerate(lists(bins)):
        x0, y0 = tile % across * TILE_SIZE, tile // across * TILE_SIZE
        x1, y1 = min(x0 + TILE_SIZE, case.camera.width) - 0.5, min(y0 + TILE_SIZE, case.camera.height) - 0.5
        x, y = np.meshgrid(np.linspace(x0 + 0.5, x1, 121), np.linspace(y0 + 0.5, y1, 121))
        for i in range(len(opacities)):
            if projected.extents[i, 0] == 0:
                assert i not in listed
                continue
            least = q_at(projected, i, x, y).min()
            if least <= level[i].item():
                assert i in listed, f"tile {tile}: Gaussian {i} with q {least} is missing"
            elif i in listed:  # a sample stands within 1/16 px of the minimum, where q is flat along the edge
                a, _, c = projected.conics[i].tolist()
                assert least - level[i].item() <= 0.5 * (a + c) / 16**2, f"tile {tile}: {i} is listed for nothing"
            listed_pairs += i in listed
    assert listed_pairs == len(bins.flatten_ids) > 0


def test_box_alone_would_list_more():
    _, _, bins = binned(scenes.needles())
    projected, _, _ = binned(scenes.needles())
    first = torch.clamp((projected.means2d - projected.extents) / TILE_SIZE, min=0).floor()
    last = torch.minimum((projected.means2d + projected.extents).div(TILE_SIZE).floor(),
                         torch.tensor(scenes.needles().camera.tiles) - 1)
    assert len(bins.flatten_ids) < 0.9 * (last - first + 1).prod(-1).sum()


@pytest.mark.parametrize("name", ["depth_ties", "needles", "stack_257", "exact_tiles", "empty", "none_visible"])
def test_lists_are_front_to_back_ties_by_index_and_the_emission_order_is_gaussian_major(name):
    case = scenes.EDGE_CASES[name]()
    projected, _, bins = binned(case)
    depths = projected.depths.tolist()
    for listed in lists(bins):
        assert listed == sorted(listed, key=lambda i: (depths[i], i))
    n, m = len(case.params), len(bins.flatten_ids)
    assert bins.tile_offsets.dtype == bins.emit_offsets.dtype == torch.int64
    assert bins.flatten_ids.dtype == bins.emit_ids.dtype == torch.int32
    assert bins.emit_offsets.shape == (n + 1,) and bins.emit_offsets[-1] == bins.tile_offsets[-1] == m
    gaussian_major = torch.full((m,), -1)
    gaussian_major[bins.emit_ids.long()] = bins.flatten_ids.long()
    assert torch.equal(gaussian_major, torch.repeat_interleave(torch.arange(n), torch.diff(bins.emit_offsets)))


def test_depth_ties_keep_index_order_at_every_pair():
    _, _, bins = binned(scenes.depth_ties())
    ties = 0
    for listed in lists(bins):
        for front in listed:
            if front % 2 == 0:
                assert listed[listed.index(front) + 1] == front + 1
                ties += 1
    assert ties >= 10


def test_small_chunks_give_the_same_lists(monkeypatch):
    whole = binned(scenes.needles())[2]
    monkeypatch.setattr(binning, "_CHUNK", 5)
    chunked = binned(scenes.needles())[2]
    for name in ("tile_offsets", "flatten_ids", "emit_ids", "emit_offsets"):
        assert torch.equal(getattr(whole, name), getattr(chunked, name)), name


def test_N17_opacity_below_the_cutoff_touches_no_tile():
    projected, _, bins = binned(scenes.transparent())
    assert (projected.extents == 0).all()
    assert len(bins.flatten_ids) == 0
    # one ulp around the cutoff
    case = scenes.single()
    g = case.gaussians()
    for opacity, touches in ((np.nextafter(CONFIG.cutoff, 0), False), (CONFIG.cutoff, True)):
        opacities = torch.tensor([opacity], dtype=torch.float64)
        projected = project(g.means, g.quats, g.scales, opacities, case.camera, CONFIG)
        assert (len(bin_tiles(projected, opacities, case.camera, CONFIG).flatten_ids) > 0) == touches


def test_D18_budget_error_names_count_budget_and_the_largest_footprints():
    case = scenes.make_random(100, 90, 70, 1)
    projected, _, bins = binned(case)
    count = len(bins.flatten_ids)
    bytes_needed = count * binning.BYTES_PER_INTERSECTION
    assert len(binned(case, replace(CONFIG, max_intersection_bytes=bytes_needed))[2].flatten_ids) == count
    with pytest.raises(IntersectionBudgetError) as error:
        binned(case, replace(CONFIG, max_intersection_bytes=bytes_needed - 1))
    radius, index = projected.extents.max(-1).values.max(0)
    for part in (f"{count} tile intersections", f"{bytes_needed} bytes", f"max_intersection_bytes {bytes_needed - 1}",
                 f"{radius.item():.0f} px (Gaussian {index.item()})", "Prune"):
        assert part in str(error.value)


def test_N19_N20_counts_beyond_an_index_or_below_zero_are_errors_whatever_the_budget():
    config = replace(CONFIG, max_intersection_bytes=2**60)
    extents = torch.ones(4, 2)
    check_intersections(2**31 - 1, extents, config)
    with pytest.raises(IntersectionBudgetError, match="2147483648 tile intersections"):
        check_intersections(2**31, extents, config)
    with pytest.raises(IntersectionBudgetError, match="-1"):
        check_intersections(-1, extents, config)


def test_N19_count_is_checked_before_the_lists_are_made(monkeypatch):
    counted = []

    def fake_pairs(projected, level, camera):
        assert not counted, "the lists were begun although the count does not fit"
        counted.append(True)
        yield torch.zeros(600, dtype=torch.int64), torch.zeros(600, dtype=torch.int64)

    monkeypatch.setattr(binning, "_pairs", fake_pairs)
    with pytest.raises(IntersectionBudgetError):
        binned(scenes.single(), replace(CONFIG, max_intersection_bytes=binning.BYTES_PER_INTERSECTION * 599))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["random", "wide", "needles", "outside_clamp", "one_pixel_wide"])
def test_no_contributing_pixel_is_lost_to_rounding(name, dtype):
    """The margin of the footprint: lists that leave nobody out make the same picture, to the bit."""
    case = {"random": lambda: scenes.make_random(200, 100, 80, 2, dtype=dtype),
            "wide": lambda: scenes.make_random(60, 200, 120, 3, sigma=(0.2, 60), opacity=(0.004, 0.2), dtype=dtype),
            }.get(name, lambda: scenes.EDGE_CASES[name](dtype))()
    projected, opacities, bins = binned(case)
    kept = torch.nonzero(projected.extents[:, 0] > 0).flatten()
    everyone = kept[torch.argsort(projected.depths[kept], stable=True)].to(torch.int32)
    across, down = case.camera.tiles
    generous = replace(bins, tile_offsets=torch.arange(across * down + 1) * len(everyone),
                       flatten_ids=everyone.repeat(across * down))
    counts = [count_contributors(projected, opacities, b, case.camera, CONFIG) for b in (bins, generous)]
    assert counts[0].max() >= 3
    assert torch.equal(*counts)
    assert len(bins.flatten_ids) < len(generous.flatten_ids)
