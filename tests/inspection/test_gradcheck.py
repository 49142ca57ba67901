"""The gradient check: the shortcut is the whole picture, the U-curve has its slopes, planted faults are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.inspection.gradcheck import STEP, CheckOptions, difference, finished, frozen_difference, gradient_check, sides
from app.inspection.gradcheck_results import GradientReport
from app.inspection.local_picture import LocalPicture, base_picture
from app.inspection.problem import Problem, analytic_gradients, whole_loss
from app.inspection.ucurve import slopes
from render import pipeline
from render.backends import cpu
from render.backends.signatures import CPU_KERNELS
from render.config import RasterConfig
from render.types import PARAM_GROUPS
from tests.inspection.gradcheck_scenes import random_problem, visible
from tests.inspection.test_gradcheck_kinks import finished_freeze

SEED = 5


def check(problem: Problem, count: int = 4, **options: Any) -> GradientReport:
    """The visible Gaussians with the most opacity, clamped ones first."""
    rows = sorted(visible(problem), key=lambda i: -float(problem.params.logit_opacities[i]))
    return finished(gradient_check(problem, rows[:count], CheckOptions(**({"sweep": False} | options))))


def failed(report: GradientReport) -> set[str]:
    return {p.parameter for p in report.parameters if not p.ok}


# ---------------------------------------------------------------- the shortcut


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3), st.sampled_from(["l1_ssim", "mse", "cotangent"]), st.integers(0, 10**6),
       st.sampled_from(PARAM_GROUPS), st.floats(-0.01, 0.01))
def test_the_region_of_a_gaussian_is_the_whole_picture(seed, loss, pick, group, move) -> None:
    problem = random_problem(loss, n=60, seed=seed)
    base = base_picture(problem)
    rows = visible(problem)
    index = rows[pick % len(rows)]
    component = pick % getattr(problem.params, group)[0].numel()
    local = LocalPicture(base, index)
    x = local.entry(group, component)
    here, there = local.evaluate(group, component, x), local.evaluate(group, component, x + move)
    moved = getattr(problem.params, group).clone()
    moved[index].view(-1)[component] = x + move
    changed = replace(problem, params=replace(problem.params, **{group: moved}))
    whole = base_picture(changed).output.colors
    left, top, width, height = local.outer
    assert torch.allclose(there.surrounding, whole[top:top + height, left:left + width], rtol=0, atol=1e-13)
    outside = (whole - base.output.colors).abs()
    outside[local.box[1]:local.box[1] + local.box[3], local.box[0]:local.box[0] + local.box[2]] = 0
    assert float(outside.max()) == 0, "the Gaussian changed pixels outside its region"
    with torch.no_grad():
        wanted = float(whole_loss(changed, whole, "cpu")) - float(whole_loss(problem, base.output.colors, "cpu"))
    assert there.value - here.value == pytest.approx(wanted, rel=1e-8, abs=2e-14)
    assert local.entry(group, component) == x, "the entry was not put back"


@pytest.mark.parametrize("loss", ["l1_ssim", "mse", "cotangent"])
def test_frozen_and_rendered_differences_agree_where_nothing_flips(loss) -> None:
    problem = random_problem(loss, seed=SEED)
    base = base_picture(problem)
    compared = 0
    for index in visible(problem)[:40:8]:
        local = LocalPicture(base, index)
        frozen = finished_freeze(local)
        for group in PARAM_GROUPS:
            numeric, _, kinks = difference(local, group, 0, STEP)
            if not kinks:
                compared += 1
                assert frozen_difference(frozen, group, 0, STEP) == pytest.approx(numeric, rel=1e-4, abs=1e-9), (index, group)
    assert compared > 20


@given(st.floats(-1e6, 1e6), st.sampled_from([1e-2, STEP, 1e-9]))
def test_the_step_is_the_one_that_was_taken(x, step) -> None:
    low, high, taken = sides(x, step)
    assert taken == high - low and abs(taken - 2 * step * max(1, abs(x))) <= 4 * math.ulp(max(1.0, abs(x)))


# ---------------------------------------------------------------- right gradients


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("mode", ["exact", "straight_through", "straight_through_clamped"])
def test_right_gradients_pass_in_every_mode(backend, mode) -> None:
    report = check(random_problem(seed=SEED, raster=RasterConfig(alpha_gradient=mode)), 6, backend=backend)
    assert report.ok, [p for p in report.parameters if not p.ok]
    assert {p.parameter for p in report.parameters} == set(PARAM_GROUPS)
    differ = sum(p.straight_through for p in report.parameters)
    assert (differ > 0) is (mode != "exact")
    assert any("differ from finite differences because of straight-through" in note for note in report.notes) is (differ > 0)


@pytest.mark.parametrize("settings_", [dict(antialiased=True), dict(smooth_cutoff=True), dict(alpha_max=0.999)])
def test_right_gradients_pass_under_other_rules(settings_) -> None:
    assert check(random_problem("mse", seed=SEED, raster=RasterConfig(**settings_)), 3).ok


def test_float32_passes_within_its_tolerance() -> None:
    report = check(random_problem(seed=SEED), 3, dtype="float32")
    assert report.ok and max(p.max_error for p in report.parameters) > 1e-9   # it was float32


def test_what_the_view_does_not_show_is_unseen() -> None:
    problem = random_problem(seed=SEED)
    hidden = 7
    problem.params.means[hidden] += 1000.0
    report = finished(gradient_check(problem, [hidden], CheckOptions()))
    assert report.unseen == (hidden,) and report.gaussians == () and not report.ok


def test_bands_that_are_not_in_use_are_not_checked() -> None:
    report = check(replace(random_problem(seed=SEED), sh_degree=1), 2)
    assert sum(e.parameter == "shN" for e in report.entries) == 2 * 9
    report = check(replace(random_problem(seed=SEED), sh_degree=0), 2)
    assert "shN" not in {p.parameter for p in report.parameters} and any("shN is not checked" in n for n in report.notes)


def test_a_check_can_be_given_up_and_advances_in_small_bites() -> None:
    import time

    job = gradient_check(random_problem(seed=SEED), list(range(20)), CheckOptions())
    longest, before, fractions = 0.0, time.perf_counter(), []
    for _, (fraction, text) in zip(range(150), job, strict=False):
        longest, before = max(longest, time.perf_counter() - before), time.perf_counter()
        fractions.append(fraction)
        assert text
    job.close()
    assert fractions == sorted(fractions) and 0 <= fractions[-1] < 1
    assert longest < 0.5   # milliseconds here; a machine under load may take a while


# ---------------------------------------------------------------- the U-curve


def test_the_u_curve_has_its_two_slopes() -> None:
    report = check(random_problem(seed=SEED), 2, sweep=True, parameters=("means", "log_scales"))
    for sweep in report.sweeps:
        assert sweep.truncation_slope == pytest.approx(2.0, abs=0.25), sweep.parameter
        assert sweep.rounding_slope == pytest.approx(-1.0, abs=0.4), sweep.parameter
        at_default = sweep.frozen[np.abs(np.log(sweep.steps / sweep.default_step)).argmin()]
        assert at_default < 1e-6 and sweep.frozen.min() < 1e-7 < 1e-4 < sweep.frozen.max()
    assert {s.parameter for s in report.sweeps} == {"means", "log_scales"}


def test_slopes_of_a_known_u() -> None:
    h = np.logspace(-1, -11, 31)
    truncation, rounding = slopes(h, 0.3 * h**2 + 1e-16 / h)
    assert truncation == pytest.approx(2.0, abs=0.05) and rounding == pytest.approx(-1.0, abs=0.05)
    assert all(math.isnan(s) for s in slopes(h, np.zeros(31)))


# ---------------------------------------------------------------- planted faults


@pytest.fixture
def plant(monkeypatch) -> Callable[[str, Callable[[dict[str, Any]], None], str], None]:
    """Change what a backward kernel is given ("before") or what it wrote ("after"), by the names of its arguments."""

    def planting(kernel: str, fault: Callable[[dict[str, Any]], None], when: str) -> None:
        kernels = cpu.kernels(torch.float64)
        right = getattr(kernels, kernel)
        names = [argument.name for argument in CPU_KERNELS[kernel]]

        def wrong(*values: Any) -> Any:
            given = dict(zip(names, values, strict=True))
            if when == "before":
                fault(given)
            result = right(*given.values())
            if when == "after":
                fault(given)
            return result

        monkeypatch.setattr(kernels, kernel, wrong)

    return planting


def test_a_wrong_sign_is_found(plant) -> None:
    plant("rasterize_gather", lambda a: a["v_means2d"][:, 1].neg_(), "after")
    assert "means" in failed(check(random_problem(seed=SEED)))


def test_a_wrong_sign_of_one_quaternion_term_is_found(plant) -> None:
    plant("project_bwd", lambda a: a["v_quats"][:, 2].neg_(), "after")
    assert failed(check(random_problem(seed=SEED))) == {"quats"}


def test_a_missing_background_term_is_found(plant) -> None:
    plant("rasterize_bwd", lambda a: a.update(background=torch.zeros(3, dtype=torch.float64)), "before")
    found = failed(check(random_problem(seed=SEED)))
    assert {"means", "log_scales", "logit_opacities"} <= found and not found & {"sh0", "shN"}


@pytest.mark.parametrize(("asked", "done"), [("exact", "straight_through"), ("exact", "straight_through_clamped"),
                                             ("straight_through", "exact"), ("straight_through_clamped", "straight_through")])
def test_another_clamp_mode_than_the_one_asked_for_is_found(plant, asked, done) -> None:
    raster = cpu.kernels(torch.float64).raster(RasterConfig(alpha_gradient=done))
    plant("rasterize_bwd", lambda a: a.update(raster=raster), "before")
    found = failed(check(random_problem(seed=SEED, raster=RasterConfig(alpha_gradient=asked))))
    assert "logit_opacities" in found and not found & {"sh0", "shN"}


def test_a_halved_off_diagonal_conic_term_is_found(plant) -> None:
    plant("rasterize_gather", lambda a: a["v_conics"][:, 1].mul_(0.5), "after")
    found = failed(check(random_problem(seed=SEED)))
    assert {"quats", "log_scales"} <= found and not found & {"logit_opacities", "sh0", "shN"}


def test_a_detached_sh_direction_is_found(plant) -> None:
    plant("sh_bwd", lambda a: a["v_means"].zero_(), "after")
    assert failed(check(random_problem(seed=SEED))) == {"means"}


def test_gradients_that_are_all_zero_fail(plant) -> None:
    plant("sh_bwd", lambda a: a["v_shN"].zero_(), "after")
    report = check(random_problem(seed=SEED), 2)
    assert [p.problem for p in report.parameters if not p.ok] == ["every gradient is zero"]


def test_a_fault_in_the_reference_is_found_too(monkeypatch) -> None:
    """The same of the other side: a reference whose normalised quaternions pass their cotangent on unprojected."""
    import render.reference.activate as module

    def unprojected(quats):
        lengths = torch.linalg.vector_norm(quats.detach(), dim=-1, keepdim=True)
        return quats / lengths

    problem = random_problem(seed=SEED)
    with monkeypatch.context() as patch:
        patch.setattr(module, "normalize_quats", unprojected)
        gradients = analytic_gradients(problem, "reference", torch.float64)
    right = analytic_gradients(problem, "reference", torch.float64)
    assert torch.equal(gradients["means"], right["means"])
    monkeypatch.setattr("app.inspection.gradcheck.analytic_gradients", lambda *_: gradients)
    assert failed(check(problem, backend="reference")) == {"quats"}


def test_the_whole_gradient_is_the_one_of_a_training_step() -> None:
    problem = random_problem(seed=SEED)
    found = analytic_gradients(problem, "cpu", torch.float32)
    params = replace(problem.params, **{n: t.float().requires_grad_() for n, t in problem.params.trained().items()})
    output = pipeline.render_params(params, problem.camera, problem.raster, background=problem.background.float(), sh_degree=3,
                                    backend="cpu")
    whole_loss(problem, output.colors, "cpu").backward()
    for name, tensor in params.trained().items():
        assert tensor.grad is not None and torch.equal(tensor.grad.double(), found[name]), name
