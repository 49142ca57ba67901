"""The adapters of packages that need a GPU call them as documented: stand-ins with the same interface draw with the plain one.

What the stand-ins cannot show, the packages' own kernels, is for whoever has them: `splatscope audit gsplat`.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from app.inspection.audit import plain, run


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_gsplat_is_called_as_its_documentation_says(monkeypatch):
    def rasterization(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, colors: Tensor, viewmats: Tensor,
                      Ks: Tensor, width: int, height: int, near_plane: float = 0.01, sh_degree: int | None = None,
                      packed: bool = True, backgrounds: Tensor | None = None):
        assert viewmats.shape == (1, 4, 4) and Ks.shape == (1, 3, 3) and backgrounds.shape == (1, 3) and not packed
        assert colors.shape[1] == (sh_degree + 1) ** 2
        image = plain.render(means, quats, scales, opacities, colors, viewmats[0], Ks[0], width, height, backgrounds[0])
        return image[None], image[None, ..., :1], {}

    stand_in(monkeypatch, "gsplat", rasterization=rasterization)
    report = run.audit("gsplat", dtype="float32")
    assert report.faults == [] and report.gradient_mode == "exact" and report.modes["quats_normalized"]


class Settings(NamedTuple):
    """GaussianRasterizationSettings of the first release."""

    image_height: int
    image_width: int
    tanfovx: float
    tanfovy: float
    bg: Tensor
    scale_modifier: float
    viewmatrix: Tensor
    projmatrix: Tensor
    sh_degree: int
    campos: Tensor
    prefiltered: bool
    debug: bool


class Rasterizer(torch.nn.Module):
    """Reads the camera out of its matrices as graphdeco's kernels do, then draws with the plain rasterizer."""

    def __init__(self, raster_settings: Settings) -> None:
        super().__init__()
        self.s = raster_settings

    def forward(self, means3D: Tensor, means2D: Tensor, opacities: Tensor, shs: Tensor, scales: Tensor, rotations: Tensor):
        s, width, height = self.s, self.s.image_width, self.s.image_height
        assert opacities.shape[1:] == (1,) and means2D.shape == means3D.shape and means2D.requires_grad
        viewmat = s.viewmatrix.T
        clip = s.projmatrix.T @ torch.linalg.inv(viewmat)
        fx, fy = width / (2 * s.tanfovx), height / (2 * s.tanfovy)
        assert clip[0, 0] == pytest.approx(2 * fx / width, rel=1e-4) and clip[1, 1] == pytest.approx(2 * fy / height, rel=1e-4)
        assert clip[3].tolist() == pytest.approx([0, 0, 1, 0], abs=1e-5)
        K = torch.tensor([[fx, 0, (clip[0, 2] + 1) * width / 2], [0, fy, (clip[1, 2] + 1) * height / 2], [0, 0, 1]])
        torch.testing.assert_close(s.campos, torch.linalg.inv(viewmat)[:3, 3])
        image = plain.render(means3D, rotations, scales, opacities[:, 0], shs, viewmat, K, width, height, s.bg)
        return image.permute(2, 0, 1), torch.zeros(len(means3D))


def test_graphdecos_rasterizer_gets_the_camera_in_its_matrices(monkeypatch):
    stand_in(monkeypatch, "diff_gaussian_rasterization", GaussianRasterizationSettings=Settings, GaussianRasterizer=Rasterizer)
    report = run.audit("diff_gaussian_rasterization", dtype="float32")
    assert report.faults == [] and report.modes["background_gradient"] is False
