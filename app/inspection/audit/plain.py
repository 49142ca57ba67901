"""A small differentiable rasterizer in plain PyTorch: every Gaussian at every pixel, gradients from autograd.

For small pictures and few Gaussians: it holds [N, H*W] tensors. Written to be read, and to be the second opinion of an audit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ALPHA_MAX = 0.99
CUTOFF = 1.0 / 255.0
TRANSMITTANCE_MIN = 1e-4
LOW_PASS = 0.3
NEAR = 0.01
CLAMP_FOV = 0.3
"""Share of tan(fov/2) beyond the picture's edge where the projection's slope is held."""


def rotation_matrices(quats: Tensor) -> Tensor:
    """[N,4] wxyz, any length > 0 -> [N,3,3]."""
    w, x, y, z = (quats / quats.norm(dim=-1, keepdim=True)).unbind(-1)
    return torch.stack([
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=-1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=-1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=-1),
    ], dim=-2)


def harmonics(directions: Tensor, count: int) -> Tensor:
    """[N,count] real spherical harmonics of unit directions [N,3], in the order and with the signs of 3DGS files."""
    x, y, z = directions.unbind(-1)
    pi = math.pi
    values = [torch.full_like(x, math.sqrt(1 / (4 * pi)))]
    first = math.sqrt(3 / (4 * pi))
    values += [-first * y, first * z, -first * x]
    second = math.sqrt(15 / (4 * pi))
    values += [second * x * y, -second * y * z, second / math.sqrt(12) * (3 * z * z - 1), -second * x * z,
               second / 2 * (x * x - y * y)]
    a, b, c = math.sqrt(35 / (32 * pi)), math.sqrt(105 / (4 * pi)), math.sqrt(21 / (32 * pi))
    values += [-a * y * (3 * x * x - y * y), b * x * y * z, -c * y * (5 * z * z - 1),
               math.sqrt(7 / (16 * pi)) * z * (5 * z * z - 3), -c * x * (5 * z * z - 1), b / 2 * z * (x * x - y * y),
               -a * x * (x * x - 3 * y * y)]
    return torch.stack(values[:count], dim=-1)


def project(means: Tensor, quats: Tensor, scales: Tensor, viewmat: Tensor, K: Tensor, width: int, height: int
            ) -> tuple[Tensor, Tensor, Tensor]:
    """(centres [N,2] px, conics [N,2,2] px^-2, depths [N])."""
    rotation, translation = viewmat[:3, :3], viewmat[:3, 3]
    points = means @ rotation.T + translation
    x, y, z = points.unbind(-1)
    fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]
    centers = torch.stack([fx * x / z + cx, fy * y / z + cy], dim=-1)

    margin_x, margin_y = CLAMP_FOV * width / (2 * fx), CLAMP_FOV * height / (2 * fy)
    slope_x = torch.minimum(torch.maximum(x / z, -cx / fx - margin_x), (width - cx) / fx + margin_x)
    slope_y = torch.minimum(torch.maximum(y / z, -cy / fy - margin_y), (height - cy) / fy + margin_y)
    zero = torch.zeros_like(z)
    jacobian = torch.stack([torch.stack([fx / z, zero, -fx * slope_x / z], dim=-1),
                            torch.stack([zero, fy / z, -fy * slope_y / z], dim=-1)], dim=-2)
    axes = rotation_matrices(quats) * scales[:, None, :]
    flat = jacobian @ rotation @ axes
    covariances = flat @ flat.transpose(-1, -2) + LOW_PASS * torch.eye(2, dtype=means.dtype, device=means.device)
    return centers, torch.linalg.inv(covariances), z


def render(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, sh: Tensor, viewmat: Tensor, K: Tensor,
           width: int, height: int, background: Tensor) -> Tensor:
    """[H,W,3] from activated Gaussians: means [N,3], quats [N,4] wxyz, scales [N,3], opacities [N], sh [N,K,3].

    viewmat [4,4] is world to camera with OpenCV axes, K [3,3] px, background [3].
    """
    depths = (means.detach() @ viewmat[2, :3]) + viewmat[2, 3]
    order = torch.argsort(depths, stable=True)
    order = order[depths[order] > NEAR]
    means, quats, scales, opacities, sh = means[order], quats[order], scales[order], opacities[order], sh[order]
    centers, conics, depths = project(means, quats, scales, viewmat, K, width, height)

    camera_center = -viewmat[:3, :3].T @ viewmat[:3, 3]
    offsets = means - camera_center
    directions = offsets / offsets.norm(dim=-1, keepdim=True)
    colors = torch.relu(0.5 + (harmonics(directions, sh.shape[1])[:, :, None] * sh).sum(dim=1))

    rows = torch.arange(height, dtype=means.dtype, device=means.device) + 0.5
    columns = torch.arange(width, dtype=means.dtype, device=means.device) + 0.5
    pixels = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1).reshape(-1, 2)
    dx, dy = (pixels[None] - centers[:, None]).unbind(-1)
    a, b, c = conics[:, 0, 0, None], conics[:, 0, 1, None], conics[:, 1, 1, None]
    gauss = torch.exp(-0.5 * (a * dx * dx + 2 * b * dx * dy + c * dy * dy))
    raw = opacities[:, None] * gauss
    alphas = torch.clamp(raw, max=ALPHA_MAX)
    alphas = torch.where(alphas >= CUTOFF, alphas, 0.0)
    with torch.no_grad():   # what would bring the transmittance below the limit is not blended, nor what lies behind it
        going = torch.cumprod(1 - alphas, dim=0) >= TRANSMITTANCE_MIN
    alphas = torch.where(going, alphas, 0.0)
    left = torch.cumprod(1 - alphas, dim=0)
    before = torch.cat([torch.ones_like(left[:1]), left[:-1]])
    rest = left[-1] if len(left) else torch.ones_like(pixels[:, 0])
    image = torch.einsum("np,nc->pc", before * alphas, colors) + rest[:, None] * background
    return image.reshape(height, width, 3)
