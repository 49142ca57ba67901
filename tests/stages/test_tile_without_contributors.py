"""A tile may list a Gaussian that then reaches none of its pixels: lists are conservative by a rounding margin."""

from __future__ import annotations

import torch

from render import pipeline
from render.config import RasterConfig
from render.stages.activate import activate
from render.types import GradientTap
from tests.scenes import single


def gradient_of(case, backend):
    tap = GradientTap()
    output = pipeline.render(activate(case.params, backend), case.camera, RasterConfig(), background=torch.zeros(3),
                             sh_degree=0, backend=backend, tap=tap)
    output.colors.sum().backward()
    lists = output.bins.tile_offsets.diff().reshape(*reversed(case.camera.tiles))
    return tap, lists, output.last_ids


def test_such_a_tile_leaves_the_gradients_of_other_tiles_alone():
    far, near = 0.0, 16.0   # from x = far nothing reaches the first pixel of the second tile, from x = near it does
    for _ in range(40):
        case = single(pixel=((far + near) / 2, 8.5), sigma=3.0, opacity=0.8, dtype=torch.float32)
        case.params.requires_grad_()
        tap, lists, last_ids = gradient_of(case, "cpu")
        reached = bool(last_ids[:16, 16:32].max() >= 0)
        if lists[0, 1] and not reached:
            break
        far, near = (far, (far + near) / 2) if reached else ((far + near) / 2, near)
    else:
        raise AssertionError("no place made such a tile: the test shows nothing")
    expected, *_ = gradient_of(case, "reference")
    assert expected.v_colors.abs().max() > 1
    torch.testing.assert_close(tap.v_colors, expected.v_colors, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(tap.v_means2d, expected.v_means2d, rtol=1e-3, atol=1e-3)
