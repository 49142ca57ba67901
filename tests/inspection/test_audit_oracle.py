"""The switchable renderer of the audit equals the reference where no switch is thrown, and differs where one is."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from app.inspection.audit import oracle, probes
from app.inspection.audit.run import one_thread
from app.inspection.audit.types import Flaws, Probe, Rules, relative_error
from render.config import RasterConfig
from render.pipeline import render
from render.types import Gaussians


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def reference(probe: Probe, config: RasterConfig):
    leaves = probe.leaves()
    gaussians = Gaussians(*(leaves[name] for name in ("means", "quats", "scales", "opacities", "sh")))
    image = render(gaussians, probe.camera, config, background=leaves["background"], sh_degree=3, backend="reference").colors
    (image * probes.cotangent(probe)).sum().backward()
    return image.detach(), {name: leaf.grad for name, leaf in leaves.items()}


@pytest.mark.parametrize("mode", ["exact", "straight_through", "straight_through_clamped"])
@pytest.mark.parametrize("make", [probes.crowd, probes.dense])
def test_without_a_switch_it_is_the_reference(make, mode):
    probe = make("scene", 3)
    for antialiased in (False, True):
        rules = Rules(opacity_mode=mode, power_mode=mode, antialiased=antialiased)
        image, wanted = reference(probe, RasterConfig(alpha_gradient=mode, antialiased=antialiased))
        assert relative_error(oracle.draw(probe, rules).image, image) < 1e-12
        got = oracle.gradients(probe, probes.cotangent(probe), rules)
        for name, gradient in wanted.items():
            assert gradient.abs().max() > 0
            assert relative_error(got[name], gradient) < 1e-10, name


def test_tile_by_tile_is_the_same(monkeypatch):
    probe = probes.crowd("crowd", 1)
    whole, gradients = oracle.draw(probe, Rules()).image, oracle.gradients(probe, probes.cotangent(probe), Rules())
    monkeypatch.setattr(oracle, "DENSE_PAIRS", 0)
    assert relative_error(oracle.draw(probe, Rules()).image, whole) < 1e-13
    for name, gradient in oracle.gradients(probe, probes.cotangent(probe), Rules()).items():
        assert relative_error(gradient, gradients[name]) < 1e-12, name


@pytest.mark.parametrize("flaw", [f.name for f in fields(Flaws)])
def test_a_flaw_changes_gradients_well_above_the_tolerance_and_not_the_image(flaw):
    probe = probes.crowd("crowd", 1)
    flaws = replace(Flaws(), **{flaw: 0.5})
    assert torch.equal(oracle.draw(probe, Rules(), flaws).image, oracle.draw(probe, Rules()).image)
    right, wrong = (oracle.gradients(probe, probes.cotangent(probe), Rules(), f) for f in (Flaws(), flaws))
    assert max(relative_error(wrong[name], right[name]) for name in right) > 1e-2
