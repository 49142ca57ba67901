"""A user's scene or training run as a probe: one small view of its own Gaussians."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from app.data.gaussians import GaussianArrays, read_gaussians
from app.data.open import find_gaussians, open_scene
from app.data.orient import scene_center
from app.data.scene import SceneError
from app.inspection.audit.types import Probe
from render.config import RasterConfig
from render.reference.project import ratio_limits
from render.types import Camera

LONG_SIDE = 80
"""px of the view: every Gaussian at every pixel has to fit the memory of a rasterizer in plain PyTorch."""
MOST = 400
"""Gaussians of the view that are kept: those that cover the most of it."""
NEAREST = 0.25
"""In units of depth: rasterizers differ in their near planes, which a mode reports, so nearer Gaussians are left out."""


def own_scene(path: str, seed: int = 0) -> tuple[Probe, list[str]]:
    """(the probe, a sentence for each thing done to the scene) of a scene folder, a run's folder or a splat PLY.

    A scene that was never trained starts as training would, then `seed` turns, stretches and colours its Gaussians, so that
    every gradient is at work. Raises SceneError.
    """
    file = find_gaussians(Path(path).expanduser())
    notes: list[str] = []
    if file is not None:
        loaded = read_gaussians(file)
        notes += loaded.notices
        arrays = loaded.gaussians
        camera = facing(arrays.means)
    else:
        scene = open_scene(path)
        from app.training.init import initial_params

        params, notice = initial_params(scene.points, scene.views, sh_degree=3, init_points=5000, seed=seed, device="cpu")
        notes += [notice] if notice else []
        arrays = perturbed(GaussianArrays(**{name: t.numpy() for name, t in params.trained().items()}), seed)
        notes.append("The scene is not trained: its first Gaussians were turned, stretched and coloured at random.")
        center = scene_center(scene.views)
        views = [view.camera for view in scene.views]
        camera = min(views, key=lambda c: float(np.linalg.norm(c.center - center)))   # the view from nearest by
    probe, seen = probe_of(arrays, small(camera), Path(path).name or path)
    notes.append(f"{probe.name}: of {seen:,} Gaussians in view the {len(probe.means)} that cover the most of it were compared.")
    return probe, notes


def small(camera: Camera) -> Camera:
    """The same view, its longer side LONG_SIDE px at most."""
    share = min(1.0, LONG_SIDE / max(camera.width, camera.height))
    return camera.resized(max(1, round(camera.width * share)), max(1, round(camera.height * share)))


def facing(means: np.ndarray) -> Camera:
    """A camera that sees the middle half of a model: a splat file names no view."""
    low, high = np.percentile(means.astype(np.float64), [25, 75], axis=0)
    middle, reach = (low + high) / 2, float(np.linalg.norm(high - low)) or 1.0
    viewmat = np.eye(4)
    viewmat[:3, 3] = [-middle[0], -middle[1], 1.5 * reach - middle[2]]
    K = np.array([[80.0, 0, 50], [0, 84, 34], [0, 0, 1]])
    return Camera(viewmat, K, 96, 72)


def perturbed(arrays: GaussianArrays, seed: int) -> GaussianArrays:
    """Round, grey-in-all-directions Gaussians made to depend on everything."""
    rng = np.random.default_rng(seed)
    quats = rng.standard_normal(arrays.quats.shape)
    return replace(
        arrays, quats=(quats / np.linalg.norm(quats, axis=1, keepdims=True)).astype(np.float32),
        log_scales=arrays.log_scales + 0.4 * rng.standard_normal(arrays.log_scales.shape).astype(np.float32),
        logit_opacities=rng.uniform(-2.0, 1.5, arrays.logit_opacities.shape).astype(np.float32),
        shN=0.05 * rng.standard_normal(arrays.shN.shape).astype(np.float32))


def probe_of(arrays: GaussianArrays, camera: Camera, name: str) -> tuple[Probe, int]:
    """(the probe, how many Gaussians are in view). Left out are Gaussians very near to the camera and those whose centre lies
    where renderers clamp the projection's slope, each in its own way. Raises SceneError when none is left."""
    points = arrays.means.astype(np.float64) @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    z = np.maximum(points[:, 2], 1e-9)
    slopes, limits = points[:, :2] / z[:, None], ratio_limits(camera, RasterConfig(clamp_fov=1.15))
    seen = (points[:, 2] > NEAREST) & arrays.finite()
    for axis in (0, 1):
        seen &= (slopes[:, axis] > limits[axis][0]) & (slopes[:, axis] < limits[axis][1])
    if not seen.any():
        raise SceneError(f"no Gaussian of {name} is in the view that was chosen; name another scene or run")
    with np.errstate(over="ignore"):
        radii = np.minimum(np.exp(arrays.log_scales.astype(np.float64)).max(axis=1) * camera.K[0, 0] / z, 0.25 * camera.width)
        opacities = 1 / (1 + np.exp(-arrays.logit_opacities.astype(np.float64)))
    kept = np.argsort(-np.where(seen, opacities * radii**2, -1.0), kind="stable")[:min(MOST, int(seen.sum()))]
    rows = arrays.rows(np.sort(kept))
    sh = np.zeros((len(rows), 16, 3))
    sh[:, :1], sh[:, 1:1 + rows.shN.shape[1]] = rows.sh0, rows.shN
    quats = rows.quats.astype(np.float64)
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    tensor = torch.as_tensor
    return Probe(name, camera, tensor(rows.means.astype(np.float64)), tensor(quats),
                 tensor(np.exp(rows.log_scales.astype(np.float64))), tensor(opacities[np.sort(kept)]), tensor(sh),
                 torch.tensor([0.3, 0.6, 0.4], dtype=torch.float64)), int(seen.sum())
