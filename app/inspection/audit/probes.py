"""Scenes that each ask a rasterizer one question. Camera axes are OpenCV's, colours come from SH, everything is float64.

Those of `plain_camera` look down the world's z axis from the origin, with fx = fy and a centred principal point, so that a
mistake in the camera shows only in the probes that are about the camera.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from app.inspection.audit.types import Probe
from render.config import SH_C0
from render.types import Camera

WIDTH, HEIGHT, FOCAL = 40, 30, 60.0
LOW_OPACITY = (0.08, 0.34)
"""Below 0.353 a footprint cut at 3 sigma, as graphdeco's, loses only alphas below 1/255."""


def plain_camera(width: int = WIDTH, height: int = HEIGHT, *, fx: float = FOCAL, fy: float = FOCAL,
                 shift: tuple[float, float] = (0.0, 0.0), viewmat: np.ndarray | None = None) -> Camera:
    """A pinhole; `shift` px moves the principal point off the centre."""
    K = np.array([[fx, 0, width / 2 + shift[0]], [0, fy, height / 2 + shift[1]], [0, 0, 1.0]])
    return Camera(np.eye(4) if viewmat is None else viewmat, K, width, height)


def turned(seed: int) -> np.ndarray:
    """[4,4] world-to-camera of a random pose."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, rng.uniform(-1, 1, 3)
    return viewmat


def place(name: str, camera: Camera, pixels: object, depths: object, sigmas: object, opacities: object, colors: object, *,
          quats: object = None, rest: np.ndarray | None = None, background: tuple[float, float, float] = (0.0, 0.0, 0.0)
          ) -> Probe:
    """Gaussians by what they look like: pixels [N,2], depths [N], sigmas [N,3] px at that depth, opacities [N],
    colours [N,3]; quats [N,4] (identity), SH bands 1 to 3 `rest` [N,15,3] (zero)."""
    pixels, depths, sigmas, opacities, colors = (
        np.asarray(v, np.float64) for v in (pixels, depths, sigmas, opacities, colors))
    n = len(depths)
    rays = np.concatenate([pixels, np.ones((n, 1))], axis=1) @ np.linalg.inv(camera.K).T
    means = (rays * depths[:, None] - camera.viewmat[:3, 3]) @ camera.viewmat[:3, :3]
    turns = np.tile([1.0, 0, 0, 0], (n, 1)) if quats is None else np.asarray(quats, np.float64)
    sh = np.zeros((n, 16, 3))
    sh[:, 0] = (colors - 0.5) / SH_C0
    if rest is not None:
        sh[:, 1:] = rest
    as_tensor = torch.as_tensor
    return Probe(name, camera, as_tensor(means), as_tensor(turns), as_tensor(sigmas * depths[:, None] / camera.K[0, 0]),
                 as_tensor(opacities), as_tensor(sh), torch.tensor(background, dtype=torch.float64))


def one(name: str, sigma: float, opacity: float, *, color: tuple[float, float, float] = (0.9, 0.6, 0.3),
        camera: Camera | None = None) -> Probe:
    """One round Gaussian on the optical axis."""
    camera = camera or plain_camera()
    return place(name, camera, [[camera.K[0, 2], camera.K[1, 2]]], [3.0], [[sigma] * 3], [opacity], [color])


def spots(name: str, camera: Camera, *, rest: np.ndarray | None = None, opacity: float = 0.3) -> Probe:
    """Five round Gaussians that do not overlap, of different colours and depths."""
    pixels = np.array([[0.22, 0.25], [0.72, 0.2], [0.5, 0.55], [0.2, 0.8], [0.8, 0.78]]) * [camera.width, camera.height]
    colors = np.array([[0.8, 0.4, 0.3], [0.3, 0.7, 0.4], [0.4, 0.5, 0.8], [0.7, 0.7, 0.3], [0.6, 0.3, 0.7]])
    return place(name, camera, pixels, [3.0, 3.5, 4.0, 2.5, 3.2], np.full((5, 3), 1.0), np.full(5, opacity), colors, rest=rest)


def tilted(name: str, *, length: float = 1.0, viewmat: np.ndarray | None = None, shift: tuple[float, float] = (0.0, 0.0)
           ) -> Probe:
    """One long Gaussian, turned about an oblique axis, `shift` px off the optical one; `length` is that of its quaternion."""
    quat = np.array([0.8, 0.25, -0.35, 0.42])
    quat *= length / np.linalg.norm(quat)
    camera = plain_camera(viewmat=viewmat)
    return place(name, camera, [[camera.width / 2 + shift[0], camera.height / 2 + shift[1]]], [3.0], [[4.5, 1.2, 2.2]], [0.33],
                 [[0.9, 0.6, 0.3]], quats=[quat])


def heap(name: str) -> Probe:
    """Five round Gaussians over each other in front of black. Neither their indices nor their reversal are sorted by depth,
    the order by distance from the camera is another one, since one stands at the edge of the picture, and so is that by the
    world's z."""
    camera = plain_camera(fx=30.0, fy=30.0, viewmat=turned(5))   # wide: distance and depth differ
    pixels = np.array([[20.0, 15], [19, 14], [21, 15], [20, 16], [34, 15]])
    colors = np.array([[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [0.9, 0.9, 0.1], [0.2, 0.9, 0.9]])
    return place(name, camera, pixels, [3.0, 4.0, 2.5, 3.5, 2.9], np.full((5, 3), 6.0), np.full(5, 0.34), colors)


def twins(name: str) -> Probe:
    """Two Gaussians in the same place, of different colours."""
    probe = one(name, 4.0, 0.34)
    other = one(name, 4.0, 0.34, color=(0.1, 0.3, 0.9))
    both = {k: torch.cat([v, other.tensors()[k]]) for k, v in probe.tensors().items() if k != "background"}
    return Probe(name, probe.camera, background=probe.background, **both)


def curtain(name: str, layers: int = 300) -> Probe:
    """Black layers in front of white, exactly 0.1 opaque at the middle pixel, which shows the transmittance that is left."""
    camera = plain_camera(17, 17)
    return place(name, camera, np.full((layers, 2), 8.5), np.linspace(2, 6, layers), np.full((layers, 3), 400.0),
                 np.full(layers, 0.1), np.zeros((layers, 3)), background=(1.0, 1.0, 1.0))


def overhanging(name: str) -> Probe:
    """Gaussians whose centres lie up to 4 px outside the picture and that reach into it."""
    pixels = np.array([[-3.5, 12.0], [WIDTH + 3.5, 20], [20, -3.5], [30, HEIGHT + 3.5]])
    colors = np.array([[0.9, 0.2, 0.1], [0.2, 0.8, 0.3], [0.3, 0.4, 0.9], [0.8, 0.8, 0.2]])
    return place(name, plain_camera(), pixels, [3.0, 3.5, 4.0, 2.5], np.full((4, 3), 5.0), np.full(4, 0.34), colors)


def behind(name: str) -> Probe:
    """One Gaussian in the picture, and three behind the camera whose mirror images would be in it."""
    pixels = np.array([[24.0, 18], [20, 16], [28, 20], [24, 22]])
    return place(name, plain_camera(), pixels, [3.0, -3.0, -2.0, -0.5], [[4.0] * 3, [-4.0] * 3, [-4.0] * 3, [-4.0] * 3],
                 np.full(4, 0.3), np.full((4, 3), 0.8))


NEAR_DEPTHS = (0.005, 0.02, 0.05, 0.09, 0.15, 0.19, 0.21, 0.5, 1.5)


def nearby(name: str) -> Probe:
    """A 3 x 3 grid of spots at the depths NEAR_DEPTHS, row by row."""
    pixels = np.array([[(0.5 + x) * WIDTH / 3, (0.5 + y) * HEIGHT / 3] for y in range(3) for x in range(3)])
    return place(name, plain_camera(), pixels, NEAR_DEPTHS, np.full((9, 3), 1.5), np.full(9, 0.34), np.full((9, 3), 0.8))


def crowd(name: str, seed: int, *, count: int = 28, background: tuple[float, float, float] = (0.25, 0.7, 0.45)) -> Probe:
    """Everything at once but no clamped pixel: random pose, off-centre principal point, fx != fy, SH of degree 3, overlap."""
    rng = np.random.default_rng(seed)
    camera = plain_camera(WIDTH, HEIGHT, fx=46.0, fy=58.0, shift=(5.3, -3.7), viewmat=turned(seed))
    pixels = rng.uniform(0.02, 0.98, (count, 2)) * [WIDTH, HEIGHT]
    quats = rng.standard_normal((count, 4))
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    rest = 0.15 * rng.standard_normal((count, 15, 3))
    return place(name, camera, pixels, rng.uniform(2, 5, count), np.exp(rng.uniform(0.0, np.log(6.0), (count, 3))),
                 rng.uniform(*LOW_OPACITY, count), rng.uniform(0.35, 0.7, (count, 3)), quats=quats, rest=rest,
                 background=background)


def dense(name: str, seed: int) -> Probe:
    """Wide, nearly opaque Gaussians: alpha is clamped and transmittance runs out. All reach beyond the picture, so that
    no footprint ends inside."""
    rng = np.random.default_rng(seed)
    count = 8
    camera = plain_camera(28, 22, fx=46.0, fy=52.0, shift=(1.5, -2.0), viewmat=turned(seed))
    quats = rng.standard_normal((count, 4))
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    opacities = np.where(np.arange(count) % 3 == 1, 0.9998, rng.uniform(0.4, 0.8, count))
    return place(name, camera, np.array([14.0, 11.0]) + rng.uniform(-3, 3, (count, 2)), np.linspace(2, 4, count),
                 rng.uniform(16, 34, (count, 3)), opacities, rng.uniform(0.35, 0.7, (count, 3)), quats=quats,
                 rest=0.1 * rng.standard_normal((count, 15, 3)), background=(0.25, 0.7, 0.45))


def cotangent(probe: Probe, seed: int = 0) -> Tensor:
    """[H,W,3] random, normal."""
    shape = (probe.camera.height, probe.camera.width, 3)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
