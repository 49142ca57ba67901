"""Pictures that other renderers made of the same Gaussians."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from plyfile import PlyData

from render.config import RasterConfig
from render.pipeline import render
from render.stages.activate import activate
from render.types import Camera, GaussianParams
from tests.realdata import read_safetensors, real_data

BLACK = torch.zeros(3, dtype=torch.float64)


def tiny_case() -> tuple[GaussianParams, Camera, torch.Tensor]:
    """(4 Gaussians with SH 3, camera, gsplat's RGBA [82,123,4]) of tiny_case.safetensors."""
    tensors = {k: torch.tensor(v, dtype=torch.float64)
               for k, v in read_safetensors(real_data("refs", "tiny_case.safetensors")).items()}
    params = GaussianParams(tensors["means"], tensors["quats"], tensors["scales"], tensors["opacities"],
                            tensors["coeffs"][:, :1], tensors["coeffs"][:, 1:], torch.arange(4))
    height, width, _ = tensors["out_img"].shape
    viewmat = np.eye(4)
    viewmat[:3, 3] = [-0.123, -0.456, 8.0]
    K = np.array([[0.5 * width, 0, width / 2], [0, 0.5 * width, height / 2], [0, 0, 1]])
    return params, Camera(viewmat, K, width, height, near=0.01), tensors["out_img"]


def splat_transform_case() -> tuple[GaussianParams, Camera, torch.Tensor]:
    """(400 Gaussians, camera, golden RGB [240,320,3] in 8 bits) of splat_transform_tiny."""
    meta = json.loads(real_data("refs", "splat_transform_tiny.json").read_text())
    vertex = PlyData.read(str(real_data("refs", "splat_transform_tiny.ply")))["vertex"]

    def columns(*names: str) -> torch.Tensor:
        return torch.tensor(np.stack([vertex[n] for n in names], axis=-1).astype(np.float64))

    count = len(vertex["x"])
    params = GaussianParams(
        columns("x", "y", "z"), columns("rot_0", "rot_1", "rot_2", "rot_3"), columns("scale_0", "scale_1", "scale_2"),
        columns("opacity")[:, 0], columns("f_dc_0", "f_dc_1", "f_dc_2")[:, None],
        torch.zeros(count, 0, 3, dtype=torch.float64), torch.arange(count))
    K = np.array([[meta["fx"], 0, meta["cx"]], [0, meta["fy"], meta["cy"]], [0, 0, 1]])
    camera = Camera(np.array(meta["viewmat_opencv"]), K, meta["width"], meta["height"], near=meta["near"])
    golden = np.asarray(Image.open(real_data("refs", "splat_transform_tiny.golden.webp")).convert("RGB"))
    return params, camera, torch.tensor(golden / 255)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_tiny_case_equals_gsplat(backend):
    params, camera, expected = tiny_case()
    output = render(activate(params, backend), camera, RasterConfig(alpha_max=0.999), background=BLACK, sh_degree=3,
                    backend=backend)
    assert expected[..., :3].max() > 0.1
    assert (output.colors - expected[..., :3]).abs().max() < 2e-6
    assert (1 - output.transmittances - expected[..., 3]).abs().max() < 2e-6


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_splat_transform_golden(backend):
    params, camera, golden = splat_transform_case()
    output = render(activate(params, backend), camera, RasterConfig(), background=BLACK, sh_degree=0, backend=backend)
    error = output.colors.clamp(0, 1) - golden
    psnr = -10 * torch.log10(error.square().mean())
    assert golden.max() > 0.1
    assert psnr >= 45, f"{psnr:.2f} dB"
    assert error.abs().max() < 0.03
