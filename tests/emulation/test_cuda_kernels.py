"""The .cu files, run on the host, against the reference: every kernel, every alpha mode, all edge scenes, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from render.config import ALPHA_GRADIENTS, RasterConfig
from render.reference.ssim import SIGMA, WINDOW
from tests import scenes
from tests.emulation.host import EmulationError, Host
from tests.shares import every_third
from tests.stages.test_cpu_contract import TAPPED, assert_close, noise, run

BLOCK = 128


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(torch.float64)


def blocks(n: int) -> tuple[int]:
    return (max(1, -(-n // BLOCK)),)


def bins_on_host(host: Host, projected, opacities: Tensor, camera, config: RasterConfig, wide: bool) -> tuple[Tensor, Tensor]:
    """(tile_offsets, flatten_ids) by the kernels, with torch's stable sorts in between, as on a GPU."""
    order = torch.argsort(projected.depths, stable=True).to(torch.int32)
    v, view, rules = len(order), host.camera(camera, config), host.raster(config)
    inputs = (
        view,
        rules,
        torch.finfo(host.dtype).eps,
        v,
        order,
        projected.means2d,
        projected.conics,
        projected.extents,
        opacities,
    )
    counts = torch.zeros(v, dtype=torch.int32)
    if v:
        host.launch("binning_count", blocks(v), (BLOCK,), *inputs, counts)
    ends = torch.cumsum(counts, 0, dtype=torch.int64)
    total, tiles = int(ends[-1]) if v else 0, camera.tiles[0] * camera.tiles[1]
    keys, ids = torch.zeros(total, dtype=torch.int32 if wide else torch.int16), torch.zeros(total, dtype=torch.int32)
    suffix = "32" if wide else "16"
    if total:
        host.launch(f"binning_emit{suffix}", blocks(v), (BLOCK,), *inputs, ends - counts, counts, keys, ids)
    keys, place = torch.sort(keys, stable=True)
    offsets = torch.full((tiles + 1,), -1, dtype=torch.int64)
    host.launch(f"binning_ranges{suffix}", blocks(total + 1), (BLOCK,), total, tiles, keys, offsets)
    return offsets, ids[place]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", every_third(scenes.EDGE_CASES))
def test_projection_and_tile_lists(host, name, wide):
    case, config = scenes.EDGE_CASES[name](), RasterConfig(antialiased=True)
    want, _, _ = run(case, "reference", config)
    g, n = case.gaussians(), len(case.params)
    p = want.projected
    got = [torch.full_like(t, math.nan) for t in (p.means2d, p.conics, p.depths, p.extents, p.compensations)]
    if n:
        host.launch(
            "project_fwd",
            blocks(n),
            (BLOCK,),
            host.camera(case.camera, config),
            host.raster(config),
            n,
            g.means,
            g.quats,
            g.scales,
            g.opacities,
            *got,
        )
    for title, ours, theirs in zip(
        ("means2d", "conics", "depths", "extents", "compensations"),
        got,
        (p.means2d, p.conics, p.depths, p.extents, p.compensations),
    ):
        assert_close(title, ours, theirs, 1e-10, case.visible)
    detached = type(p)(*(t.detach() for t in (p.means2d, p.conics, p.depths, p.extents, p.compensations)))
    offsets, ids = bins_on_host(host, detached, want.splat_opacities.detach(), case.camera, config, wide)
    assert torch.equal(offsets, want.bins.tile_offsets)
    assert torch.equal(ids, want.bins.flatten_ids)


def picture_on_host(host: Host, want, case, config: RasterConfig, background: Tensor):
    """((image, T, depth, last), gradients by name) of the rasterizer's kernels on the reference's splats and lists."""
    camera, p = case.camera, want.projected
    h, w, n = camera.height, camera.width, len(case.params)
    splats = [t.detach().contiguous() for t in (p.means2d, p.conics, want.splat_opacities, want.splat_colors, p.depths)]
    inputs = (
        host.camera(camera, config),
        host.raster(config),
        background,
        want.bins.tile_offsets,
        want.bins.flatten_ids,
        *splats,
    )
    image, T, depth = (torch.full((h, w, *tail), math.nan, dtype=host.dtype) for tail in ((3,), (), ()))
    last = torch.full((h, w), -7, dtype=torch.int32)
    grid, block = (camera.tiles[0] * camera.tiles[1],), (256,)
    host.launch("rasterize_fwd", grid, block, *inputs, image, T, depth, last)
    v = [noise((h, w, 3), 1), noise((h, w), 2), 0.1 * noise((h, w), 3)]
    gradients = {
        name: torch.zeros(n, *tail, dtype=host.dtype)
        for name, tail in (
            ("v_means2d", (2,)),
            ("v_conics", (3,)),
            ("v_opacities", ()),
            ("v_colors", (3,)),
            ("v_depths", ()),
            ("v_abs_means2d", (2,)),
        )
    }
    host.launch("rasterize_bwd", grid, block, *inputs, T, last, *v, *gradients.values())
    return (image, T, depth, last), gradients


@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
@pytest.mark.parametrize("smooth", [False, True])
def test_rasterizer_in_every_mode(host, mode, smooth):
    case = scenes.make_random(90, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    check_picture(host, case, RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth))


@pytest.mark.parametrize(
    "name",
    [
        "saturated",
        "depth_ties",
        "needles",
        "half_behind",
        "none_visible",
        "one_pixel_wide",
        "not_a_tile_multiple",
        "exact_tiles",
        "stack_255",
        "stack_257",
    ],
)
def test_rasterizer_on_edge_scenes(host, name):
    check_picture(host, scenes.EDGE_CASES[name](), RasterConfig())


def check_picture(host: Host, case, config: RasterConfig) -> None:
    want, _, tap = run(case, "reference", config)
    background = torch.tensor((0.2, 0.7, 0.4), dtype=torch.float64)
    (image, T, depth, last), gradients = picture_on_host(host, want, case, config, background)
    assert_close("image", image, want.colors, 1e-10)
    assert_close("transmittances", T, want.transmittances, 1e-10)
    assert_close("depths", depth, want.depths, 1e-10, case.visible)
    assert torch.equal(last, want.last_ids)
    for name in TAPPED:
        if case.visible:
            assert_close(name, gradients[name], getattr(tap, name), 1e-10)
        else:
            assert not gradients[name].any()


@pytest.mark.parametrize("antialiased", [False, True])
def test_projection_backward(host, antialiased):
    from render.stages.project import project

    case, config = (
        scenes.make_random(120, 53, 37, 8, off_center=0.3, aspect=1.3, overscan=0.6),
        RasterConfig(antialiased=antialiased),
    )
    v = [noise(s, 10 + i) for i, s in enumerate(((120, 2), (120, 3), (120,), (120,)))]
    gaussians, tensors = scenes.leaves(case.gaussians())
    p = project(gaussians, case.camera, config, "reference")
    sum((a * b).sum() for a, b in zip((p.means2d, p.conics, p.depths, p.compensations), v, strict=True)).backward()
    got = {k: torch.full_like(tensors[k], math.nan).detach() for k in ("means", "quats", "scales")}
    g = case.gaussians()
    host.launch(
        "project_bwd",
        blocks(120),
        (BLOCK,),
        host.camera(case.camera, config),
        host.raster(config),
        120,
        g.means,
        g.quats,
        g.scales,
        p.extents,
        *v,
        *got.values(),
    )
    for name, ours in got.items():
        assert_close(name, ours, tensors[name].grad, 1e-10)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_harmonics(host, degree):
    from render.reference.sh import sh_to_colors

    case, config = scenes.make_random(70, 53, 37, 9), RasterConfig()
    means, sh = (
        case.params.means.clone().requires_grad_(),
        (torch.cat([case.params.sh0, case.params.shN], 1) * 3).requires_grad_(),
    )
    want, v = sh_to_colors(means, sh, case.camera, degree), noise((70, 3), 3)
    want.backward(v)
    view = host.camera(case.camera, config)
    sh0, shN = sh.detach()[:, :1].contiguous(), sh.detach()[:, 1:].contiguous()
    parts, colors = (sh0, 3, shN, 45), torch.full((70, 3), math.nan, dtype=torch.float64)
    host.launch("sh_fwd", blocks(70), (BLOCK,), view, 70, degree, means.detach(), *parts, None, colors)
    v_means, v_sh0, v_shN = (torch.full_like(t, math.nan) for t in (means.detach(), sh0, shN))
    host.launch(
        "sh_bwd",
        blocks(70),
        (BLOCK,),
        view,
        70,
        degree,
        16,
        means.detach(),
        *parts,
        None,
        colors,
        v,
        v_means,
        v_sh0,
        3,
        v_shN,
        45,
    )
    assert_close("colors", colors, want, 1e-12)
    assert_close("v_sh", torch.cat([v_sh0, v_shN], 1), sh.grad, 1e-10)
    assert_close("v_means", v_means, torch.zeros_like(v_means) if degree == 0 else means.grad, 1e-10, degree > 0)


@pytest.mark.parametrize("kind", ["l1_ssim", "mse"])
def test_loss(host, kind):
    from render.reference.ssim import photometric_loss

    h, w = 21, 37
    target = noise((h, w, 3), 1).abs().clamp(max=1)
    image = (target + 0.1 * noise((h, w, 3), 2)).requires_grad_()
    loss, terms = photometric_loss(image, target, kind=kind)
    (3 * loss).backward()
    taps = torch.exp(-(torch.arange(WINDOW // 2 + 1, dtype=torch.float64) ** 2) / (2 * SIGMA**2))
    window = taps / (taps[0] + 2 * taps[1:].sum())
    grid, block = (-(-w // 16), -(-h // 16), 3), (16, 16, 1)
    partials = torch.full((grid[0] * grid[1] * 3, 3), math.nan, dtype=torch.float64)
    maps, v_image = (
        torch.full((3, h, w, 3), math.nan, dtype=torch.float64),
        torch.full((h, w, 3), math.nan, dtype=torch.float64),
    )
    host.launch("ssim_fwd", grid, block, h, w, window, image.detach(), target, partials, maps)
    assert_close("terms", partials.sum(0) / image.numel(), terms, 1e-10)
    weights = (0.8, 0.0, -0.2) if kind == "l1_ssim" else (0.0, 1.0, 0.0)
    scale = torch.tensor([3.0 / image.numel()], dtype=torch.float64)
    host.launch("ssim_bwd", grid, block, h, w, window, image.detach(), target, maps, scale, *weights, v_image)
    assert_close("v_image", v_image, image.grad, 1e-10)


def test_activation(host):
    from render.stages.activate import activate

    case = scenes.make_random(37, 53, 37, 9)
    case.params.quats[3] = 0
    case.params.requires_grad_()
    g = activate(case.params, "reference")
    v = [noise(s, i) for i, s in enumerate(((37, 4), (37, 3), (37,)))]
    sum((a * b).sum() for a, b in zip((g.quats, g.scales, g.opacities), v)).backward()
    raw = [t.detach() for t in (case.params.quats, case.params.log_scales, case.params.logit_opacities)]
    got, back = [torch.full_like(t, math.nan) for t in raw], [torch.full_like(t, math.nan) for t in raw]
    host.launch("activate_fwd", blocks(37), (BLOCK,), 37, *raw, *got)
    host.launch("activate_bwd", blocks(37), (BLOCK,), 37, raw[0], got[1], got[2], *v, *back)
    for name, ours, theirs, ours_v, theirs_v in zip(
        ("quats", "scales", "opacities"),
        got,
        (g.quats, g.scales, g.opacities),
        back,
        (case.params.quats, case.params.log_scales, case.params.logit_opacities),
    ):
        assert_close(name, ours, theirs, 1e-12)
        assert_close("v_" + name, ours_v, theirs_v.grad, 1e-10)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("row", [1, 3, 45])
def test_adam(host, row, sparse):
    """Four steps; with extents, rows of unseen Gaussians keep parameter and moments, whatever their gradient is."""
    from render.reference.adam import adam_step

    n = 53
    ours, theirs = ([noise((n, row), 1), noise((n, row), 2), noise((n, row), 3).abs()] for _ in range(2))
    seen = noise((n,), 5) > 0
    extents = torch.where(seen[:, None], noise((n, 2), 6).abs() + 0.1, 0.0) if sparse else None
    assert seen.any() and not seen.all()
    for step in range(1, 5):
        gradient = noise((n, row), step + 10)
        if sparse:
            gradient[~seen] = math.nan
        adam_step(theirs[0], gradient, *theirs[1:], step=step, lr=0.03, eps=1e-15, extents=extents)
        scalars = (0.03 / (1 - 0.9**step), 0.9, 1 - 0.9, 0.999, 1 - 0.999, 1 / math.sqrt(1 - 0.999**step), 1e-15)
        flat = [t.view(-1) for t in (ours[0], gradient, *ours[1:])]
        for ok in (0, 1):   # nothing moves where a gradient was not finite
            host.launch("adam_step", blocks(n * row), (BLOCK,), n * row, *flat, *scalars, extents, row,
                        torch.tensor([ok], dtype=torch.int32))
    for name, got, want, seed in zip(("param", "exp_avg", "exp_avg_sq"), ours, theirs, (1, 2, 3)):
        before = noise((n, row), seed).abs() if seed == 3 else noise((n, row), seed)
        assert not torch.equal(want[seen], before[seen])
        assert_close(name, got, want, 1e-12)
        assert torch.equal(got[~seen], before[~seen]) == sparse, f"{name}: rows of unseen Gaussians stand still"


def test_the_emulation_reports_a_divergent_barrier(host, tmp_path, monkeypatch):
    """The tool itself can fail: a kernel whose halves wait at different barriers, and one that races on shared memory."""
    from render.backends import compile
    from render.backends.signatures import CUDA_KERNELS, parse

    (tmp_path / "bad.cu").write_text(
        '#include "common.h"\n'
        'extern "C" __global__ void bad_barrier(int n, Real* out) {\n'
        "    if (threadIdx.x < 32) { __syncthreads(); out[0] = 1; } else { out[1] = 2; __syncthreads(); }\n}\n"
        'extern "C" __global__ void bad_race(int n, Real* out) {\n'
        "    __shared__ Real box;\n    box = threadIdx.x;\n    out[threadIdx.x] = box;\n    __syncthreads();\n"
        "    if (threadIdx.x == 0) out[0] = box;\n}\n"
    )
    for header in compile.source_folder().rglob("*.h"):
        to = tmp_path / header.relative_to(compile.source_folder())
        to.parent.mkdir(exist_ok=True)
        to.write_bytes(header.read_bytes())
    monkeypatch.setattr(compile, "source_folder", lambda: tmp_path)
    for name in ("bad_barrier", "bad_race"):
        monkeypatch.setitem(CUDA_KERNELS, name, parse("n:i32 -> out[_]"))
    fresh = Host(torch.float64)
    with pytest.raises(EmulationError, match="different places"):
        fresh.launch("bad_barrier", (1,), (64,), 1, torch.zeros(64, dtype=torch.float64))
    with pytest.raises(EmulationError, match="order of threads"):
        fresh.launch("bad_race", (1,), (64,), 1, torch.zeros(64, dtype=torch.float64))


def test_emitted_pairs_fill_the_room_that_was_counted_whatever_was_counted(host):
    """Two kernels compiled apart might disagree about a tile: too little room is not overrun, too much is filled."""
    case, config = scenes.make_random(40, 37, 23, 5), RasterConfig()
    want, _, _ = run(case, "reference", config)
    p = want.projected
    splats = [t.detach().contiguous() for t in (p.means2d, p.conics, p.extents, want.splat_opacities)]
    order = torch.argsort(p.depths, stable=True).to(torch.int32)
    inputs = (host.camera(case.camera, config), host.raster(config), torch.finfo(host.dtype).eps, len(order), order, *splats)
    counts = torch.zeros(len(order), dtype=torch.int32)
    host.launch("binning_count", blocks(len(order)), (BLOCK,), *inputs, counts)
    assert (counts > 1).any()
    for change in (-1, 1):
        room = torch.where(counts > 1, counts + change, counts)
        ends = torch.cumsum(room, 0, dtype=torch.int64)
        total = int(ends[-1])
        keys, ids = torch.full((total + 8,), -7, dtype=torch.int16), torch.full((total + 8,), -7, dtype=torch.int32)
        host.launch("binning_emit16", blocks(len(order)), (BLOCK,), *inputs, ends - room, room, keys, ids)
        assert (keys[:total] >= 0).all() and (ids[:total] >= 0).all()
        assert (keys[total:] == -7).all() and (ids[total:] == -7).all()
