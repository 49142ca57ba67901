"""A scene made in memory: a handful of Gaussians photographed from a ring, so that training has a known answer."""

from __future__ import annotations

import math

import numpy as np
import torch

from app.data.scene import PointCloud, Scene, View
from render import pipeline
from render.config import RasterConfig
from render.stages.activate import activate
from render.types import Camera, GaussianParams

SIZE = 48


def look_at(eye: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    """[4,4] world -> camera, OpenCV axes, +y of the world up."""
    forward = (np.zeros(3) if target is None else target) - eye
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    viewmat = np.eye(4)
    viewmat[:3, :3] = np.stack([right, down, forward])
    viewmat[:3, 3] = -viewmat[:3, :3] @ eye
    return viewmat


def ring(count: int, width: int = SIZE, height: int = SIZE, radius: float = 4.0) -> list[Camera]:
    cameras = []
    for i in range(count):
        angle = 2 * math.pi * i / count
        eye = np.array([radius * math.cos(angle), 0.8 * math.sin(3 * angle), radius * math.sin(angle)])
        K = np.array([[1.1 * width, 0, width / 2], [0, 1.1 * width, height / 2], [0, 0, 1.0]])
        cameras.append(Camera(look_at(eye), K, width, height))
    return cameras


def make_params(count: int, seed: int = 0, *, sh_degree: int = 1, spread: float = 0.8, scale: float = 0.15,
                opacity: float = 0.8) -> GaussianParams:
    rng = np.random.default_rng(seed)

    def tensor(values):
        return torch.from_numpy(np.asarray(values, np.float32))

    return GaussianParams(
        means=tensor(rng.uniform(-spread, spread, (count, 3))), quats=tensor(rng.standard_normal((count, 4))),
        log_scales=tensor(np.log(scale) + 0.3 * rng.standard_normal((count, 3))),
        logit_opacities=tensor(np.full(count, math.log(opacity / (1 - opacity)))),
        sh0=tensor(rng.uniform(-1.5, 1.5, (count, 1, 3))),
        shN=torch.zeros(count, (sh_degree + 1) ** 2 - 1, 3), uids=torch.arange(count))


def make_scene(views: int = 6, gaussians: int = 40, *, size: int = SIZE, points: int | None = 60, rgba: bool = False,
               test_every: int = 0, backend: str = "cpu", seed: int = 0) -> Scene:
    """Photographs of `gaussians` random Gaussians; `points` noisy starting points, None for none."""
    truth = make_params(gaussians, seed)
    with torch.no_grad():
        activated = activate(truth, backend)
        pictures = []
        for camera in ring(views, size, size):
            output = pipeline.render(activated, camera, RasterConfig(), background=torch.zeros(3), sh_degree=0,
                                     backend=backend)
            image = output.colors.clamp(0, 1)
            if rgba:
                alpha = 1 - output.transmittances[..., None]
                image = torch.cat([torch.where(alpha > 0, image / alpha.clamp(min=1e-6), image).clamp(0, 1), alpha], -1)
            pictures.append((image * 255).round().to(torch.uint8).contiguous().numpy())
    made = [View(f"view{i}.png", camera, (lambda p=picture: p),
                 "test" if test_every and i % test_every == 0 else "train")
            for i, (camera, picture) in enumerate(zip(ring(views, size, size), pictures, strict=True))]
    cloud = None
    if points is not None:
        rng = np.random.default_rng(seed + 1)
        pick = rng.integers(0, gaussians, points)
        positions = truth.means.numpy()[pick] + 0.05 * rng.standard_normal((points, 3))
        colors = np.clip(0.5 + 0.282 * truth.sh0.numpy()[pick, 0], 0, 1) * 255
        cloud = PointCloud(positions.astype(np.float32), colors.astype(np.uint8))
    return Scene("tiny", "transforms", made, cloud, has_alpha=rgba)
