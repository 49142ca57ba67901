"""A user's scene or training run as a probe: one small view of its own Gaussians."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from app.config import TrainConfig
from app.data.cameras_json import read_cameras_json
from app.data.gaussians import read_gaussians
from app.data.open import find_gaussians, open_scene
from app.data.orient import scene_center
from app.data.scene import SceneError
from app.inspection.audit.types import Probe
from app.inspection.subject import perturbed
from app.training.arrays import to_params
from app.training.init import initial_params
from render.config import RasterConfig
from render.reference.activate import activate
from render.reference.project import ratio_limits
from render.types import Camera, GaussianParams

LONG_SIDE = 80
"""px of the view: every Gaussian at every pixel has to fit the memory of a rasterizer in plain PyTorch."""
MOST = 400
"""Gaussians of the view that are kept: those that cover the most of it."""
NEAREST = 0.25
"""In units of depth: rasterizers differ in their near planes, which a mode reports, so nearer Gaussians are left out."""
INSIDE_CLAMP = 1.15
"""Renderers clamp the projection's slope at 1.3 tan(fov/2), each in its own way; Gaussians beyond this are left out."""
LARGEST = 0.25
"""Share of the view's width up to which a larger Gaussian is thought to cover more."""
BACKGROUND = (0.3, 0.6, 0.4)


def own_scene(path: str, seed: int = 0) -> tuple[Probe, list[str]]:
    """(the probe, a sentence for each thing done to the scene) of a scene folder, a run's folder or a splat PLY.

    A run is looked at from its first saved view, a PLY by itself from in front of its middle. A scene that was never trained
    starts as training would, then `seed` makes its Gaussians depend on everything. Raises SceneError.
    """
    where = Path(path).expanduser()
    file = find_gaussians(where)
    if file is not None:
        loaded = read_gaussians(file)
        notes = list(loaded.notices)
        params = to_params(loaded.gaussians, str(file))
        camera = first_camera(file) or facing(params.means.numpy())
    else:
        scene = open_scene(path)
        config = TrainConfig()
        params, notice = initial_params(scene.points, scene.views, sh_degree=config.sh_degree, init_points=config.init_points,
                                        seed=config.seed, device="cpu")
        params = perturbed(params, seed)
        notes = [*([notice] if notice else []), f"The scene is not trained: its first Gaussians were perturbed by seed {seed}."]
        center = scene_center(scene.views)
        cameras = [view.camera for view in scene.views]
        camera = min(cameras, key=lambda c: float(np.linalg.norm(c.center - center)))   # from nearest by
    probe, seen = probe_of(params, small(camera), where.name or path)
    notes.append(f"{probe.name}: of {seen:,} Gaussians in view the {len(probe.means)} that cover the most of it were compared.")
    return probe, notes


def first_camera(file: Path) -> Camera | None:
    """The first view of the run that a PLY lies in; None where it lies in none. Raises SceneError for a damaged list."""
    saved = next((folder / "cameras.json" for folder in file.parents[:3] if (folder / "cameras.json").is_file()), None)
    views = read_cameras_json(saved) if saved else []
    return views[0][1] if views else None


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


def probe_of(params: GaussianParams, camera: Camera, name: str) -> tuple[Probe, int]:
    """(the probe, how many Gaussians are in view). Raises SceneError when none is."""
    exact = GaussianParams(**{group: tensor.double() for group, tensor in params.trained().items()}, uids=params.uids)
    g = activate(exact)
    view = torch.as_tensor(camera.viewmat)
    points = g.means @ view[:3, :3].T + view[:3, 3]
    z = torch.clamp(points[:, 2], min=1e-9)
    seen = points[:, 2] > NEAREST
    for axis, (low, high) in enumerate(ratio_limits(camera, RasterConfig(clamp_fov=INSIDE_CLAMP))):
        slope = points[:, axis] / z
        seen &= (slope > low) & (slope < high)
    for tensor in (g.means, g.quats, g.scales, g.sh.flatten(1)):
        seen &= tensor.isfinite().all(1)
    if not seen.any():
        raise SceneError(f"no Gaussian of {name} is in the view that was chosen; name another scene or run")
    radii = torch.clamp(g.scales.amax(1) * float(camera.K[0, 0]) / z, max=LARGEST * camera.width)
    covered = torch.where(seen, g.opacities * radii**2, -1.0)
    rows = torch.sort(torch.argsort(covered, descending=True, stable=True)[:min(MOST, int(seen.sum()))]).values
    sh = torch.zeros(len(rows), 16, 3, dtype=torch.float64)
    bands = min(16, (math.isqrt(g.sh.shape[1])) ** 2)
    sh[:, :bands] = g.sh[rows, :bands]
    return Probe(name, camera, g.means[rows], g.quats[rows], g.scales[rows], g.opacities[rows], sh,
                 torch.tensor(BACKGROUND, dtype=torch.float64)), int(seen.sum())
