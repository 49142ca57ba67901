"""EWA projection of 3D Gaussians to ellipses on the image plane (Zwicker et al. 2001; Kerbl et al. 2023, equation 5).

    Sigma   = R S S^T R^T                            world covariance, R from the unit quaternion, S = diag(scales)
    Sigma_c = W Sigma W^T                            in camera space, W the rotation of viewmat
    Sigma_2 = J Sigma_c J^T + eps2d I                on the image, px^2
    J       = [[fx/z, 0, -fx x'/z^2],                derivative of (fx x/z + cx, fy y/z + cy), with x'/z and y'/z
               [0, fy/z, -fy y'/z^2]]                clamped: far outside the image the linearisation would blow up
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from render.config import FOOTPRINT_MARGIN, RasterConfig
from render.shapes import check
from render.types import Camera, Projected


def quats_to_rotations(quats: Tensor) -> Tensor:
    """[N,4] unit wxyz -> [N,3,3]. Not normalised here: the diagonal is 1 - 2(..), and so is its gradient."""
    w, x, y, z = quats.unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).reshape(-1, 3, 3)


def ratio_limits(camera: Camera, config: RasterConfig) -> tuple[tuple[float, float], tuple[float, float]]:
    """((lowest, highest) x/z, (lowest, highest) y/z) that enter J.

    The image spans x/z in [-cx/fx, (W-cx)/fx] whatever the principal point; on each side a margin of
    (clamp_fov - 1) tan(fov/2) is added, tan(fov/2) = W/(2 fx).
    """
    limits = []
    left, top, width, height = camera.span
    for focal, center, start, size in ((camera.K[0, 0], camera.K[0, 2], left, width),
                                       (camera.K[1, 1], camera.K[1, 2], top, height)):
        margin = (config.clamp_fov - 1) * 0.5 * size / focal
        limits.append((float((start - center) / focal - margin), float((start + size - center) / focal + margin)))
    return limits[0], limits[1]


def footprint_level(opacities_eff: Tensor, config: RasterConfig) -> Tensor:
    """[N] squared Mahalanobis radius of opacity * exp(-q/2) >= cutoff, widened by FOOTPRINT_MARGIN; 0 = nowhere."""
    touches = opacities_eff >= config.cutoff  # NaN fails
    safe = torch.where(touches, opacities_eff, 1.0)
    return torch.where(touches, 2 * torch.log(safe / config.cutoff) + FOOTPRINT_MARGIN, 0.0)


@dataclass
class _Footprints:
    means2d: Tensor        # [N,2] px
    depths: Tensor         # [N]
    covariances: Tensor    # [N,3] px^2: xx, xy, yy, low-pass included
    determinants: Tensor   # [N] px^4
    conics: Tensor         # [N,3]
    compensations: Tensor  # [N]


def _footprints(means: Tensor, quats: Tensor, scales: Tensor, camera: Camera, config: RasterConfig) -> _Footprints:
    view = torch.as_tensor(camera.viewmat, dtype=means.dtype, device=means.device)
    fx, fy, cx, cy = (float(camera.K[i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    rotation = view[:3, :3]
    x, y, z = (means @ rotation.T + view[:3, 3]).unbind(-1)

    half = quats_to_rotations(quats) * scales[:, None, :]                    # R S
    half_c = rotation @ half                                                # W R S
    x_limits, y_limits = ratio_limits(camera, config)
    # Only the ratio is clamped: where it is, x has no influence on J but z keeps its own (x' = ratio * z).
    clamped_x = torch.clamp(x / z, *x_limits) * z
    clamped_y = torch.clamp(y / z, *y_limits) * z
    zero = torch.zeros_like(z)
    jacobian = torch.stack([fx / z, zero, -fx * clamped_x / z**2, zero, fy / z, -fy * clamped_y / z**2], dim=-1)
    half_2 = jacobian.reshape(-1, 2, 3) @ half_c                            # J W R S; times its transpose is Sigma_2
    plain = half_2 @ half_2.transpose(1, 2)

    plain_xx, xy, plain_yy = plain[:, 0, 0], plain[:, 0, 1], plain[:, 1, 1]
    xx, yy = plain_xx + config.eps2d, plain_yy + config.eps2d
    determinants = xx * yy - xy * xy
    conics = torch.stack([yy, -xy, xx], dim=-1) / determinants[:, None]
    if config.antialiased:
        ratio = (plain_xx * plain_yy - xy * xy) / determinants
        positive = ratio > 0  # the slope of sqrt at 0 is infinite, so 0 goes around it
        compensations = torch.where(positive, torch.sqrt(torch.where(positive, ratio, 1.0)), 0.0)
    else:
        compensations = torch.ones_like(z)
    means2d = torch.stack([fx * x / z + cx, fy * y / z + cy], dim=-1)
    return _Footprints(means2d, z, torch.stack([xx, xy, yy], dim=-1), determinants, conics, compensations)


def _extents(found: _Footprints, opacities: Tensor, camera: Camera, config: RasterConfig) -> Tensor:
    """[N,2] half-size of the box of alpha >= cutoff; 0 = culled. Every guard is phrased so that NaN fails it."""
    level = footprint_level(opacities * found.compensations, config)
    extents = torch.sqrt(level[:, None] * found.covariances[:, [0, 2]])
    size = extents.new_tensor([camera.width, camera.height])
    inside = ((found.means2d + extents > 0) & (found.means2d - extents < size)).all(-1)
    in_depth = (found.depths >= camera.near) & (found.depths <= camera.far)
    finite = (torch.isfinite(found.means2d).all(-1) & torch.isfinite(found.conics).all(-1)
              & torch.isfinite(found.determinants) & torch.isfinite(extents).all(-1))
    kept = inside & in_depth & finite & (found.determinants > 0) & (level > 0)
    return torch.where(kept[:, None], extents, 0.0)


def project(means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, camera: Camera,
            config: RasterConfig) -> Projected:
    """Project N Gaussians.

    means [N,3] world; quats [N,4] unit wxyz; scales [N,3] world; opacities [N]. The extents carry no gradient.

    Culled are Gaussians with z outside [near, far], with anything non-finite, with opacity * compensation below the
    cutoff, or whose box of alpha >= cutoff misses the image rectangle [0,W]x[0,H]. A culled row is 0 in every output
    and receives a gradient of exactly 0. Raises ValueError on shapes that do not fit.
    """
    check(means=(means, "N 3"), quats=(quats, "N 4"), scales=(scales, "N 3"), opacities=(opacities, "N"))
    with torch.no_grad():  # a dry run tells who is culled ...
        extents = _extents(_footprints(means, quats, scales, camera, config), opacities, camera, config)
        kept = extents[:, 0] > 0
    # ... and the recorded run computes those on a stand-in: where() alone would still send 0 * Inf = NaN backwards.
    rotation, translation = camera.viewmat[:3, :3], camera.viewmat[:3, 3]
    ahead = means.new_tensor(rotation.T @ ([0.0, 0.0, 1.0] - translation))  # on the optical axis, z = 1
    found = _footprints(torch.where(kept[:, None], means, ahead),
                        torch.where(kept[:, None], quats, quats.new_tensor([1.0, 0.0, 0.0, 0.0])),
                        torch.where(kept[:, None], scales, 1.0), camera, config)
    return Projected(
        means2d=torch.where(kept[:, None], found.means2d, 0.0),
        conics=torch.where(kept[:, None], found.conics, 0.0),
        depths=torch.where(kept, found.depths, 0.0),
        extents=extents,
        compensations=torch.where(kept, found.compensations, 0.0),
    )
