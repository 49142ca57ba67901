"""The data that flows through the renderer. Shapes in brackets; cotangents are named v_x.

Importing this module does not import torch: annotations only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from render.config import TILE_SIZE

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PARAM_GROUPS = ("means", "quats", "log_scales", "logit_opacities", "sh0", "shN")
"""Names of the trained tensors of GaussianParams, in the order of kernels and files."""


@dataclass
class GaussianParams:
    """Trainable, raw parameters of N Gaussians; activate() turns them into Gaussians."""

    means: Tensor            # [N,3] world
    quats: Tensor            # [N,4] wxyz, any length > 0
    log_scales: Tensor       # [N,3] log of world units
    logit_opacities: Tensor  # [N]
    sh0: Tensor              # [N,1,3]
    shN: Tensor              # [N,K-1,3]
    uids: Tensor             # [N] int64, never trained: identity that survives densification

    def __len__(self) -> int:
        return self.means.shape[0]

    def trained(self) -> dict[str, Tensor]:
        """The trained tensors by group name."""
        return {name: getattr(self, name) for name in PARAM_GROUPS}

    def to(self, device: torch.device) -> GaussianParams:
        """On another device; the same tensors where they are there already."""
        return GaussianParams(**{name: tensor.to(device) for name, tensor in self.trained().items()}, uids=self.uids.to(device))

    def requires_grad_(self, flag: bool = True) -> GaussianParams:
        for tensor in self.trained().values():
            tensor.requires_grad_(flag)
        return self


@dataclass
class Gaussians:
    """Activated Gaussians."""

    means: Tensor      # [N,3] world
    quats: Tensor      # [N,4] unit, wxyz
    scales: Tensor     # [N,3] > 0, world units
    opacities: Tensor  # [N] in (0,1)
    sh: Tensor         # [N,K,3], K = (degree+1)^2; or [N,1,3] with the rest in shN, which spares a copy
    shN: Tensor | None = None  # [N,K-1,3]

    def __len__(self) -> int:
        return self.means.shape[0]


@dataclass(frozen=True)
class Camera:
    """Pinhole camera, OpenCV axes (+x right, +y down, +z forward); pixel centres at +0.5."""

    viewmat: np.ndarray  # [4,4] float64, world -> camera
    K: np.ndarray        # [3,3] float64 px; fx != fy and an off-centre principal point are honoured
    width: int
    height: int
    near: float = 0.01
    far: float = 1e10
    whole: tuple[float, float, float, float] | None = None  # left, top, width, height [px] of the picture that this is a
    # part of: the projection's clamp is that of the whole picture, so that a part has the same pixels; None = is whole

    @property
    def span(self) -> tuple[float, float, float, float]:
        """(left, top, width, height) px of the whole picture."""
        return self.whole or (0.0, 0.0, float(self.width), float(self.height))

    @property
    def center(self) -> np.ndarray:
        """[3] camera centre in the world."""
        return -self.viewmat[:3, :3].T @ self.viewmat[:3, 3]

    @property
    def tiles(self) -> tuple[int, int]:
        """(tiles across, tiles down)."""
        return -(-self.width // TILE_SIZE), -(-self.height // TILE_SIZE)

    def resized(self, width: int, height: int) -> Camera:
        """The same view at another resolution; K scales per axis (pixel centres at +0.5)."""
        K = self.K.astype(np.float64).copy()
        x, y = width / self.width, height / self.height
        K[0] *= x
        K[1] *= y
        whole = None if self.whole is None else (self.whole[0] * x, self.whole[1] * y, self.whole[2] * x, self.whole[3] * y)
        return Camera(self.viewmat, K, int(width), int(height), self.near, self.far, whole)

    def cropped(self, left: int, top: int, width: int, height: int) -> Camera:
        """The camera of the pixels [left, left+width) x [top, top+height), which come out as in the whole picture."""
        K = self.K.copy()
        K[0, 2] -= left
        K[1, 2] -= top
        x, y, whole_width, whole_height = self.span
        return Camera(self.viewmat, K, width, height, self.near, self.far, (x - left, y - top, whole_width, whole_height))


@dataclass
class Projected:
    """Gaussians on the image plane. A culled Gaussian has extents 0 and finite values everywhere."""

    means2d: Tensor        # [N,2] px
    conics: Tensor         # [N,3] px^-2: (a,b,c) of the inverse 2D covariance [[a,b],[b,c]]
    depths: Tensor         # [N] camera z
    extents: Tensor        # [N,2] px half-size of the box that holds alpha >= cutoff; 0 = culled
    compensations: Tensor  # [N] opacity factor of the antialiased mode, 1 otherwise


@dataclass
class TileBins:
    """For each 16x16 tile (row-major) the Gaussians that may touch it, front to back."""

    tile_offsets: Tensor  # [T+1] int64
    flatten_ids: Tensor   # [M] int32 Gaussian indices
    emit_ids: Tensor | None = None      # [M] int32: where the entry stands in Gaussian-major order (fixed-order gather)
    emit_offsets: Tensor | None = None  # [N+1] int64: range of each Gaussian in Gaussian-major order
    rows: Tensor | None = None          # [M,2] uint8: rows of the tile that the Gaussian reaches, half-open; None = all


@dataclass
class RenderOutput:
    colors: Tensor             # [H,W,3], background included
    transmittances: Tensor     # [H,W] T_N
    depths: Tensor | None      # [H,W] sum of w*z, not normalised; None unless asked for
    last_ids: Tensor           # [H,W] int32: index into flatten_ids of the last contributor, -1 = none
    projected: Projected
    bins: TileBins
    splat_colors: Tensor       # [N,3] colours after SH
    splat_opacities: Tensor    # [N] opacities times compensations


@dataclass
class GradientTap:
    """What a backward pass leaves behind for those who look: filled during backward(), overwritten each time."""

    absolute: bool = False                # also gather sum over pixels of |dL/dmean2d| (AbsGS)
    v_means2d: Tensor | None = None       # [N,2] dL/dmeans2d, per px
    v_abs_means2d: Tensor | None = None   # [N,2] sum over pixels of |per-pixel dL/dmeans2d|
    v_conics: Tensor | None = None        # [N,3] dL/d(a,b,c), b standing for both off-diagonal entries
    v_colors: Tensor | None = None        # [N,3]
    v_opacities: Tensor | None = None     # [N]
