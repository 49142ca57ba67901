"""Which Gaussians the user means: those at a pixel, in a region of the picture, near those selected. Masks over rows."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from app.engine.crop import crop
from app.engine.drawn import Drawn
from app.engine.model import Model
from app.training.arrays import host
from app.training.backend import usable_cores
from render.reference.pixel import pixel_contributions
from render.types import Camera

NEIGHBOURS = 6
"""Growing a selection adds so many nearest neighbours of each selected Gaussian."""


def at_pixel(model: Model, camera: Camera, x: float, y: float, parts: Drawn | None = None) -> np.ndarray:
    """uids of the Gaussians blended at pixel (x, y), by falling weight w = T alpha; of `parts` of the model if given."""
    column = min(max(int(x), 0), camera.width - 1)
    row = min(max(int(y), 0), camera.height - 1)
    part = crop(camera, column, row, 1, 1)
    output = model.render(part, gaussians=parts.gaussians if parts is not None else None)
    found = pixel_contributions(output.projected, output.splat_colors, output.splat_opacities, output.bins, part,
                                model.background, model.options.raster, 0, 0)
    order = np.argsort(-host(found.weights), kind="stable")
    return host(model.params.uids[found.ids])[order]


def in_region(model: Model, camera: Camera, path: np.ndarray, radius: float | None, parts: Drawn) -> np.ndarray:
    """[N] bool: the drawn Gaussians whose mean projects into an outline [P,2] px, or within `radius` of a line."""
    means = host(model.gaussians().means)
    x, y, z = (means[:, 0] * row[0] + means[:, 1] * row[1] + means[:, 2] * row[2] + row[3]
               for row in camera.viewmat[:3].astype(np.float32))
    inside = (z > camera.near) & (z < camera.far) & (host(model.gaussians().opacities) >= model.options.raster.cutoff)
    if parts.shown is not None:
        inside &= host(parts.shown)
    safe = np.where(inside, z, np.float32(1.0))
    with np.errstate(invalid="ignore", over="ignore"):
        x = x / safe * np.float32(camera.K[0, 0]) + np.float32(camera.K[0, 2])
        y = y / safe * np.float32(camera.K[1, 1]) + np.float32(camera.K[1, 2])
        inside &= (x >= 0) & (x < camera.width) & (y >= 0) & (y < camera.height)
    rows = np.flatnonzero(inside)
    region = painted(camera.width, camera.height, path, radius)
    inside[rows] = region[y[rows].astype(np.intp), x[rows].astype(np.intp)]
    return inside


def painted(width: int, height: int, path: np.ndarray, radius: float | None) -> np.ndarray:
    """[height,width] bool: the pixels inside a closed outline [P,2] px, or under a brush that follows it."""
    picture = Image.new("L", (width, height))
    draw = ImageDraw.Draw(picture)
    points = [(float(x), float(y)) for x, y in np.asarray(path, np.float64).reshape(-1, 2)]
    if radius is None:
        if len(points) >= 3:
            draw.polygon(points, fill=1)
    else:
        if len(points) > 1:
            draw.line(points, fill=1, width=max(1, round(2 * radius)))
        for x, y in points:
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=1)
    return np.asarray(picture, dtype=bool)


def neighbours(model: Model, mask: np.ndarray) -> np.ndarray:
    """[N] bool: the mask and the NEIGHBOURS nearest in space of each Gaussian in it."""
    from scipy.spatial import KDTree

    means = host(model.gaussians().means)
    known = np.flatnonzero(np.isfinite(means).all(axis=1))
    grown, chosen = mask.copy(), known[mask[known]]
    if len(chosen):
        # every core for an instant: half of 100,000 grows in 66 ms instead of 111 (two cores, tests.bench.selecting)
        tree = KDTree(means[known], leafsize=24, balanced_tree=False, compact_nodes=False)
        _, near = tree.query(means[chosen], k=min(NEIGHBOURS + 1, len(known)), workers=usable_cores())
        grown[known[near.reshape(-1)]] = True
    return grown
