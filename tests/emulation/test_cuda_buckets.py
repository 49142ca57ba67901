"""rasterize_buckets.cu on the host: the backward over Gaussians equals the reference, and the default backward."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from render.backends.signatures import BUCKET, bucket_bound, bucket_bytes
from render.config import ALPHA_GRADIENTS, TILE_SIZE, RasterConfig
from tests import scenes
from tests.emulation.host import Host
from tests.shares import every_third
from tests.stages.test_cpu_contract import BACKGROUNDS, TAPPED, assert_close, noise, run

WARPS = 4
BACKGROUND = torch.tensor(BACKGROUNDS["random"], dtype=torch.float64)
GRADIENTS = (("v_means2d", (2,)), ("v_conics", (3,)), ("v_opacities", ()), ("v_colors", (3,)), ("v_depths", ()),
             ("v_abs_means2d", (2,)))
NULLABLE = ("v_depths", "v_abs_means2d")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(torch.float64)


def bucket_offsets(tile_offsets: Tensor) -> Tensor:
    """[T+1] int64: where the buckets of each tile begin."""
    per_tile = (torch.diff(tile_offsets) + BUCKET - 1) // BUCKET
    return torch.cat([per_tile.new_zeros(1), torch.cumsum(per_tile, 0)])


class Picture:
    """The reference's picture of a case and what a backward kernel takes of it."""

    def __init__(self, host: Host, case: scenes.Case, config: RasterConfig) -> None:
        self.host, self.case, self.camera = host, case, case.camera
        self.want, self.params, self.tap = run(case, "reference", config)
        p, h, w = self.want.projected, self.camera.height, self.camera.width
        self.splats = [self.real(t) for t in (p.means2d, p.conics, self.want.splat_opacities, self.want.splat_colors, p.depths)]
        self.rules = host.camera(self.camera, config), host.raster(config)
        self.lists = self.want.bins.tile_offsets, self.want.bins.flatten_ids
        self.transmittances, self.last_ids = self.real(self.want.transmittances), self.want.last_ids
        self.background = self.real(BACKGROUND)
        self.v = [self.real(t) for t in (noise((h, w, 3), 1), noise((h, w), 2), 0.1 * noise((h, w), 3))]  # as in run()
        self.tiles = self.camera.tiles[0] * self.camera.tiles[1]

    def real(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.host.dtype).contiguous()

    def zeros(self, null: bool) -> dict[str, Tensor | None]:
        n = len(self.case.params)
        return {name: None if null and name in NULLABLE else torch.zeros(n, *tail, dtype=self.host.dtype)
                for name, tail in GRADIENTS}

    def by_pixels(self, null: bool = False) -> dict[str, Tensor | None]:
        """rasterize_bwd; null: without the cotangents of transmittance and depth, and without absolute gradients."""
        v, out = [self.v[0], None, None] if null else self.v, self.zeros(null)
        self.host.launch("rasterize_bwd", (self.tiles,), (TILE_SIZE**2,), *self.rules, self.background, *self.lists,
                         *self.splats, self.transmittances, self.last_ids, *v, *out.values())
        return out

    def states(self, null: bool = False):
        """(bucket_offsets, bucket_tiles, states) of rasterize_buckets_states, sized by the bound that needs no lengths."""
        v, offsets = [self.v[0], None, None] if null else self.v, bucket_offsets(self.lists[0])
        size = bucket_bound(len(self.lists[1]), self.tiles)
        tiles = torch.full((size,), -7, dtype=torch.int32)
        states = torch.full((size, 2, TILE_SIZE**2), math.nan, dtype=self.host.dtype)
        self.host.launch("rasterize_buckets_states", (self.tiles,), (TILE_SIZE**2,), *self.rules, self.background, *self.lists,
                         *self.splats, offsets, self.transmittances, self.last_ids, *v, tiles, states)
        return offsets, tiles, states

    def by_buckets(self, null: bool = False) -> dict[str, Tensor | None]:
        buckets, out = self.states(null), self.zeros(null)
        if size := len(buckets[1]):
            self.host.launch("rasterize_buckets_bwd", (-(-size // WARPS),), (WARPS * BUCKET,), *self.rules, *self.lists,
                             *self.splats, *buckets, self.last_ids, self.v[0], None if null else self.v[2], *out.values())
        return out


def check(host: Host, case: scenes.Case, config: RasterConfig) -> None:
    picture = Picture(host, case, config)
    if case.visible:
        assert picture.want.colors.max() > 0.1
    got, default = picture.by_buckets(), picture.by_pixels()
    for name in TAPPED:
        if case.visible:
            assert_close(name, got[name], getattr(picture.tap, name), 1e-10)
        else:
            assert not got[name].any(), name
    for name, _ in GRADIENTS:  # v_depths has no tap
        assert_close(name, got[name], default[name], 1e-12, case.visible)


@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("smooth", [False, True])
def test_buckets_in_every_alpha_mode(host, mode, smooth):
    """Clamped pixels present, lists of several buckets, an image that is no multiple of the tile."""
    case = scenes.make_random(90, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    check(host, case, RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth))


@pytest.mark.parametrize("name", every_third(scenes.EDGE_CASES))
def test_buckets_on_edge_scenes(host, name):
    check(host, scenes.EDGE_CASES[name](), RasterConfig(antialiased=True))


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 65, 129])
def test_lists_around_the_bucket_length(host, count):
    check(host, scenes.make_stack(count), RasterConfig())


@pytest.mark.parametrize("count", [257])
def test_pixels_that_end_before_the_list(host, count):
    """The stopping rule ends each pixel elsewhere, the last buckets are reached by none, and nothing of theirs is read."""
    case = scenes.make_stack(count, opacity=0.2, sigma=8.0)
    picture = Picture(host, case, RasterConfig())
    last = picture.last_ids.flatten() // BUCKET
    assert len(last.unique()) >= 3
    offsets, tiles, states = picture.states()
    reached = int(picture.last_ids.max()) // BUCKET
    assert reached + 1 < int(offsets[-1]) == len(tiles)
    assert tiles.tolist() == [0] * (reached + 1) + [-1] * (len(tiles) - reached - 1)
    places = torch.arange(len(tiles))[:, None]
    assert torch.equal(states[:, 0].isfinite(), last[None] >= places)
    check(host, case, RasterConfig())


def test_buckets_without_depth_transmittance_and_absolute_gradients(host):
    case = scenes.make_random(90, 37, 23, 21)
    picture = Picture(host, case, RasterConfig())
    got, default = picture.by_buckets(null=True), picture.by_pixels(null=True)
    everything = picture.by_buckets()
    for name, _ in GRADIENTS:
        if name in NULLABLE:
            assert got[name] is None
            continue
        assert_close(name, got[name], default[name], 1e-12)
    assert not torch.allclose(got["v_opacities"], everything["v_opacities"])


def test_buckets_in_single_precision(host):
    """Float, on the double picture's splats and lists, stays within the rounding of its sums."""
    case = scenes.make_random(90, 37, 23, 21)
    want, got = (Picture(h, case, RasterConfig()).by_buckets() for h in (host, Host(torch.float32)))
    for name, _ in GRADIENTS:
        assert got[name].dtype == torch.float32
        assert_close(name, got[name], want[name], 1e-4)


def test_the_bound_on_buckets_and_their_bytes():
    """The bound holds for every split of pairs into lists and is reached; bytes are those of the three tensors."""
    generator = torch.Generator().manual_seed(0)
    for tiles in (1, 2, 7):
        for _ in range(200):
            lengths = torch.randint(0, 80, (tiles,), generator=generator)
            assert int(((lengths + BUCKET - 1) // BUCKET).sum()) <= bucket_bound(int(lengths.sum()), tiles)
    assert bucket_bound(0, 9) == 0 and bucket_bound(1, 9) == 1 and bucket_bound(9, 9) == 9
    assert bucket_bound(33 + 1 + 65, 3) == 2 + 1 + 3
    size, tiles = bucket_bound(1000, 12), 12
    tensors = (torch.empty(size, 2, TILE_SIZE**2), torch.empty(size, dtype=torch.int32),
               torch.empty(tiles + 1, dtype=torch.int64))
    assert bucket_bytes(1000, tiles) == sum(t.nbytes for t in tensors)


def test_the_launch_has_as_many_buckets_a_block_as_the_kernel():
    import re

    from render.backends.compile import source_folder
    from render.backends.signatures import BUCKETS_A_BLOCK

    text = (source_folder() / "rasterize_buckets.cu").read_text()
    assert re.search(r"#define WARPS (\d+)", text)[1] == str(BUCKETS_A_BLOCK)
