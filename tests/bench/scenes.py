"""The benchmark's inputs: random Gaussians of 0.25 to 4 px in a box in front of the camera, SH degree 3, black background.

Everything is drawn from one numpy Generator in a fixed order, so that other programs can be given the same numbers
(`python -m tests.bench --write FOLDER` saves them as .npz).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from render.types import Camera, GaussianParams, Gaussians

SIZES = {  # Gaussians, width, height, seed
    "T": (500, 64, 48, 1000),
    "A": (10_000, 256, 256, 1001),
    "B": (50_000, 512, 512, 1002),
    "C": (200_000, 1280, 720, 1003),
}
_SIGMA_PX, _NEAR, _FAR = (0.25, 4.0), 5.0, 8.0
_SH_C0 = 0.28209479177387814


@dataclass
class Input:
    name: str
    arrays: dict[str, np.ndarray]  # means quats scales opacities sh colors viewmat K width height grad_out seed

    @property
    def camera(self) -> Camera:
        a = self.arrays
        return Camera(a["viewmat"].astype(np.float64), a["K"].astype(np.float64), int(a["width"]), int(a["height"]))

    @property
    def v_colors(self) -> Tensor:
        """[H,W,3] dL/dimage: the loss is sum(image * v_colors)."""
        return torch.from_numpy(self.arrays["grad_out"])

    def gaussians(self) -> Gaussians:
        """Activated leaves that require gradients."""
        return Gaussians(**{k: torch.from_numpy(self.arrays[k]).clone().requires_grad_()
                            for k in ("means", "quats", "scales", "opacities", "sh")})

    def params(self) -> GaussianParams:
        """Raw leaves that activate to the same Gaussians."""
        a = {k: torch.from_numpy(v) for k, v in self.arrays.items() if v.ndim}
        raw = GaussianParams(a["means"].clone(), a["quats"].clone(), a["scales"].log(), torch.logit(a["opacities"]),
                             a["sh"][:, :1].clone(), a["sh"][:, 1:].clone(), torch.arange(len(a["means"])))
        return raw.requires_grad_()

    def target(self) -> Tensor:
        """[H,W,3] some picture in [0,1] for the loss of a whole training step."""
        return torch.sigmoid(self.v_colors)


def _rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    x, y, z = axis / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def make(name: str) -> Input:
    count, width, height, seed = SIZES[name]
    rng = np.random.default_rng(seed)
    focal = 0.9 * max(width, height)
    half = np.array([width, height]) * _FAR / (2 * focal)  # the box covers the image at the far plane
    in_camera = np.stack([rng.uniform(-half[0], half[0], count), rng.uniform(-half[1], half[1], count),
                          rng.uniform(_NEAR, _FAR, count)], axis=-1)
    viewmat = np.eye(4)
    viewmat[:3, :3] = _rotation(np.array([0.3, -0.8, 0.5]), 0.7)
    viewmat[:3, 3] = [0.4, -0.2, 1.1]
    world_per_px = 0.5 * (_NEAR + _FAR) / focal
    scales = np.exp(rng.uniform(*np.log(_SIGMA_PX), (count, 3))) * world_per_px
    quats = rng.standard_normal((count, 4))
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    opacities = 1 / (1 + np.exp(-rng.standard_normal(count)))
    sh = rng.standard_normal((count, 16, 3)) * 0.1
    colors = rng.uniform(0, 1, (count, 3))
    sh[:, 0] = (colors - 0.5) / _SH_C0
    grad_out = np.random.default_rng(seed + 77).standard_normal((height, width, 3))
    K = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    arrays = dict(means=(in_camera - viewmat[:3, 3]) @ viewmat[:3, :3], quats=quats, scales=scales, opacities=opacities, sh=sh,
                  colors=colors, viewmat=viewmat, K=K, grad_out=grad_out)
    arrays = {k: np.ascontiguousarray(v, np.float32) for k, v in arrays.items()}
    return Input(name, arrays | dict(width=np.int32(width), height=np.int32(height), seed=np.int32(seed)))
