"""Spherical harmonics of the reference renderer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from render.reference.sh import sh_basis, sh_to_colors
from tests import scenes
from tests.gradients import assert_gradients


def test_basis_is_orthonormal_on_the_sphere():
    # Gauss-Legendre in z, uniform in the azimuth: exact for products of two degree-3 harmonics
    z, wz = np.polynomial.legendre.leggauss(8)
    azimuth = 2 * math.pi * np.arange(16) / 16
    zz, aa = (a.ravel() for a in np.meshgrid(z, azimuth, indexing="ij"))
    weights = torch.tensor(np.repeat(wz, 16) * 2 * math.pi / 16)
    r = np.sqrt(1 - zz**2)
    basis = sh_basis(torch.tensor(np.stack([r * np.cos(aa), r * np.sin(aa), zz], axis=-1)), 3)
    gram = torch.einsum("nk,nl,n->kl", basis, basis, weights)
    torch.testing.assert_close(gram, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-13)


@pytest.mark.parametrize("direction, coefficient, value", [
    ((0, 1, 0), 1, -0.4886025119), ((0, 0, 1), 2, 0.4886025119), ((1, 0, 0), 3, -0.4886025119),
    ((0, 0, 1), 6, 0.6307831305), ((1, 0, 0), 8, 0.5462742153), ((0, 1, 0), 9, 0.5900435899),
    ((0, 0, 1), 12, 0.7463526652), ((1, 0, 0), 15, -0.5900435899)])
def test_order_and_signs_are_those_of_3dgs_files(direction, coefficient, value):
    assert sh_basis(torch.tensor([direction], dtype=torch.float64), 3)[0, coefficient].item() == pytest.approx(value)


def test_colour_is_half_plus_the_sum_and_never_negative():
    camera = scenes.make_camera()
    means = torch.tensor(scenes.to_world(camera, np.array([[0.0, 0, 2], [0, 0, 2]])))
    sh = torch.zeros(2, 1, 3, dtype=torch.float64)
    sh[0] = torch.tensor([0.5, 0.0, -0.25]) / scenes.SH_C0
    sh[1] = -1 / scenes.SH_C0
    torch.testing.assert_close(sh_to_colors(means, sh, camera, 0),
                               torch.tensor([[1.0, 0.5, 0.25], [0, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_gradcheck(degree):
    case = scenes.make_random(6, seed=degree)
    g = case.gaussians()
    inputs = (g.means.requires_grad_(), g.sh.requires_grad_())
    assert torch.autograd.gradcheck(lambda m, s: sh_to_colors(m, s, case.camera, degree), inputs)


def test_N10_view_direction_gradient_reaches_the_means():
    case = scenes.make_random(6, seed=1)
    g = case.gaussians()
    means = g.means.requires_grad_()
    weights = torch.linspace(-1, 1, 18, dtype=torch.float64).reshape(6, 3)
    assert_gradients(lambda: (sh_to_colors(means, g.sh, case.camera, 3) * weights).sum(), {"means": means})
    assert_gradients(lambda: (sh_to_colors(means, g.sh, case.camera, 0) * weights).sum() + 0 * means.sum(),
                     {"means": means}, zero=["means"])


@pytest.mark.parametrize("bad", ["center", math.nan, math.inf])
def test_directionless_means_give_finite_colours_and_no_gradient(bad):
    case = scenes.make_random(4)
    means = case.params.means.clone()
    means[1] = torch.tensor(case.camera.center) if bad == "center" else bad
    means.requires_grad_()
    colors = sh_to_colors(means, case.gaussians().sh, case.camera, 3)
    colors.sum().backward()
    assert torch.isfinite(colors).all()
    assert torch.isfinite(means.grad).all() and means.grad[0].abs().max() > 0
    assert (means.grad[1] == 0).all()


def test_too_few_coefficients_are_named():
    case = scenes.make_random(4, sh_degree=1)
    with pytest.raises(ValueError, match="degree 2 needs .* 9 coefficients, got 4"):
        sh_to_colors(case.params.means, case.gaussians().sh, case.camera, 2)
