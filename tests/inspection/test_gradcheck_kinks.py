"""Each kink by its name, on a scene that stands on it; and what is frozen there agrees with the analytic gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from app.inspection.frozen import freeze
from app.inspection.gradcheck import STEP, CheckOptions, difference, finished, frozen_difference, gradient_check
from app.inspection.gradcheck_results import KINKS
from app.inspection.kinks import projection_clamped
from app.inspection.local_picture import LocalPicture, base_picture
from app.inspection.problem import Problem, analytic_gradients
from render.config import RasterConfig
from tests.inspection.gradcheck_scenes import at_flip, few, random_problem, toward_camera, visible

Built = tuple[Problem, str, int]


def cutoff() -> Built:
    problem = few()
    return at_flip(problem, "logit_opacities", 0, 1.38, 1.40, lambda _, e: int(e.blended.sum())), "logit_opacities", 0


def alpha_clamp() -> Built:
    problem = few(opacities=(0.995,), sigmas=(6.0,))
    return at_flip(problem, "logit_opacities", 0, 4.8, 7.0, lambda _, e: int((e.raw > 0.99).sum())), "logit_opacities", 0


def early_stop() -> Built:
    problem = few(depths=(3.0, 2.5, 3.5), opacities=(0.9, 0.95, 0.95), sigmas=(6.0, 5.0, 5.0),
                  pixels=((20.3, 14.2), (19.8, 14.4), (20.6, 13.7)))
    return at_flip(problem, "logit_opacities", 0, 1.0, 4.0, lambda _, e: int(e.last[14, 20])), "logit_opacities", 0


def depth_order() -> Built:
    problem = few(depths=(3.0, 3.05), opacities=(0.7, 0.6), sigmas=(3.0, 4.0), pixels=((20.3, 14.2), (21.1, 13.4)))
    axis = toward_camera(problem)
    x = float(problem.params.means[0, axis])

    def nearer(local: LocalPicture, e) -> bool:
        depths = e.output.projected.depths
        return bool(depths[local.place] < depths[1 - local.place])

    away = 0.2 if problem.camera.viewmat[2, axis] > 0 else -0.2
    return at_flip(problem, "means", axis, x, x + away, nearer), "means", axis


def sh_clamp() -> Built:
    return at_flip(few(), "sh0", 1, 0.0, -4.0, lambda local, e: bool(e.output.splat_colors[local.place, 1] > 0)), "sh0", 1


def l1_sign() -> Built:
    def positive(local: LocalPicture, e) -> int:
        signs = local.loss.signs(e.surrounding)
        assert signs is not None
        return int((signs > 0).sum())

    return at_flip(few(loss="l1_ssim"), "sh0", 2, 0.1, 0.6, positive), "sh0", 2


def footprint_edge() -> Built:
    problem = few(near=2.95)
    axis = toward_camera(problem)
    x = float(problem.params.means[0, axis])
    nearer = -0.2 if problem.camera.viewmat[2, axis] > 0 else 0.2
    return at_flip(problem, "means", axis, x, x + nearer, lambda _, e: bool(e.blended.any())), "means", axis


def projection_clamp() -> Built:
    problem = few(pixels=((45.0, 14.2),), sigmas=(8.0,))
    axis = int(abs(problem.camera.viewmat[0, :3]).argmax())
    x, right = float(problem.params.means[0, axis]), float(problem.camera.viewmat[0, axis])
    return at_flip(problem, "means", axis, x, x + 0.3 / right, projection_clamped), "means", axis


BUILT: dict[str, Callable[[], Built]] = {f.__name__: f for f in (
    cutoff, alpha_clamp, early_stop, depth_order, sh_clamp, l1_sign, footprint_edge, projection_clamp)}


def test_every_kink_has_a_scene() -> None:
    assert set(BUILT) == set(KINKS)


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_named_and_checked_again_with_all_decisions_frozen(name: str) -> None:
    problem, group, component = BUILT[name]()
    local = LocalPicture(base_picture(problem), 0)
    numeric, taken, kinks = difference(local, group, component, STEP)
    assert set(kinks) == {name} and all(kinks.values()) and taken > 0
    analytic = float(analytic_gradients(problem, "cpu", torch.float64)[group][0].reshape(-1)[component])
    assert analytic != 0
    if name != "l1_sign":   # of one pixel in hundreds: the difference hardly feels it
        assert abs(numeric - analytic) > 1e-4 * abs(analytic), "a difference across the kink is right all the same"
    frozen = finished_freeze(local)
    if frozen.exact:
        assert frozen_difference(frozen, group, component, STEP) == pytest.approx(analytic, rel=1e-6)


def test_kinks_are_no_wrong_gradients_but_too_many_of_them_are_no_check() -> None:
    problem, group, _ = early_stop()
    report = finished(gradient_check(problem, [0, 1, 2], CheckOptions(sweep=False)))
    (row,) = (p for p in report.parameters if p.parameter == group)
    assert row.kinks == {"early_stop": 3} and row.rechecked == 3 and row.max_rechecked_error < 1e-6   # each can flip it
    assert row.checked == 0 and not row.ok and row.problem.startswith("only 0 of 3 entries have no kink")


def test_a_smooth_cutoff_is_no_kink() -> None:
    problem, group, component = cutoff()
    smooth = replace(problem, raster=RasterConfig(smooth_cutoff=True))
    _, _, kinks = difference(LocalPicture(base_picture(smooth), 0), group, component, STEP)
    assert kinks == {}


@pytest.mark.parametrize("mode", ["exact", "straight_through", "straight_through_clamped"])
@pytest.mark.parametrize("smooth", [False, True])
def test_the_frozen_gaussian_has_the_references_gradient(mode, smooth) -> None:
    problem = random_problem(n=60, width=44, height=30, seed=3,
                             raster=RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth))
    wanted = analytic_gradients(problem, "reference", torch.float64)
    base = base_picture(problem)
    clamped = 0
    for index in visible(problem)[::9]:
        frozen = finished_freeze(LocalPicture(base, index))
        clamped += int((frozen.raw > 0.99).sum())
        for group, gradient in frozen.gradients().items():
            reference = wanted[group][index].reshape(-1)
            assert torch.allclose(gradient, reference, rtol=1e-9, atol=1e-11 * float(wanted[group].abs().max())), group
    assert clamped, "no pixel is clamped, so the modes were not told apart"


def finished_freeze(local: LocalPicture):
    work = freeze(local, local.evaluate("means", 0, local.entry("means", 0)))
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
