"""From raw parameters to what the rasterizer reads of one Gaussian, every variable a node, in float64.

The mathematics is that of render/reference/project.py, with the covariances in sight; tests hold the two together. Symmetric
matrices are triangles, (xx, xy, yy) and (xx, xy, xz, yy, yz, zz): as with conics, dL/d an off-diagonal entry stands for both.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from render.config import RasterConfig
from render.reference.activate import normalize_quats
from render.reference.project import quats_to_rotations, ratio_limits
from render.reference.sh import sh_to_colors
from render.types import PARAM_GROUPS, Camera

RASTERIZED = ("color", "opacity_eff", "conic", "mean2D")
"""Nodes whose cotangents the rasterizer's backward gives."""
PACKED = torch.tensor([[0, 1, 2], [1, 3, 4], [2, 4, 5]])


def forward(raw: Mapping[str, Tensor], camera: Camera, config: RasterConfig, sh_degree: int) -> dict[str, Tensor]:
    """Nodes by name, without the leading 1; raw groups [1,...] float64 of one Gaussian in front of the camera."""
    nodes = {name: raw[name].detach().double()[0].requires_grad_() for name in PARAM_GROUPS}
    nodes["scale"] = torch.exp(nodes["log_scales"])
    nodes["quat"] = normalize_quats(nodes["quats"][None])[0]
    nodes["opacity"] = torch.sigmoid(nodes["logit_opacities"])
    nodes["mean_projected"], nodes["mean_seen"] = nodes["means"].clone(), nodes["means"].clone()   # each with its own part
    half = quats_to_rotations(nodes["quat"][None])[0] * nodes["scale"]                             # R S
    sigma = half @ half.T
    nodes["cov3D"] = torch.stack([sigma[0, 0], sigma[0, 1], sigma[0, 2], sigma[1, 1], sigma[1, 2], sigma[2, 2]])
    _project(nodes, camera, config)
    sh = torch.cat([nodes["sh0"], nodes["shN"]])[None]
    nodes["color"] = sh_to_colors(nodes["mean_seen"][None], sh, camera, sh_degree)[0]
    return nodes


def _project(nodes: dict[str, Tensor], camera: Camera, config: RasterConfig) -> None:
    """cov3D and mean_projected onto the image plane: mean_camera, mean2D, cov2D, conic, opacity_eff."""
    view = torch.as_tensor(camera.viewmat, dtype=torch.float64)
    fx, fy, cx, cy = (float(camera.K[i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    nodes["mean_camera"] = view[:3, :3] @ nodes["mean_projected"] + view[:3, 3]
    x, y, z = nodes["mean_camera"].unbind()
    x_limits, y_limits = ratio_limits(camera, config)
    clamped_x, clamped_y = torch.clamp(x / z, *x_limits) * z, torch.clamp(y / z, *y_limits) * z
    zero = torch.zeros_like(z)
    jacobian = torch.stack([fx / z, zero, -fx * clamped_x / z**2, zero, fy / z, -fy * clamped_y / z**2]).reshape(2, 3)
    onto = jacobian @ view[:3, :3]
    plain = onto @ nodes["cov3D"][PACKED] @ onto.T
    nodes["cov2D"] = torch.stack([plain[0, 0] + config.eps2d, plain[0, 1], plain[1, 1] + config.eps2d])
    xx, xy, yy = nodes["cov2D"].unbind()
    determinant = xx * yy - xy * xy
    nodes["conic"] = torch.stack([yy, -xy, xx]) / determinant
    nodes["mean2D"] = torch.stack([fx * x / z + cx, fy * y / z + cy])
    compensation = torch.ones_like(z)
    if config.antialiased:
        ratio = ((xx - config.eps2d) * (yy - config.eps2d) - xy * xy) / determinant
        compensation = torch.sqrt(ratio) if float(ratio.detach()) > 0 else 0.0 * z
    nodes["opacity_eff"] = nodes["opacity"] * compensation


def backward(nodes: Mapping[str, Tensor], tap: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """dL/d every node from dL/d of RASTERIZED (`tap`), by autograd. The nodes' graph is spent."""
    # One scalar with these gradients: gradients given to autograd apart would make torch load its symbolic shapes, 0.4 s.
    pull = torch.stack([(nodes[name] * tap[name].double().reshape(nodes[name].shape)).sum() for name in RASTERIZED]).sum()
    found = torch.autograd.grad(pull, list(nodes.values()), allow_unused=True)
    return {name: torch.zeros_like(node) if v is None else v for (name, node), v in zip(nodes.items(), found, strict=True)}
