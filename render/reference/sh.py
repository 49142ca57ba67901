"""View-dependent colour from real spherical harmonics, coefficients in the order of 3DGS files (y, z, x in band 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from render.shapes import check
from render.types import Camera

# Normalisation of the real spherical harmonics; signs follow 3DGS (Condon-Shortley phase kept), so that files agree.
C0 = 0.5 * math.sqrt(1 / math.pi)
C1 = 0.5 * math.sqrt(3 / math.pi)
C2 = (0.5 * math.sqrt(15 / math.pi), 0.25 * math.sqrt(5 / math.pi), 0.25 * math.sqrt(15 / math.pi))
C3 = (0.25 * math.sqrt(35 / (2 * math.pi)), 0.5 * math.sqrt(105 / math.pi), 0.25 * math.sqrt(21 / (2 * math.pi)),
      0.25 * math.sqrt(7 / math.pi), 0.25 * math.sqrt(105 / math.pi))


def sh_basis(directions: Tensor, degree: int) -> Tensor:
    """[N,3] unit directions -> [N,(degree+1)^2] basis values."""
    x, y, z = directions.unbind(-1)
    basis = [torch.full_like(x, C0)]
    if degree >= 1:
        basis += [-C1 * y, C1 * z, -C1 * x]
    if degree >= 2:
        basis += [C2[0] * x * y, -C2[0] * y * z, C2[1] * (2 * z * z - x * x - y * y), -C2[0] * x * z,
                  C2[2] * (x * x - y * y)]
    if degree >= 3:
        basis += [-C3[0] * y * (3 * x * x - y * y), C3[1] * x * y * z, -C3[2] * y * (4 * z * z - x * x - y * y),
                  C3[3] * z * (2 * z * z - 3 * x * x - 3 * y * y), -C3[2] * x * (4 * z * z - x * x - y * y),
                  C3[4] * z * (x * x - y * y), -C3[0] * x * (x * x - 3 * y * y)]
    return torch.stack(basis, dim=-1)


def view_directions(means: Tensor, camera: Camera) -> Tensor:
    """[N,3] unit vectors from the camera centre to the means; (0,0,1) without gradient where there is none."""
    offsets = means - means.new_tensor(camera.center)
    lengths = torch.linalg.vector_norm(offsets.detach(), dim=-1, keepdim=True)
    usable = (lengths > 0) & torch.isfinite(lengths)
    offsets = torch.where(usable, offsets, offsets.new_tensor([0.0, 0.0, 1.0]))
    return offsets / torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)


def sh_to_colors(means: Tensor, sh: Tensor, camera: Camera, degree: int) -> Tensor:
    """Colours [N,3] = max(0, 0.5 + sum_k sh_k Y_k(direction)) of bands 0..degree.

    means [N,3] world: the gradient reaches them through the viewing direction. sh [N,K,3], K >= (degree+1)^2.
    At exactly 0 the gradient is 0. Raises ValueError when sh has too few coefficients or degree is not 0..3.
    """
    check(means=(means, "N 3"), sh=(sh, "N _ 3"))
    count = (degree + 1) ** 2
    if not 0 <= degree <= 3 or sh.shape[1] < count:
        raise ValueError(f"sh: degree {degree} needs 0 <= degree <= 3 and {count} coefficients, got {sh.shape[1]}")
    basis = sh_basis(view_directions(means, camera), degree)
    return torch.relu(0.5 + torch.einsum("nk,nkc->nc", basis, sh[:, :count]))
