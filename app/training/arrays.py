"""Gaussians between tensors, as training has them, and arrays, as files hold them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch

from app.data.gaussians import GaussianArrays
from app.data.scene import SceneError
from render.types import GaussianParams


def host(tensor: torch.Tensor) -> np.ndarray:
    """A tensor of any device as an array; on the CPU they share memory."""
    return tensor.detach().cpu().numpy()


def to_uint8(image: torch.Tensor) -> np.ndarray:
    """[H,W,3] uint8 of colours in [0,1]."""
    return host((image * 255.0 + 0.5).to(torch.uint8))


def to_params(arrays: GaussianArrays, source: str) -> GaussianParams:
    """Tensors of what the file `source` held; uids count the rows. Raises SceneError when it held nothing."""
    if len(arrays) == 0:
        raise SceneError(f"{source} holds no Gaussian; choose another file")
    tensors = {f.name: torch.from_numpy(np.ascontiguousarray(getattr(arrays, f.name), np.float32))
               for f in fields(arrays)}
    return GaussianParams(**tensors, uids=torch.arange(len(arrays), dtype=torch.int64))


def to_arrays(params: GaussianParams) -> GaussianArrays:
    """A copy of the raw parameters that training does not change any more."""
    return GaussianArrays(**{name: np.array(host(tensor), np.float32)
                             for name, tensor in params.trained().items()})
