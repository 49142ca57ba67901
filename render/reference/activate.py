"""Raw, unconstrained parameters become physical Gaussians (Kerbl et al. 2023, section 5.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from render.shapes import check
from render.types import GaussianParams, Gaussians


def normalize_quats(quats: Tensor) -> Tensor:
    """[N,4] wxyz of any length -> unit length.

    The gradient is the projection (I - q q^T) v / |quats|, q the unit quaternion: orthogonal to q, because the length
    of the raw quaternion has no effect. A quaternion of length 0 names no rotation; loaders refuse it, and here it
    stands for the identity with gradient 0, so that nothing turns non-finite.
    """
    lengths = torch.linalg.vector_norm(quats.detach(), dim=-1, keepdim=True)
    identity = quats.new_tensor([1.0, 0.0, 0.0, 0.0])
    named = torch.where(lengths == 0, identity, quats)
    return named / torch.linalg.vector_norm(named, dim=-1, keepdim=True)


def activate(params: GaussianParams) -> Gaussians:
    """exp of log scales, sigmoid of logit opacities, unit quaternions, both SH parts joined to [N,K,3].

    Raises ValueError naming the tensor whose shape does not fit.
    """
    check(means=(params.means, "N 3"), quats=(params.quats, "N 4"), log_scales=(params.log_scales, "N 3"),
          logit_opacities=(params.logit_opacities, "N"), sh0=(params.sh0, "N 1 3"), shN=(params.shN, "N _ 3"))
    return Gaussians(
        means=params.means,
        quats=normalize_quats(params.quats),
        scales=torch.exp(params.log_scales),
        opacities=torch.sigmoid(params.logit_opacities),
        sh=torch.cat([params.sh0, params.shN], dim=1),
    )
