"""A renderer without tiles, tensors or torch: per pixel, all Gaussians, plain floats. Hard to get wrong."""

from __future__ import annotations

import math

import numpy as np

from render.config import RasterConfig
from render.types import Camera, Projected


def pixel_alpha(raw: float, config: RasterConfig) -> float:
    alpha = min(raw, config.alpha_max)
    if alpha < config.cutoff:
        return 0.0
    if config.smooth_cutoff:
        t = min((alpha - config.cutoff) / config.cutoff, 1.0)
        alpha *= t * t * (3 - 2 * t)
    return alpha


def render_pixels(projected: Projected, colors, opacities_eff, camera: Camera, background, config: RasterConfig):
    """(colors [H,W,3], transmittances [H,W], depths [H,W], contributors [H,W], last Gaussian [H,W] or -1)."""
    means2d, conics, depths, extents, colors, opacities, background = (
        t.detach().double().numpy() for t in (projected.means2d, projected.conics, projected.depths, projected.extents,
                                              colors, opacities_eff, background))
    order = sorted((i for i in range(len(depths)) if extents[i, 0] > 0), key=lambda i: (depths[i], i))
    shape = (camera.height, camera.width)
    image, transmittances, depth = np.zeros((*shape, 3)), np.ones(shape), np.zeros(shape)
    counts, last = np.zeros(shape, int), np.full(shape, -1)
    for y in range(camera.height):
        for x in range(camera.width):
            T = 1.0
            for i in order:
                dx, dy = x + 0.5 - means2d[i, 0], y + 0.5 - means2d[i, 1]
                a, b, c = conics[i]
                q = a * dx * dx + 2 * b * dx * dy + c * dy * dy
                alpha = pixel_alpha(opacities[i] * math.exp(-0.5 * q), config)
                if alpha == 0:
                    continue
                if T * (1 - alpha) < config.transmittance_min:
                    break
                image[y, x] += T * alpha * colors[i]
                depth[y, x] += T * alpha * depths[i]
                counts[y, x] += 1
                last[y, x] = i
                T *= 1 - alpha
            image[y, x] += T * background
            transmittances[y, x] = T
    return image, transmittances, depth, counts, last
