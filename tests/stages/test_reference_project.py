"""Projection of the reference renderer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from render.config import FOOTPRINT_MARGIN, RasterConfig
from render.reference.activate import activate, normalize_quats
from render.reference.project import project, quats_to_rotations, ratio_limits
from render.types import Projected
from tests import scenes
from tests.gradients import assert_gradients

OUTPUTS = ("means2d", "conics", "depths", "compensations")
DEFAULT = RasterConfig()


def project_case(case: scenes.Case, config: RasterConfig = DEFAULT) -> Projected:
    g = case.gaussians()
    return project(g.means, g.quats, g.scales, g.opacities, case.camera, config)


def pinhole(camera, point: np.ndarray) -> np.ndarray:
    x, y, z = camera.viewmat[:3, :3] @ point + camera.viewmat[:3, 3]
    return np.array([camera.K[0, 0] * x / z + camera.K[0, 2], camera.K[1, 1] * y / z + camera.K[1, 2]])


def test_N01_means_land_where_the_pinhole_says():
    case = scenes.make_random(50, off_center=0.3, aspect=1.3, overscan=0.0)
    projected = project_case(case)
    expected = np.stack([pinhole(case.camera, m) for m in case.params.means.numpy()])
    assert (projected.extents > 0).all()
    np.testing.assert_allclose(projected.means2d.numpy(), expected, atol=1e-10)


def test_covariance_is_the_numeric_jacobian_of_the_pinhole_applied_to_the_ellipsoid():
    case = scenes.make_random(12, off_center=0.2, aspect=1.3, overscan=0.0)
    gaussians, projected = case.gaussians(), project_case(case)
    rotations = quats_to_rotations(gaussians.quats).numpy()
    for i in range(12):
        mean, h = gaussians.means[i].numpy(), 1e-5
        J = np.stack([(pinhole(case.camera, mean + h * e) - pinhole(case.camera, mean - h * e)) / (2 * h)
                      for e in np.eye(3)], axis=1)
        half = rotations[i] * gaussians.scales[i].numpy()
        covariance = J @ half @ half.T @ J.T + 0.3 * np.eye(2)
        a, b, c = projected.conics[i].numpy()
        np.testing.assert_allclose(np.linalg.inv([[a, b], [b, c]]), covariance, rtol=1e-6)


def test_N02_clamp_limits_follow_the_principal_point():
    camera = scenes.make_camera(40, 20, off_center=0.3, focal=1.0, aspect=2.0)  # fx 40, fy 80, cx 32, cy 4
    (left, right), (top, bottom) = ratio_limits(camera, RasterConfig())
    assert (left, right) == pytest.approx((-32 / 40 - 0.3 * 0.5, 8 / 40 + 0.3 * 0.5))
    assert (top, bottom) == pytest.approx((-4 / 80 - 0.3 * 0.125, 16 / 80 + 0.3 * 0.125))


def test_outside_the_clamp_the_jacobian_uses_the_limit_and_the_mean_does_not():
    case = scenes.outside_clamp()
    camera, gaussians, projected = case.camera, case.gaussians(), project_case(case)
    limits = ratio_limits(camera, RasterConfig())
    fx, fy = camera.K[0, 0], camera.K[1, 1]
    clamped = 0
    for i in range(len(case.params)):
        x, y, z = camera.viewmat[:3, :3] @ gaussians.means[i].numpy() + camera.viewmat[:3, 3]
        u, v = np.clip(x / z, *limits[0]), np.clip(y / z, *limits[1])
        clamped += (u != x / z) + (v != y / z)
        J = np.array([[fx / z, 0, -fx * u / z], [0, fy / z, -fy * v / z]])
        half = J @ camera.viewmat[:3, :3] @ (quats_to_rotations(gaussians.quats)[i] * gaussians.scales[i]).numpy()
        a, b, c = projected.conics[i].numpy()
        np.testing.assert_allclose(np.linalg.inv([[a, b], [b, c]]), half @ half.T + 0.3 * np.eye(2), rtol=1e-9)
        np.testing.assert_allclose(projected.means2d[i].numpy(), pinhole(camera, gaussians.means[i].numpy()), rtol=1e-9)
    assert clamped >= 4


def test_extents_box_the_cutoff_ellipse():
    case = scenes.single(sigma=4.0, opacity=0.7)
    projected = project_case(case)
    a, b, c = projected.conics[0].tolist()
    angle = np.linspace(0, 2 * np.pi, 20001)
    half = np.linalg.cholesky(np.linalg.inv([[a, b], [b, c]]))
    rim = half @ np.stack([np.cos(angle), np.sin(angle)]) * math.sqrt(2 * math.log(0.7 * 255))
    true = np.abs(rim).max(axis=1)
    extents = projected.extents[0].numpy()
    assert (extents >= true).all()
    assert (extents <= true * (1 + FOOTPRINT_MARGIN)).all()


def test_antialiased_opacity_is_scaled_by_the_root_of_the_determinants():
    case = scenes.make_random(30, sigma=(0.1, 1.0), opacity=(0.5, 0.9))
    plain = project_case(case, RasterConfig(eps2d=1e-12))
    filtered = project_case(case, RasterConfig(antialiased=True))
    kept = (plain.extents[:, 0] > 0) & (filtered.extents[:, 0] > 0)
    assert kept.sum() > 10

    def determinant(p):
        return 1 / (p.conics[kept, 0] * p.conics[kept, 2] - p.conics[kept, 1] ** 2)

    expected = torch.sqrt(determinant(plain) / determinant(filtered))
    torch.testing.assert_close(filtered.compensations[kept], expected, rtol=1e-5, atol=1e-6)
    assert (filtered.compensations[kept] < 0.95).any()
    assert (project_case(case).compensations[kept] == 1).all()


@pytest.mark.parametrize("maker", [scenes.outside_clamp, lambda: scenes.make_random(8, off_center=0.3, aspect=1.3)],
                         ids=["outside_clamp", "random"])
@pytest.mark.parametrize("antialiased", [False, True])
def test_gradcheck(maker, antialiased):
    case = maker()
    gaussians = case.gaussians()
    inputs = [t.clone().requires_grad_() for t in (gaussians.means, gaussians.quats, gaussians.scales)]
    config = RasterConfig(antialiased=antialiased)
    assert (project_case(case, config).extents[:, 0] > 0).sum() >= 4

    def f(means, quats, scales):
        projected = project(means, quats, scales, gaussians.opacities, case.camera, config)
        return tuple(getattr(projected, name) for name in OUTPUTS[:4 if antialiased else 3])

    assert torch.autograd.gradcheck(f, inputs, eps=1e-6, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["none_visible", "behind", "inf_scale", "nan_mean", "inf_mean", "nan_quat",
                                  "nan_opacity", "transparent", "half_behind", "empty"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("antialiased", [False, True])
def test_culled_rows_are_zero_and_get_a_gradient_of_exactly_zero(name, dtype, antialiased):
    case = scenes.EDGE_CASES[name](dtype)
    gaussians, tensors = scenes.leaves(case.gaussians())
    projected = project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, case.camera,
                        RasterConfig(antialiased=antialiased))
    culled = projected.extents[:, 0] == 0
    assert culled.any() or name == "empty"
    assert case.visible == (~culled).any()
    for output in OUTPUTS:
        value = getattr(projected, output)
        assert torch.isfinite(value).all()
        assert (value[culled] == 0).all()
    sum((getattr(projected, output) ** 2).sum() for output in OUTPUTS).backward()
    for group in ("means", "quats", "scales"):
        assert torch.isfinite(tensors[group].grad).all(), group
        assert (tensors[group].grad[culled] == 0).all(), group


def test_near_and_far_cull():
    case = scenes.single(depth=3.0)
    for camera, kept in ((replace(case.camera, near=2.9), True), (replace(case.camera, near=3.1), False),
                         (replace(case.camera, far=3.1), True), (replace(case.camera, far=2.9), False)):
        assert bool(project_case(replace(case, camera=camera)).extents[0, 0] > 0) == kept


@pytest.mark.parametrize("pixel, kept", [((-11.0, 14.0), True), ((-13.0, 14.0), False), ((20.0, 39.0), True),
                                         ((20.0, 41.0), False)])
def test_box_off_the_image_is_culled(pixel, kept):
    # sigma sqrt(3^2 + 0.3) px and opacity 0.8: the cutoff lies 9.95 px from the mean, more where J is oblique
    case = scenes.single(pixel=pixel, sigma=3.0)
    assert bool(project_case(case).extents[0, 0] > 0) == kept


def test_N23_long_gaussian_beside_the_frustum_stays_near_its_true_footprint():
    """A needle along the viewing direction, close to the camera and left of the image. Linearised at its mean without
    the clamp its ellipse would sweep over the picture."""
    camera = scenes.make_camera(96, 64, focal=0.6)
    pixel, depth = np.array([[-60.0, 32.0]]), np.array([1.0])
    params = scenes.params_from(camera, pixel, depth, np.array([[1.0, 1.0, 16.0]]), np.array([0.9]),
                                np.full((1, 3), 0.9), round_ones=True)
    # the identity quaternion means world axes; turn the needle's z onto the camera's
    params.quats = _quat_of(camera.viewmat[:3, :3].T)[None]
    case = scenes.Case("needle", params, camera)
    true = _true_box(case, 0)
    clamped = project_case(case, RasterConfig())
    swept = project_case(case, RasterConfig(clamp_fov=3.0))
    rights = [float(p.means2d[0, 0] + p.extents[0, 0]) for p in (clamped, swept)]
    right = rights[0] if clamped.extents[0, 0] > 0 else 0.0
    assert right <= max(true[1, 0], 0) + 16
    assert rights[1] > max(true[1, 0], 0) + 16, "without the clamp this scene must fail, or it proves nothing"


def _quat_of(rotation: np.ndarray) -> torch.Tensor:
    w = math.sqrt(max(0.0, 1 + np.trace(rotation))) / 2
    x, y, z = (rotation[2, 1] - rotation[1, 2]), (rotation[0, 2] - rotation[2, 0]), (rotation[1, 0] - rotation[0, 1])
    quat = torch.tensor([w, x / (4 * w), y / (4 * w), z / (4 * w)], dtype=torch.float64)
    torch.testing.assert_close(quats_to_rotations(quat[None])[0], torch.tensor(rotation), rtol=1e-9, atol=1e-9)
    return quat


def _true_box(case: scenes.Case, i: int) -> np.ndarray:
    """[2,2] px (low, high) of the ellipsoid of alpha >= cutoff, its surface projected point by point."""
    gaussians = case.gaussians()
    rng = np.random.default_rng(0)
    sphere = rng.standard_normal((20000, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    radius = math.sqrt(2 * math.log(gaussians.opacities[i].item() * 255))
    half = (quats_to_rotations(gaussians.quats)[i] * gaussians.scales[i]).numpy()
    points = gaussians.means[i].numpy() + radius * sphere @ half.T
    camera = case.camera
    local = points @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    local = local[local[:, 2] > camera.near]
    pixels = local[:, :2] / local[:, 2:] * [camera.K[0, 0], camera.K[1, 1]] + camera.K[:2, 2]
    return np.stack([pixels.min(axis=0), pixels.max(axis=0)])


def test_N06_quaternion_length_has_no_effect_and_no_gradient():
    case = scenes.make_random(10, seed=2)
    weights = torch.randn(10, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    conics = []
    for factor in (0.1, 1.0, 10.0):
        quats = (case.params.quats * factor).requires_grad_()
        gaussians = activate(replace(case.params, quats=quats))

        def loss(quats=quats, gaussians=gaussians):
            unit = normalize_quats(quats)
            return (project(gaussians.means, unit, gaussians.scales, gaussians.opacities, case.camera,
                            RasterConfig()).conics * weights).sum()

        gradient = assert_gradients(loss, {"quats": quats}, eps=1e-6 * factor)["quats"]
        radial = (gradient * quats.detach()).sum(-1)
        assert radial.abs().max() <= 1e-12 * gradient.abs().max() * quats.detach().norm(dim=-1).max()
        conics.append(project(gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, case.camera,
                              RasterConfig()).conics.detach())
    torch.testing.assert_close(conics[0], conics[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(conics[2], conics[1], rtol=1e-12, atol=0)


def test_activate_gradcheck_and_zero_quaternion():
    params = scenes.make_random(4, sh_degree=1).params.requires_grad_()

    def f(*tensors):
        gaussians = activate(replace(params, **dict(zip(params.trained(), tensors, strict=True))))
        return gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, gaussians.sh

    assert torch.autograd.gradcheck(f, tuple(params.trained().values()))
    zero = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    unit = normalize_quats(zero)
    unit.sum().backward()
    assert unit.tolist() == [[1, 0, 0, 0]] * 2
    assert (zero.grad == 0).all()


def test_wrong_shapes_are_named():
    g = scenes.make_random(5).gaussians()
    with pytest.raises(ValueError, match=r"quats: expected shape \[N 4\] with N=5, got \[5, 3\]"):
        project(g.means, g.quats[:, :3], g.scales, g.opacities, scenes.make_camera(), RasterConfig())
