"""gaussian.cu on the host: one kernel for activate, project and sh equals the single kernels and the reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from render.config import RasterConfig
from render.reference.activate import activate
from render.reference.project import project
from render.reference.sh import sh_to_colors
from tests import scenes
from tests.emulation.host import Host
from tests.stages.test_cpu_contract import assert_close, noise

BLOCK = 128
GROUPS = ("means", "quats", "log_scales", "logit_opacities", "sh0", "shN")
PROJECTED = (("means2d", (2,)), ("conics", (3,)), ("depths", ()), ("extents", (2,)), ("compensations", ()))
OUTPUTS = (*PROJECTED, ("colors", (3,)), ("opacities_eff", ()))
DIFFERENTIABLE = ("means2d", "conics", "depths", "colors", "opacities_eff")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(torch.float64)


def grid(n: int) -> tuple[int]:
    return (max(1, -(-n // BLOCK)),)


def unset(shapes, n: int) -> dict[str, Tensor]:
    """Tensors of NaN, so that what a kernel leaves out shows."""
    return {name: torch.full((n, *tail), math.nan, dtype=torch.float64) for name, tail in shapes}


def arguments(host: Host, case: scenes.Case, config: RasterConfig, degree: int):
    n, rest = len(case.params), case.params.shN.shape[1]
    return host.camera(case.camera, config), host.raster(config), n, degree, rest


def fused(host: Host, case: scenes.Case, config: RasterConfig, degree: int, v: dict[str, Tensor], *, depths: bool = True):
    """(outputs, gradients) of gaussian_fwd and gaussian_bwd."""
    raw = {name: getattr(case.params, name).detach().contiguous() for name in GROUPS}
    n, common = len(case.params), arguments(host, case, config, degree)
    out, back = unset(OUTPUTS, n), {name: torch.full_like(t, math.nan) for name, t in raw.items()}
    if n:
        host.launch("gaussian_fwd", grid(n), (BLOCK,), *common, *raw.values(), *out.values())
        inputs = [raw[name] for name in GROUPS if name != "sh0"]
        cotangents = [v["means2d"], v["conics"], v["depths"] if depths else None, v["colors"], v["opacities_eff"]]
        host.launch("gaussian_bwd", grid(n), (BLOCK,), *common, *inputs, out["extents"], out["colors"], *cotangents,
                    *back.values())
    return out, back


def single(host: Host, case: scenes.Case, config: RasterConfig, degree: int, v: dict[str, Tensor]):
    """The same by the kernels of the single stages, with torch's product and sums between them."""
    view, rules, n, _, rest = arguments(host, case, config, degree)
    p = {name: getattr(case.params, name).detach().contiguous() for name in GROUPS}
    active = unset((("quats", (4,)), ("scales", (3,)), ("opacities", ())), n)
    out = unset(PROJECTED, n) | unset((("colors", (3,)),), n)
    shape, raw = (grid(n), (BLOCK,)), (p["quats"], p["log_scales"], p["logit_opacities"])
    host.launch("activate_fwd", *shape, n, *raw, *active.values())
    projected = [out[name] for name, _ in PROJECTED]
    host.launch("project_fwd", *shape, view, rules, n, p["means"], *active.values(), *projected)
    parts = (p["sh0"], 3, p["shN"], 3 * rest)
    host.launch("sh_fwd", *shape, view, n, degree, p["means"], *parts, out["extents"], out["colors"])
    comp = out["compensations"] if config.antialiased else torch.ones(n, dtype=torch.float64)
    out["opacities_eff"] = active["opacities"] * comp

    back = {name: torch.full_like(t, math.nan) for name, t in p.items()}
    v_means, v_unit, v_scales = (torch.full_like(t, math.nan) for t in (p["means"], p["quats"], p["log_scales"]))
    v_comp = v["opacities_eff"] * active["opacities"]
    host.launch("project_bwd", *shape, view, rules, n, p["means"], active["quats"], active["scales"], out["extents"],
                v["means2d"], v["conics"], v["depths"], v_comp, v_means, v_unit, v_scales)
    host.launch("sh_bwd", *shape, view, n, degree, 1 + rest, p["means"], *parts, out["extents"], out["colors"], v["colors"],
                back["means"], back["sh0"], 3, back["shN"], 3 * rest)
    host.launch("activate_bwd", *shape, n, p["quats"], active["scales"], active["opacities"], v_unit, v_scales,
                v["opacities_eff"] * comp, back["quats"], back["log_scales"], back["logit_opacities"])
    back["means"] += v_means
    return out, back


def reference(case: scenes.Case, config: RasterConfig, degree: int, v: dict[str, Tensor]):
    """(outputs, gradients) by autograd. Culled Gaussians are black and pass nothing, as behind the rasterizer."""
    p = case.with_params().params
    for name in GROUPS:
        getattr(p, name).requires_grad_()
    g = activate(p)
    projected = project(g.means, g.quats, g.scales, g.opacities, case.camera, config)
    seen = projected.extents[:, 0] > 0
    colors = sh_to_colors(g.means, g.sh, case.camera, degree)
    out = {name: getattr(projected, name) for name, _ in PROJECTED}
    out["colors"] = torch.where(seen[:, None], colors, 0.0)
    out["opacities_eff"] = g.opacities * projected.compensations if config.antialiased else g.opacities
    sum((out[name][seen] * v[name][seen]).sum() for name in DIFFERENTIABLE).backward()
    back = {name: t.grad if (t := getattr(p, name)).grad is not None else torch.zeros_like(t) for name in GROUPS}
    return {name: t.detach() for name, t in out.items()}, back, seen


def cotangents(n: int) -> dict[str, Tensor]:
    return {name: noise((n, *tail), 10 + i) for i, (name, tail) in enumerate(OUTPUTS) if name in DIFFERENTIABLE}


def masked(v: dict[str, Tensor], seen: Tensor) -> dict[str, Tensor]:
    return {name: torch.where(seen.view(-1, *[1] * (t.ndim - 1)), t, 0.0) for name, t in v.items()}


def check(host: Host, case: scenes.Case, config: RasterConfig, degree: int) -> None:
    n = len(case.params)
    v = cotangents(n)
    out, back = fused(host, case, config, degree, v)
    want, want_back, seen = reference(case, config, degree, v)
    assert bool(seen.any()) == case.visible
    # Rows with a NaN or Inf are culled: exact zeros here, where autograd's 0 * Inf makes NaN.
    sound = torch.stack([getattr(case.params, name).detach().reshape(n, -1).isfinite().all(1) for name in GROUPS]).all(0) \
        if n else seen
    for name, _ in OUTPUTS:
        kept = seen if name == "opacities_eff" else torch.ones(n, dtype=torch.bool)
        assert_close(name, out[name][kept], want[name][kept], 1e-10, case.visible)
    largest = max((float(t[sound].abs().max()) for t in want_back.values() if t[sound].numel()), default=0.0)
    for name in GROUPS:
        theirs, ours = want_back[name][sound], back[name]
        assert not ours[~seen].any(), f"{name}: a culled Gaussian received a gradient"
        if not case.visible:
            continue
        if float(theirs.abs().max()) < 1e-12 * largest:  # zero but for rounding: quats of round ones, bands not in use
            assert float(ours.abs().max()) < 1e-12 * largest, name
        else:
            assert_close("v_" + name, ours[sound], theirs, 1e-10)
    if n:
        held, held_back = single(host, case, config, degree, masked(v, seen))
        for name, _ in OUTPUTS:
            assert torch.equal(out[name].nan_to_num(), held[name].nan_to_num()), f"{name}: fused and single kernels differ"
        for name in GROUPS:
            assert_close("single v_" + name, back[name], held_back[name], 1e-12, False)


@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_fused_kernels_in_every_degree(host, degree, antialiased):
    """Some outside the image, some colours clamped at 0, off-centre camera, all three bands in storage."""
    case = scenes.make_random(150, 53, 37, 8, off_center=0.3, aspect=1.3, overscan=0.6)
    case = case.with_params(sh0=2 * case.params.sh0 - 0.8, shN=3 * case.params.shN)
    config = RasterConfig(antialiased=antialiased)
    out, back = fused(host, case, config, degree, cotangents(150))
    seen = out["extents"][:, 0] > 0
    assert 20 < int(seen.sum()) < 150
    assert (out["colors"][seen] == 0).any() and (out["colors"][seen] > 0).any()
    assert all(back[name].abs().max() > 1e-3 for name in GROUPS if name != "shN" or degree > 0)
    check(host, case, config, degree)


@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.parametrize("name", scenes.EDGE_CASES)
def test_fused_kernels_on_edge_scenes(host, name, antialiased):
    check(host, scenes.EDGE_CASES[name](), RasterConfig(antialiased=antialiased), 3)


def test_a_storage_of_one_band_and_what_may_be_null(host):
    """Without higher bands in storage, without cotangents of depths, and with v_shN left out at degree 0."""
    case = scenes.make_random(40, 53, 37, 8)
    v = cotangents(40)
    short = case.with_params(shN=case.params.shN[:, :0])
    out, back = fused(host, short, RasterConfig(), 0, v, depths=False)
    v_zero = v | {"depths": torch.zeros_like(v["depths"])}
    full, full_back = fused(host, case, RasterConfig(), 0, v_zero)
    for name, _ in OUTPUTS:
        assert torch.equal(out[name], full[name]) and out[name].any(), name
    for name in GROUPS[:-1]:
        assert torch.equal(back[name], full_back[name]) and back[name].any(), name
    assert not full_back["shN"].any() and full_back["shN"].numel()
    raw = {name: getattr(case.params, name).detach() for name in GROUPS}
    got = [torch.full_like(raw[name], math.nan) for name in GROUPS[:-1]]
    host.launch("gaussian_bwd", grid(40), (BLOCK,), *arguments(host, case, RasterConfig(), 0),
                *(raw[name] for name in GROUPS if name != "sh0"), out["extents"], out["colors"], v["means2d"], v["conics"],
                None, v["colors"], v["opacities_eff"], *got, None)
    for name, tensor in zip(GROUPS, got):
        assert torch.equal(tensor, back[name]), name


def test_culled_gaussians_read_no_coefficient(host):
    """Coefficients of NaN behind a culled Gaussian change nothing, forwards or backwards."""
    case = scenes.half_behind()
    v = cotangents(len(case.params))
    want, want_back = fused(host, case, RasterConfig(), 3, v)
    culled = want["extents"][:, 0] == 0
    assert culled.any() and not culled.all()
    sh0, shN = case.params.sh0.clone(), case.params.shN.clone()
    sh0[culled], shN[culled] = math.nan, math.nan
    out, back = fused(host, case.with_params(sh0=sh0, shN=shN), RasterConfig(), 3, v)
    for name, _ in OUTPUTS:
        assert torch.equal(out[name], want[name]), name
    for name in GROUPS:
        assert torch.equal(back[name], want_back[name]), name
