"""Small scenes for tests of every backend: random ones, and the edges where renderers break."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from render.config import TILE_SIZE
from render.types import Camera, GaussianParams, Gaussians

SH_C0 = 0.28209479177387814


@dataclass
class Case:
    """A scene, the camera that looks at it, and what a test has to know about it."""

    name: str
    params: GaussianParams
    camera: Camera
    sh_degree: int = 3
    visible: bool = True  # whether anything reaches the image

    def gaussians(self) -> Gaussians:
        """Activated here, independent of the code under test; the tensors are detached."""
        p = self.params
        return Gaussians(p.means.clone(), p.quats / p.quats.norm(dim=-1, keepdim=True), p.log_scales.exp(),
                         torch.sigmoid(p.logit_opacities), torch.cat([p.sh0, p.shN], dim=1))

    def with_params(self, **changes: Tensor) -> Case:
        return replace(self, params=replace(self.params, **changes))

    def to(self, dtype: torch.dtype) -> Case:
        return self.with_params(**{k: v.to(dtype) for k, v in self.params.trained().items()})


def leaves(gaussians: Gaussians) -> tuple[Gaussians, dict[str, Tensor]]:
    """The same Gaussians as leaves that require gradients, and those leaves by name."""
    tensors = {f.name: getattr(gaussians, f.name).detach().clone().requires_grad_() for f in fields(gaussians)
               if getattr(gaussians, f.name) is not None}
    return Gaussians(**tensors), tensors


def make_camera(width: int = 64, height: int = 48, *, seed: int = 0, off_center: float = 0.0, aspect: float = 1.0,
                focal: float = 0.9, near: float = 0.01, far: float = 1e10) -> Camera:
    """A camera in a random pose. off_center shifts the principal point by that share of the size, aspect is fy/fx."""
    rng = np.random.default_rng(1000 + seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = rng.uniform(-1, 1, 3)
    fx = focal * width
    K = np.array([[fx, 0, width * (0.5 + off_center)], [0, aspect * fx, height * (0.5 - off_center)], [0, 0, 1.0]])
    return Camera(viewmat, K, width, height, near, far)


def to_world(camera: Camera, points: np.ndarray) -> np.ndarray:
    """[N,3] camera-space points -> world."""
    return (points - camera.viewmat[:3, 3]) @ camera.viewmat[:3, :3]


def params_from(camera: Camera, pixels: np.ndarray, depths: np.ndarray, sigmas: np.ndarray, opacities: np.ndarray,
                rgb: np.ndarray, *, seed: int = 0, sh_degree: int = 3, sh_noise: float = 0.1, round_ones: bool = False,
                dtype: torch.dtype = torch.float64) -> GaussianParams:
    """Gaussians placed by what they look like: pixels [N,2], depths [N], sigmas [N,3] px at that depth, opacities [N]
    in (0,1), rgb [N,3]. `round_ones` keeps the identity rotation."""
    n = len(depths)
    rng = np.random.default_rng(seed)
    K = camera.K
    rays = np.stack([(pixels[:, 0] - K[0, 2]) / K[0, 0], (pixels[:, 1] - K[1, 2]) / K[1, 1], np.ones(n)], axis=-1)
    quats = rng.standard_normal((n, 4)) if not round_ones else np.tile([1.0, 0, 0, 0], (n, 1))
    shN = sh_noise * rng.standard_normal((n, (sh_degree + 1) ** 2 - 1, 3))
    arrays = dict(means=to_world(camera, rays * depths[:, None]), quats=quats,
                  log_scales=np.log(sigmas * depths[:, None] / K[0, 0]),
                  logit_opacities=np.log(opacities / (1 - opacities)), sh0=(rgb[:, None] - 0.5) / SH_C0, shN=shN)
    return GaussianParams(**{k: torch.tensor(v, dtype=dtype) for k, v in arrays.items()}, uids=torch.arange(n))


def make_random(n: int = 500, width: int = 64, height: int = 48, seed: int = 0, sh_degree: int = 3,
                dtype: torch.dtype = torch.float64, *, off_center: float = 0.0, aspect: float = 1.0,
                sigma: tuple[float, float] = (0.5, 5.0), opacity: tuple[float, float] = (0.02, 0.999),
                overscan: float = 0.1) -> Case:
    """n Gaussians over the image and `overscan` beyond it, 2 to 6 units away, sigma px log-uniform per axis."""
    camera = make_camera(width, height, seed=seed, off_center=off_center, aspect=aspect)
    rng = np.random.default_rng(seed)
    size = np.array([width, height])
    params = params_from(
        camera, rng.uniform(-overscan, 1 + overscan, (n, 2)) * size, rng.uniform(2, 6, n),
        np.exp(rng.uniform(*np.log(sigma), (n, 3))), rng.uniform(*opacity, n), rng.uniform(0.1, 0.9, (n, 3)),
        seed=seed, sh_degree=sh_degree, dtype=dtype)
    return Case(f"random{n}_{width}x{height}_s{seed}", params, camera, sh_degree)


def make_stack(count: int, *, opacity: float = 0.01, sigma: float = 30.0, seed: int = 0,
               dtype: torch.dtype = torch.float64) -> Case:
    """One tile whose list holds exactly `count` wide Gaussians behind each other."""
    camera = make_camera(TILE_SIZE, TILE_SIZE, seed=seed)
    rng = np.random.default_rng(seed)
    params = params_from(camera, np.full((count, 2), TILE_SIZE / 2) + rng.uniform(-2, 2, (count, 2)),
                         np.sort(rng.uniform(3, 6, count)), np.full((count, 3), sigma), np.full(count, opacity),
                         rng.uniform(0.1, 0.9, (count, 3)), seed=seed, dtype=dtype)
    return Case(f"stack{count}", params, camera)


def single(*, pixel: tuple[float, float] = (20.0, 14.0), depth: float = 3.0, sigma: float = 3.0, opacity: float = 0.8,
           rgb: tuple[float, float, float] = (0.9, 0.5, 0.1), camera: Camera | None = None,
           dtype: torch.dtype = torch.float64) -> Case:
    """One round Gaussian without view dependence."""
    camera = camera or make_camera(40, 28)
    params = params_from(camera, np.array([pixel]), np.array([depth]), np.full((1, 3), sigma), np.array([opacity]),
                         np.array([rgb]), sh_noise=0.0, round_ones=True, dtype=dtype)
    return Case("single", params, camera)


def _moved(case: Case, name: str, points: np.ndarray, visible: bool) -> Case:
    """The same Gaussians at camera-space points [N,3]."""
    means = torch.tensor(to_world(case.camera, points), dtype=case.params.means.dtype)
    return replace(case.with_params(means=means), name=name, visible=visible)


def none_visible(dtype: torch.dtype = torch.float64) -> Case:
    """All far outside the left edge of the image, in front of the camera."""
    case = make_random(12, 40, 28, 3, dtype=dtype)
    return _moved(case, "none_visible", np.random.default_rng(0).uniform([-40, -1, 3], [-30, 1, 5], (12, 3)), False)


def behind(dtype: torch.dtype = torch.float64) -> Case:
    """All behind the camera, as with a camera that faces away."""
    case = make_random(12, 40, 28, 4, dtype=dtype)
    return _moved(case, "behind", np.random.default_rng(0).uniform([-1, -1, -5], [1, 1, -0.5], (12, 3)), False)


def half_behind(dtype: torch.dtype = torch.float64) -> Case:
    """Every second Gaussian behind the camera."""
    case = make_random(24, 40, 28, 5, dtype=dtype)
    means = case.params.means.clone()
    means[::2] = behind(dtype).params.means
    return replace(case.with_params(means=means), name="half_behind")


def saturated(dtype: torch.dtype = torch.float64) -> Case:
    """Opaque Gaussians stacked over the same pixels: alpha is clamped and the stopping rule acts.

    Only the second is opaque enough to be clamped: two clamped at 0.99 would leave a transmittance of 0.01^2, which
    lies on transmittance_min to the last bit, so that rounding alone would decide.
    """
    camera = make_camera(20, 20, seed=6)
    rng = np.random.default_rng(6)
    n = 12
    opacities = rng.uniform(0.9, 0.97, n)
    opacities[1] = 0.9995
    params = params_from(camera, rng.uniform(8, 12, (n, 2)), np.linspace(2, 5, n), np.exp(rng.uniform(1, 2, (n, 3))),
                         opacities, rng.uniform(0.1, 0.9, (n, 3)), seed=6, dtype=dtype)
    return Case("saturated", params, camera)


def broken(value: float, group: str, dtype: torch.dtype = torch.float64) -> Case:
    """A good scene in which Gaussian 3 has `value` in one entry of a parameter."""
    case = make_random(16, 40, 28, 7, dtype=dtype)
    tensor = getattr(case.params, group).clone()
    tensor[3].view(-1)[0] = value
    return replace(case.with_params(**{group: tensor}), name=f"{group}_{value}")


def transparent(dtype: torch.dtype = torch.float64) -> Case:
    """Opacities in (0, 1/255): nothing may touch a tile."""
    case = make_random(20, 40, 28, 8, opacity=(1e-6, 1 / 255 - 1e-6), dtype=dtype)
    return replace(case, name="transparent", visible=False)


def depth_ties(dtype: torch.dtype = torch.float64) -> Case:
    """Pairs of identical geometry and different colour: the lower index must be in front."""
    case = make_random(20, 40, 28, 9, opacity=(0.3, 0.9), dtype=dtype)
    changes = {name: getattr(case.params, name).clone() for name in ("means", "quats", "log_scales", "logit_opacities")}
    for tensor in changes.values():
        tensor[1::2] = tensor[::2].clone()
    return replace(case.with_params(**changes), name="depth_ties")


def needles(dtype: torch.dtype = torch.float64) -> Case:
    """Footprints of a thousand to one, all directions."""
    camera = make_camera(56, 40, seed=10)
    rng = np.random.default_rng(10)
    sigmas = np.stack([rng.uniform(20, 60, 30), rng.uniform(0.02, 0.1, 30), rng.uniform(0.02, 0.1, 30)], axis=-1)
    params = params_from(camera, rng.uniform(0, 1, (30, 2)) * [56, 40], rng.uniform(2, 6, 30), sigmas,
                         rng.uniform(0.1, 0.9, 30), rng.uniform(0.1, 0.9, (30, 3)), seed=10, dtype=dtype)
    return Case("needles", params, camera)


def outside_clamp(dtype: torch.dtype = torch.float64) -> Case:
    """Wide Gaussians whose means lie beyond the Jacobian's clamp on all four sides and still reach into the image."""
    camera = make_camera(40, 28, seed=11, off_center=0.1, aspect=1.2)
    pixels = np.array([[-14.0, 14], [54, 12], [18, -12], [24, 38], [-12, -8], [20, 14]])
    rng = np.random.default_rng(11)
    params = params_from(camera, pixels, rng.uniform(2, 4, 6), np.exp(rng.uniform(1.6, 2.4, (6, 3))),
                         rng.uniform(0.5, 0.95, 6), rng.uniform(0.1, 0.9, (6, 3)), seed=11, dtype=dtype)
    return Case("outside_clamp", params, camera)


def empty(dtype: torch.dtype = torch.float64) -> Case:
    """No Gaussian at all."""
    return replace(make_random(0, 40, 28, dtype=dtype), name="empty", visible=False)


EDGE_CASES: dict[str, Callable[..., Case]] = {
    "none_visible": none_visible,
    "behind": behind,
    "half_behind": half_behind,
    "saturated": saturated,
    "inf_scale": lambda dtype=torch.float64: broken(math.inf, "log_scales", dtype),
    "nan_mean": lambda dtype=torch.float64: broken(math.nan, "means", dtype),
    "inf_mean": lambda dtype=torch.float64: broken(-math.inf, "means", dtype),
    "nan_quat": lambda dtype=torch.float64: broken(math.nan, "quats", dtype),
    "nan_opacity": lambda dtype=torch.float64: broken(math.nan, "logit_opacities", dtype),
    "transparent": transparent,
    "depth_ties": depth_ties,
    "needles": needles,
    "outside_clamp": outside_clamp,
    "one_pixel_wide": lambda dtype=torch.float64: make_random(8, 1, 35, 12, dtype=dtype, sigma=(1, 3)),
    "not_a_tile_multiple": lambda dtype=torch.float64: make_random(60, 37, 23, 13, dtype=dtype),
    "exact_tiles": lambda dtype=torch.float64: make_random(60, 48, 32, 14, dtype=dtype),
    "empty": empty,
    "stack_63": lambda dtype=torch.float64: make_stack(63, dtype=dtype),
    "stack_65": lambda dtype=torch.float64: make_stack(65, dtype=dtype),
    "stack_255": lambda dtype=torch.float64: make_stack(255, dtype=dtype),
    "stack_257": lambda dtype=torch.float64: make_stack(257, dtype=dtype),
}
"""Every backend must render these and their gradients without a non-finite number."""
