"""From a path to a Problem: a scene that is not trained is perturbed first, a trained run is taken as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from app.config import TrainConfig
from app.data.cameras_json import read_cameras_json
from app.data.gaussians import read_gaussians
from app.data.open import find_gaussians, open_scene
from app.data.scene import Scene, SceneError, View
from app.inspection.problem import Problem, evaluator, in_float64, random_cotangent
from app.training.arrays import to_params
from app.training.init import initial_params
from app.training.views import load_target
from render import pipeline
from render.stages.activate import activate
from render.types import Camera, GaussianParams

VISIBLE = 0.05
"""px: the least sum of a Gaussian's weights in a view that counts as visible there."""
SCALE_NOISE, COLOR_NOISE, OPACITY = 0.35, 0.1, (0.05, 0.97)
OPAQUE = 0.995
"""Opacity of every tenth perturbed Gaussian: above alpha_max, so that the clamp is checked too."""


@dataclass(frozen=True)
class Subject:
    """What is checked, and sentences on how it came about."""

    problem: Problem
    notes: list[str] = field(default_factory=list)


def perturbed(params: GaussianParams, seed: int) -> GaussianParams:
    """What a scene starts from, made general: any rotation, three different scales, all opacities, SH in every band.

    A start is round, grey-blue alike in all directions and equally opaque, which hides faults in half of the chain rule.
    """
    rng = np.random.default_rng(seed)
    n = len(params)

    def noise(like: torch.Tensor, sigma: float) -> torch.Tensor:
        return torch.from_numpy(sigma * rng.standard_normal(tuple(like.shape))).to(like)

    opacities = rng.uniform(*OPACITY, n)
    opacities[rng.permutation(n)[:n // 10]] = OPAQUE
    return replace(
        params, quats=noise(params.quats, 1.0), log_scales=params.log_scales + noise(params.log_scales, SCALE_NOISE),
        logit_opacities=torch.from_numpy(np.log(opacities / (1 - opacities))).to(params.logit_opacities),
        sh0=params.sh0 + noise(params.sh0, COLOR_NOISE), shN=noise(params.shN, COLOR_NOISE))


def weight_sums(problem: Problem) -> torch.Tensor:
    """[N] sum over pixels of T alpha: dL/dcolour of the sum of the picture."""
    exact = in_float64(problem)
    gaussians = activate(exact.params, evaluator())
    colors = torch.ones(len(exact.params), 3, dtype=torch.float64, requires_grad=True)
    output = pipeline.render(gaussians, exact.camera, exact.raster, background=exact.background, sh_degree=0,
                             backend=evaluator(), colors=colors)
    if not output.colors.requires_grad:
        return torch.zeros(len(exact.params), dtype=torch.float64)
    return torch.autograd.grad(output.colors.sum(), colors)[0][:, 0]


def choose_visible(problem: Problem, count: int, seed: int) -> list[int]:
    """Rows of up to `count` Gaussians that the view shows, drawn by the seed, ascending.

    Raises SceneError when it shows none.
    """
    visible = torch.nonzero(weight_sums(problem) >= VISIBLE).flatten().numpy()
    if len(visible) == 0:
        raise SceneError(f"no Gaussian is visible in the view {problem.view}; choose another one with --view")
    drawn = np.random.default_rng([seed, 3]).permutation(visible)[:count]
    return sorted(int(i) for i in drawn)


def find_view(names: Sequence[str], wanted: str, source: str) -> int:
    """Place of a view in a list, by its name, its name without folder and extension, or its number.

    Raises SceneError naming a few that there are.
    """
    if wanted in names:
        return names.index(wanted)
    stems = [Path(name).stem for name in names]
    if stems.count(wanted) == 1:
        return stems.index(wanted)
    if wanted.isdigit() and int(wanted) < len(names):
        return int(wanted)
    shown = ", ".join(names[:3])
    raise SceneError(f"{source} has no view {wanted!r}; name one of its {len(names)} ({shown} ...) or a number below that")


def of_view(params: GaussianParams, view: View, config: TrainConfig, sh_degree: int) -> Problem:
    """The training loss of a photograph."""
    background = torch.full((3,), 1.0 if config.white_background else 0.0)
    target = load_target(view, background).double()
    return Problem(params, view.camera, config.raster, sh_degree, background.double(), config.loss, config.lambda_dssim,
                   target, view=view.name)


def of_camera(params: GaussianParams, camera: Camera, name: str, config: TrainConfig, sh_degree: int, seed: int) -> Problem:
    """A fixed random cotangent at a camera without a photograph."""
    background = torch.full((3,), 1.0 if config.white_background else 0.0, dtype=torch.float64)
    return Problem(params, camera, config.raster, sh_degree, background, cotangent=random_cotangent(camera, seed), view=name)


def open_subject(source: str, config: TrainConfig, *, view: str = "", resolution: int = -1, photographs: str = "",
                 cotangent: bool = False, seed: int = 0) -> Subject:
    """The problem that a scene folder, a run folder or a PLY stands for.

    `photographs` is the scene that a run was trained on. `cotangent` asks for a random one instead of the loss.
    Raises SceneError: one sentence, what, where, what to do.
    """
    where = Path(source).expanduser()
    if not where.exists():
        raise SceneError(f"{source} does not exist; name a scene folder, a run folder or a Gaussian PLY")
    file = find_gaussians(where)
    if file is None:
        return _of_scene(source, config, view, resolution, cotangent, seed)
    params = to_params(read_gaussians(file).gaussians, str(file))
    degree = min(math.isqrt(params.shN.shape[1] + 1) - 1, config.sh_degree)
    notes = [f"The Gaussians of {file} are taken as they are."]
    if photographs:
        found = _view_of(open_scene(photographs, resolution=resolution), view)
        problem = of_view(params, found, config, degree)
        return Subject(_with_cotangent(problem, seed) if cotangent else problem, notes)
    name, camera = _camera_of_run(file, view, resolution)
    notes.append("Its photographs are not in the run, so a fixed random cotangent stands for the loss; name their scene with "
                 "--photographs.")
    return Subject(of_camera(params, camera, name, config, degree, seed), notes)


def _of_scene(source: str, config: TrainConfig, view: str, resolution: int, cotangent: bool, seed: int) -> Subject:
    scene = open_scene(source, resolution=resolution)
    if not scene.train:
        raise SceneError(f"{source}: no view is left to check; see that the image files are there and named as in the model")
    params, notice = initial_params(scene.points, scene.train, sh_degree=config.sh_degree, init_points=config.init_points,
                                    seed=config.seed, device="cpu")
    problem = of_view(perturbed(params, seed), _view_of(scene, view), config, config.sh_degree)
    notes = [f"The scene is not trained: its {len(params):,} first Gaussians were perturbed by seed {seed}."]
    return Subject(_with_cotangent(problem, seed) if cotangent else problem, notes + ([notice] if notice else []))


def _with_cotangent(problem: Problem, seed: int) -> Problem:
    return replace(problem, cotangent=random_cotangent(problem.camera, seed))


def _view_of(scene: Scene, wanted: str) -> View:
    if not wanted:
        return (scene.train or scene.views)[0]
    return scene.views[find_view([view.name for view in scene.views], wanted, scene.path)]


def _camera_of_run(file: Path, wanted: str, resolution: int) -> tuple[str, Camera]:
    """(name, camera) from the cameras.json of the run that a PLY lies in."""
    saved = next((folder / "cameras.json" for folder in file.parents[:3] if (folder / "cameras.json").is_file()), None)
    if saved is None:
        raise SceneError(f"{file} has no cameras.json in the folders above it, so there is no view to check; name the scene "
                         "it was trained on with --photographs")
    cameras = read_cameras_json(saved)
    if not cameras:
        raise SceneError(f"{saved} lists no camera; save the run again")
    name, camera = cameras[find_view([name for name, _ in cameras], wanted, str(saved)) if wanted else 0]
    if resolution > 8:
        camera = camera.resized(resolution, max(1, round(camera.height * resolution / camera.width)))
    elif resolution > 1:
        camera = camera.resized(max(1, round(camera.width / resolution)), max(1, round(camera.height / resolution)))
    return name, camera
