"""The contract of the CPU kernels: double equals the reference to 1e-10, float at a tolerance, bits at any thread count."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from render.backends import cpu
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.pipeline import contributors, render
from render.stages.activate import activate
from render.stages.adam import adam_step
from render.stages.project import project
from render.stages.sh import sh_to_colors
from render.stages.ssim import photometric_loss
from render.types import GradientTap
from tests import scenes
from tests.gradients import assert_gradients

BACKGROUNDS = {"black": (0.0, 0.0, 0.0), "white": (1.0, 1.0, 1.0), "random": (0.2, 0.7, 0.4)}
TAPPED = ("v_means2d", "v_abs_means2d", "v_conics", "v_colors", "v_opacities")


def noise(shape, seed: int, dtype=torch.float64) -> Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def run(case: scenes.Case, backend: str, config: RasterConfig, background: str = "random", *, tapped: bool = True):
    """Outputs and gradients of one picture whose colours, transmittances and depths all enter the loss."""
    params = case.with_params().params
    dtype = params.means.dtype
    params = replace(params, **{k: v.detach().clone().requires_grad_() for k, v in params.trained().items()})
    tap = GradientTap(absolute=True) if tapped else None
    color = torch.tensor(BACKGROUNDS[background], dtype=dtype).requires_grad_()
    output = render(activate(params, backend), case.camera, config, background=color, sh_degree=case.sh_degree,
                    backend=backend, depth=True, tap=tap)
    h, w = case.camera.height, case.camera.width
    loss = ((output.colors * noise((h, w, 3), 1, dtype)).sum() + (output.transmittances * noise((h, w), 2, dtype)).sum()
            + 0.1 * (output.depths * noise((h, w), 3, dtype)).sum())
    loss.backward()
    gradients = {name: t.grad if t.grad is not None else torch.zeros_like(t) for name, t in params.trained().items()}
    return output, gradients | {"background": color.grad}, tap


def assert_close(name: str, got: Tensor, want: Tensor, tolerance: float, nonzero: bool = True) -> None:
    """max|got - want| <= tolerance * max|want|; a reference of zeros wants exact zeros."""
    got, want = got.detach().double(), want.detach().double()
    assert torch.isfinite(got).all(), name
    scale = want.abs().max().item() if want.numel() else 0.0
    if nonzero:
        assert scale > 0, f"{name}: the reference is zero, so nothing is compared"
    error = (got - want).abs().max().item() if want.numel() else 0.0
    assert error <= tolerance * scale, f"{name}: {error:.3g} against {scale:.3g}"


def assert_equal_pictures(case: scenes.Case, config: RasterConfig, background: str, tolerance: float) -> None:
    ours, our_gradients, our_tap = run(case, "cpu", config, background)
    theirs, their_gradients, their_tap = run(case, "reference", config, background)
    assert torch.equal(ours.bins.flatten_ids, theirs.bins.flatten_ids)
    assert torch.equal(ours.bins.tile_offsets, theirs.bins.tile_offsets)
    assert torch.equal(ours.bins.emit_ids, theirs.bins.emit_ids)
    assert torch.equal(ours.bins.emit_offsets, theirs.bins.emit_offsets)
    assert torch.equal(ours.last_ids, theirs.last_ids)
    if case.visible:
        assert theirs.colors.max() > 0.1
    for name in ("colors", "transmittances", "depths"):
        assert_close(name, getattr(ours, name), getattr(theirs, name), tolerance, case.visible and name != "depths")
    for name in ("means2d", "conics", "depths", "extents", "compensations"):
        assert_close(name, getattr(ours.projected, name), getattr(theirs.projected, name), tolerance, case.visible)
    # A row with a NaN or Inf parameter is culled: exact zeros here, while autograd's 0 * Inf makes NaN of some.
    sound = torch.stack([t.detach().flatten(1).isfinite().all(1) if t.ndim > 1 else t.detach().isfinite()
                         for t in case.params.trained().values()]).all(0)
    largest = max(float(g[sound].abs().max()) for n, g in their_gradients.items() if n != "background" and g[sound].numel()) \
        if sound.any() else 0.0
    for name, want in their_gradients.items():
        if name == "background":
            assert_close(name, our_gradients[name], want, tolerance)
        elif not case.visible:
            assert not our_gradients[name].any(), name
        elif float(want[sound].abs().max()) < 1e-12 * largest:  # zero but for rounding, as the quats of round Gaussians
            assert float(our_gradients[name].abs().max()) < 1e-12 * largest, name
        else:
            assert_close("v_" + name, our_gradients[name][sound], want[sound], tolerance)
        assert not our_gradients[name][~sound].any() if name != "background" else True
    for name in TAPPED:
        if case.visible:
            assert_close(name, getattr(our_tap, name), getattr(their_tap, name), tolerance)


RULES = {
    f"{mode}{'_smooth' if smooth else ''}{'_aa' if aa else ''}": RasterConfig(
        alpha_gradient=mode, smooth_cutoff=smooth, antialiased=aa)
    for mode, smooth, aa in itertools.product(ALPHA_GRADIENTS, (False, True), (False, True))}


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("rules", RULES)
def test_N02_N05_N07_double_equals_the_reference_in_every_mode(rules, background):
    """Principal point off by 30 %, fx != fy, SH 3, clamped pixels present, every output in the loss."""
    case = scenes.make_random(160, 53, 37, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    assert_equal_pictures(case, RULES[rules], background, 1e-10)


@pytest.mark.parametrize("name", scenes.EDGE_CASES)
def test_double_equals_the_reference_on_edge_scenes(name):
    assert_equal_pictures(scenes.EDGE_CASES[name](), RasterConfig(), "random", 1e-10)


@pytest.mark.parametrize("count", [31, 32, 33, 64, 129])
def test_lists_around_the_batch_length(count):
    assert_equal_pictures(scenes.make_stack(count), RasterConfig(), "random", 1e-10)


@pytest.mark.parametrize("mode", ALPHA_GRADIENTS)
def test_saturated_pixels_in_every_mode(mode):
    """The stopping rule and the clamp at once; alpha_max 0.999 too."""
    for alpha_max in (0.99, 0.999):
        config = RasterConfig(alpha_gradient=mode, alpha_max=alpha_max)
        assert_equal_pictures(scenes.saturated(), config, "random", 1e-10)


def test_N02_gradcheck_of_the_double_kernels():
    """Central differences on the kernels themselves, no reference in between."""
    case = scenes.make_random(6, 21, 18, 41, off_center=0.3, aspect=1.3, sigma=(1.5, 5.0), opacity=(0.3, 0.98))
    case.params.requires_grad_()
    v = [noise((18, 21, *tail), 5 + i) for i, tail in enumerate(((3,), (), ()))]
    for config in (RasterConfig(), RasterConfig(smooth_cutoff=True), RasterConfig(antialiased=True)):
        for background in BACKGROUNDS.values():
            def loss(config=config, background=background):
                output = render(activate(case.params, "cpu"), case.camera, config, background=torch.tensor(background).double(),
                                sh_degree=3, backend="cpu", depth=True)
                assert output.colors.max() > 0.1
                return sum((a * b).sum() for a, b in zip((output.colors, output.transmittances, output.depths), v, strict=True))
            assert_gradients(loss, case.params.trained(), samples=16)


def test_gradient_modes_differ_only_through_clamped_pixels():
    """Nothing clamped: the three modes agree to the bit. Something clamped: colours still do, opacities do not."""
    calm = scenes.make_random(60, 37, 23, 13, opacity=(0.05, 0.9))
    hot = scenes.saturated()
    for case, clamped in ((calm, False), (hot, True)):
        results = [run(case, "cpu", RasterConfig(alpha_gradient=mode))[1] for mode in ALPHA_GRADIENTS]
        for other in results[1:]:
            assert torch.equal(results[0]["sh0"], other["sh0"])
            assert torch.equal(results[0]["logit_opacities"], other["logit_opacities"]) is not clamped


def test_float_at_tolerance():
    """Float32 against the float64 reference; pixels where a threshold flipped are set aside and counted."""
    case = scenes.make_random(400, 64, 48, 3, opacity=(0.05, 0.98))
    ours, our_gradients, our_tap = run(case.to(torch.float32), "cpu", RasterConfig())
    theirs, their_gradients, their_tap = run(case, "reference", RasterConfig())
    counts = [contributors(o, case.camera, RasterConfig(), b) for o, b in ((ours, "cpu"), (theirs, "reference"))]
    flipped = counts[0] != counts[1]
    assert flipped.sum() <= 8
    difference = (ours.colors.double() - theirs.colors).abs().amax(-1)
    assert difference[~flipped].max() <= 1e-5
    assert difference[flipped].numel() == 0 or difference[flipped].max() <= 2 / 255
    for name, want in their_gradients.items():
        assert_close(name, our_gradients[name], want, 1e-3 if flipped.any() else 1e-4)
    for name in TAPPED:
        assert_close(name, getattr(our_tap, name), getattr(their_tap, name), 1e-3 if flipped.any() else 1e-4)


def test_F09_absolute_gradients_bound_the_signed_ones():
    _, _, tap = run(scenes.make_random(200, 53, 37, 2).to(torch.float32), "cpu", RasterConfig())
    assert tap.v_means2d.abs().max() > 0
    assert (tap.v_abs_means2d >= tap.v_means2d.abs() * (1 - 1e-4) - 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_N24_bits_do_not_depend_on_threads(dtype):
    case = scenes.make_random(3000, 150, 130, 5).to(dtype)
    results = []
    before = cpu.threads()
    try:
        for threads in (1, 2, 4):
            cpu.set_threads(threads)
            output, gradients, tap = run(case, "cpu", RasterConfig())
            image = output.colors.detach().requires_grad_()
            loss, terms = photometric_loss(image, noise((130, 150, 3), 4, dtype).abs(), backend="cpu")
            loss.backward()
            results.append([output.colors, output.transmittances, output.bins.flatten_ids, loss, terms, image.grad,
                            *(v for k, v in gradients.items() if k != "background"), *(getattr(tap, n) for n in TAPPED)])
    finally:
        cpu.set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)


def test_contributors_equal_the_reference():
    case = scenes.make_random(160, 53, 37, 21)
    config = RasterConfig()
    counts = [contributors(run(case, b, config)[0], case.camera, config, b) for b in ("cpu", "reference")]
    assert counts[1].max() > 3
    assert torch.equal(*counts)


# ------------------------------------------------------------------------------------------------ stage by stage
@pytest.mark.parametrize("antialiased", [False, True])
def test_project_vjp_of_every_output(antialiased):
    case = scenes.make_random(120, 53, 37, 8, off_center=0.3, aspect=1.3, overscan=0.6)
    config = RasterConfig(antialiased=antialiased)
    v = [noise(s, 10 + i) for i, s in enumerate(((120, 2), (120, 3), (120,), (120,)))]
    results = []
    for backend in ("cpu", "reference"):
        gaussians, tensors = scenes.leaves(case.gaussians())
        p = project(gaussians, case.camera, config, backend)
        sum((a * b).sum() for a, b in zip((p.means2d, p.conics, p.depths, p.compensations), v, strict=True)).backward()
        assert (p.extents[:, 0] == 0).any() and (p.extents[:, 0] > 0).any()
        results.append({k: tensors[k].grad for k in ("means", "quats", "scales")})
    for name, want in results[1].items():
        assert_close(name, results[0][name], want, 1e-10)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_N10_sh_vjp_reaches_the_means(degree, joined):
    """Coefficients in one array or two, more stored than the degree uses; clamped colours pass nothing."""
    case = scenes.make_random(70, 53, 37, 9)
    v = noise((70, 3), 3)
    results = []
    for backend in ("cpu", "reference"):
        means = case.params.means.clone().requires_grad_()
        sh = (torch.cat([case.params.sh0, case.params.shN], 1) * 3).requires_grad_()
        parts = (sh, None) if joined else (sh[:, :1], sh[:, 1:])
        colors = sh_to_colors(means, parts[0], case.camera, degree, backend, shN=parts[1])
        assert (colors == 0).any() and (colors > 0).any()
        (colors * v).sum().backward()
        results.append((colors, means.grad, sh.grad))
    assert_close("colors", results[0][0], results[1][0], 1e-12)
    assert_close("v_sh", results[0][2], results[1][2], 1e-10)
    if degree == 0:
        assert not results[0][1].any()
    else:
        assert_close("v_means", results[0][1], results[1][1], 1e-10)


@pytest.mark.parametrize("length", [0.1, 1.0, 10.0])
def test_N06_activation_and_its_gradient(length):
    case = scenes.make_random(37, 53, 37, 9)
    results = []
    for backend in ("cpu", "reference"):
        params = replace(case.params, **{k: v.clone() for k, v in case.params.trained().items()})
        params.quats *= length
        params.quats[3] = 0
        params.requires_grad_()
        g = activate(params, backend)
        v = [noise(s, i) for i, s in enumerate(((37, 4), (37, 3), (37,)))]
        loss = sum((a * b).sum() for a, b in zip((g.quats, g.scales, g.opacities), v, strict=True))
        loss.backward()
        results.append((g, params))
    for name in ("quats", "scales", "opacities"):
        assert_close(name, getattr(results[0][0], name), getattr(results[1][0], name), 1e-12)
    for name in ("quats", "log_scales", "logit_opacities"):
        assert_close(name, getattr(results[0][1], name).grad, getattr(results[1][1], name).grad, 1e-10)
    quats = results[0][1].quats
    assert (quats.grad * quats).sum(-1).abs().max() < 1e-12 * length + 1e-15
    assert quats.grad.abs().max() > 0


def test_activation_keeps_extremes_in_float():
    """exp overflows to Inf, not to garbage; NaN stays NaN, so that the guard can see it."""
    case = scenes.make_random(4, 53, 37, 9).to(torch.float32)
    case.params.log_scales[:, 0] = torch.tensor([200.0, -200.0, float("nan"), 0.0])
    case.params.logit_opacities[:] = torch.tensor([200.0, -200.0, float("nan"), 0.0])
    g = activate(case.params, "cpu")
    assert g.scales[0, 0] == float("inf") and 0 <= g.scales[1, 0] < 1e-30 and g.scales[2, 0].isnan() and g.scales[3, 0] == 1
    assert g.opacities[0] == 1 and 0 <= g.opacities[1] < 1e-30 and g.opacities[2].isnan() and g.opacities[3] == 0.5


@pytest.mark.parametrize("size", [(3, 2), (37, 41), (32, 80), (70, 161)])
@pytest.mark.parametrize("kind", ["l1_ssim", "mse"])
def test_photometric_loss_and_its_gradient(kind, size):
    target = noise((*size, 3), 1).abs().clamp(max=1)
    results = []
    for backend in ("cpu", "reference"):
        image = (target + 0.1 * noise((*size, 3), 2)).requires_grad_()
        loss, terms = photometric_loss(image, target, kind=kind, lambda_dssim=0.2, backend=backend)
        (3 * loss).backward()
        results.append((loss, terms, image.grad))
    for name, ours, theirs in zip(("loss", "terms", "v_image"), *results, strict=True):
        assert_close(name, ours, theirs, 1e-10)


def test_photometric_loss_in_float():
    target = noise((70, 161, 3), 1).abs().clamp(max=1).float()
    results = []
    for backend, dtype in (("cpu", torch.float32), ("reference", torch.float64)):
        image = (target.double() + 0.1 * noise((70, 161, 3), 2)).to(dtype).requires_grad_()
        loss, terms = photometric_loss(image, target.to(dtype), backend=backend)
        loss.backward()
        results.append((loss, terms, image.grad))
    for name, ours, theirs in zip(("loss", "terms", "v_image"), *results, strict=True):
        assert_close(name, ours, theirs, 1e-4)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_adam_equals_torch(dtype, tolerance):
    start = noise((101, 3), 1, dtype)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.03, eps=1e-15)
    ours, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, 8):
        gradient = noise((101, 3), step, dtype)
        theirs.grad = gradient.clone()
        optimizer.step()
        adam_step(ours, gradient, m, v, step=step, lr=0.03, eps=1e-15, backend="cpu")
    assert_close("param", ours, theirs, tolerance)
    assert (ours - start).abs().min() > 0


@pytest.mark.parametrize("row", [(), (1, 3), (15, 3)])
def test_adam_with_extents_equals_the_reference_at_any_thread_count(row):
    """Seen rows in runs of every length move, the others keep parameter and moments, whatever their gradient is."""
    n = 3001
    seen = noise((n,), 5).cumsum(0).sin() > 0.2
    extents = torch.where(seen[:, None], noise((n, 2), 6).abs() + 0.1, 0.0)
    assert seen.any() and not seen.all()
    start = [noise((n, *row), 1), noise((n, *row), 2), noise((n, *row), 3).abs()]
    gradient = noise((n, *row), 4)
    gradient[~seen] = float("nan")
    want, results = [t.clone() for t in start], []
    adam_step(want[0], gradient, *want[1:], step=3, lr=0.03, eps=1e-15, backend="reference", extents=extents)
    before = cpu.threads()
    try:
        for count in (1, 2, 4):
            cpu.set_threads(count)
            got = [t.clone() for t in start]
            adam_step(got[0], gradient, *got[1:], step=3, lr=0.03, eps=1e-15, backend="cpu", extents=extents)
            results.append(got)
    finally:
        cpu.set_threads(before)
    for ours, theirs, old, *others in zip(results[0], want, start, *results[1:]):
        assert_close("adam", ours[seen], theirs[seen], 1e-12)
        assert torch.equal(ours[~seen], old[~seen]) and not torch.equal(ours[seen], old[seen])
        assert all(torch.equal(ours, other) for other in others)
