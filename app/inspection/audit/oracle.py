"""The reference renderer with every rule and every known mistake as a switch, float64, dense and plain.

With the default Rules and Flaws it is render/reference to the last digits, image and gradients (tests/inspection/
test_audit_oracle.py holds it to that). An audit asks which setting of the switches draws what the audited rasterizer draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from app.inspection.audit.types import PARAMETERS, Flaws, Probe, Rules
from render.config import TILE_SIZE, RasterConfig
from render.reference.activate import normalize_quats
from render.reference.project import quats_to_rotations, ratio_limits
from render.reference.rasterize import fade
from render.reference.sh import sh_basis
from render.types import Camera

DENSE_PAIRS = 2**21
"""Up to so many (Gaussian, pixel) pairs a picture is drawn at once, above tile by tile."""
FAINT = 1e-12
"""Stands for "no cutoff" where a footprint has to end somewhere."""


@dataclass
class Ellipses:
    """Gaussians that are drawn, sorted in the order in which they are blended."""

    ids: Tensor         # [n] int64 rows of the probe
    means2d: Tensor     # [n,2] px
    conics: Tensor      # [n,3] px^-2
    opacities: Tensor   # [n] compensated
    colors: Tensor      # [n,3]
    extents: Tensor     # [n,2] px half-size of the box of alpha >= cutoff


@dataclass
class Picture:
    image: Tensor       # [H,W,3]
    safe: Tensor        # [H,W] bool: no Gaussian so near to a threshold that rounding decides about it
    clamped: Tensor     # [H,W] bool: some alpha is clamped
    ellipses: Ellipses


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x with its gradient times `factor`; the value is the same to the bit."""
    return x if factor == 1.0 else x.detach() + factor * (x - x.detach())


# ---------------------------------------------------------------- geometry
def view_of(camera: Camera, rules: Rules) -> tuple[Tensor, Tensor]:
    """(rotation [3,3], translation [3]) of the world-to-camera transform as the rules read viewmat."""
    view = torch.as_tensor(camera.viewmat, dtype=torch.float64)
    if rules.viewmat == "inverse":
        view = torch.linalg.inv(view)
    rotation = view[:3, :3].T if rules.viewmat == "transposed" else view[:3, :3]
    return rotation, view[:3, 3]


def intrinsics_of(camera: Camera, rules: Rules) -> tuple[float, float, float, float]:
    """(fx, fy, cx, cy) px as the rules read K."""
    fx, fy, cx, cy = (float(camera.K[i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    mean = 0.5 * (fx + fy)
    fx, fy = {"both": (fx, fy), "fx": (fx, fx), "fy": (fy, fy), "mean": (mean, mean), "swapped": (fy, fx)}[rules.focal]
    middle_x, middle_y = 0.5 * camera.width, 0.5 * camera.height
    if rules.principal_point == "mirrored":
        return fx, fy, camera.width - cx, camera.height - cy
    cx = middle_x if rules.principal_point in ("centre", "centre_x") else cx
    cy = middle_y if rules.principal_point in ("centre", "centre_y") else cy
    return fx, fy, cx, cy


def rotations_of(quats: Tensor, rules: Rules) -> Tensor:
    """[N,3,3] from [N,4] as the rules read quaternions."""
    if rules.quats == "xyzw":
        quats = quats[:, [3, 0, 1, 2]]
    if rules.quats == "conjugate":
        quats = quats * quats.new_tensor([1.0, -1.0, -1.0, -1.0])
    return quats_to_rotations(normalize_quats(quats) if rules.quats_normalized else quats)


def colors_of(means: Tensor, sh: Tensor, camera: Camera, rules: Rules, flaws: Flaws) -> Tensor:
    """[N,3] from SH as the rules read them."""
    rotation, translation = view_of(camera, rules)
    offsets = scale_gradient(means, flaws.sh_direction)
    if rules.sh_direction != "from_origin":
        offsets = offsets + rotation.T @ translation
    directions = offsets / torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)
    if rules.sh_direction == "inwards":
        directions = -directions
    if rules.sh_direction == "camera_axes":
        directions = directions @ rotation.T
    degree = min(rules.sh_degree, round(sh.shape[1] ** 0.5) - 1)
    colors = 0.5 + torch.einsum("nk,nkc->nc", sh_basis(directions, degree), sh[:, :(degree + 1) ** 2])
    if rules.color_clamp == "none":
        return colors
    return torch.relu(colors) if rules.color_clamp == "zero" else torch.clamp(colors, 0.0, 1.0)


def ellipses_of(tensors: dict[str, Tensor], camera: Camera, rules: Rules, flaws: Flaws) -> Ellipses:
    """The Gaussians in front of the camera as ellipses, in the order in which the rules blend them."""
    rotation, translation = view_of(camera, rules)
    fx, fy, cx, cy = intrinsics_of(camera, rules)
    with torch.no_grad():
        depths = tensors["means"] @ rotation[2] + translation[2]
        finite = torch.stack([t.flatten(1).isfinite().all(1) if t.ndim > 1 else t.isfinite()
                              for name, t in tensors.items() if name != "background"]).all(0)
        ids = torch.nonzero((depths > camera.near) & finite).flatten()
        kept = tensors["means"][ids]
        ids = ids[blending_order(kept @ rotation.T + translation, kept[:, 2], rules)]
    means, quats, scales, opacities, sh = (tensors[name][ids] for name in PARAMETERS[:5])
    t = means @ rotation.T + translation
    x, y, z = t.unbind(-1)
    means2d = scale_gradient(torch.stack([fx * x / z + cx, fy * y / z + cy], dim=-1), flaws.means2d)

    half = rotations_of(quats, rules) * (torch.exp(scales) if rules.scale_exp else scales)[:, None, :]
    cov3d = half @ half.transpose(1, 2)
    if flaws.cov3d_off != 1.0:
        diagonal = torch.eye(3, dtype=torch.bool)
        cov3d = torch.where(diagonal, cov3d, scale_gradient(cov3d, flaws.cov3d_off))
    jx, jy, jz = scale_gradient(t, flaws.jacobian).unbind(-1)
    used = replace(camera, K=np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]))   # as the rules read K, right or wrong
    limits = ratio_limits(used, RasterConfig())
    rx, ry = torch.clamp(jx / jz, *limits[0]), torch.clamp(jy / jz, *limits[1])
    zero = torch.zeros_like(z)
    jacobian = torch.stack([fx / jz, zero, -fx * rx / jz, zero, fy / jz, -fy * ry / jz], dim=-1).reshape(-1, 2, 3)
    both = jacobian @ rotation
    plain = both @ cov3d @ both.transpose(1, 2)
    xy = scale_gradient(plain[:, 0, 1], flaws.cov2d_xy)
    xx, yy = plain[:, 0, 0] + rules.eps2d, plain[:, 1, 1] + rules.eps2d
    determinants = xx * yy - xy * xy
    conic_b = rules.conic_b * scale_gradient(-xy / determinants, flaws.conic_b)
    conics = torch.stack([yy / determinants, conic_b, xx / determinants], dim=-1)
    opacities = torch.sigmoid(opacities) if rules.opacity_sigmoid else opacities
    if rules.antialiased:
        opacities = opacities * torch.sqrt(torch.clamp((plain[:, 0, 0] * plain[:, 1, 1] - xy * xy) / determinants, min=1e-30))
    with torch.no_grad():
        level = 2 * torch.log(torch.clamp(opacities / max(rules.cutoff, FAINT), min=1.0)) + 1e-3
        extents = torch.sqrt(level[:, None] * torch.stack([xx, yy], dim=-1))
    return Ellipses(ids, means2d, conics, opacities, colors_of(means, sh, camera, rules, flaws), extents)


def blending_order(in_camera: Tensor, world_z: Tensor, rules: Rules) -> Tensor:
    """[n] int64 permutation of Gaussians at [n,3] in camera space; world_z [n]."""
    count = len(in_camera)
    if rules.order in ("index", "reversed_index"):
        order = torch.arange(count)
        return order.flip(0) if rules.order == "reversed_index" else order
    distance = torch.linalg.vector_norm(in_camera, dim=-1)
    keys = {"depth": in_camera[:, 2], "distance": distance, "world_z": world_z}[rules.sort_key]
    if rules.depth_ties == "reversed_index":
        order = count - 1 - torch.argsort(keys.flip(0), stable=True)
    else:
        order = torch.argsort(keys, stable=True)
    return order.flip(0) if rules.order == "back_to_front" else order


# ---------------------------------------------------------------- blending
def alphas_of(opacities: Tensor, powers: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """(alpha [n,P] before the stopping rule, raw alpha [n,P]) from opacities [n] and powers [n,P].

    The value is the clamped one; its two derivatives are attached by hand, since each may follow its own mode.
    """
    with torch.no_grad():
        gauss = torch.exp(powers)
        raw = opacities[:, None] * gauss
        value = torch.clamp(raw, max=rules.alpha_max)
        clamped = raw > rules.alpha_max
        slopes = {"exact": (0.0, 0.0), "straight_through": (gauss, raw),
                  "straight_through_clamped": (value / opacities[:, None], value)}
        by_opacity = torch.where(clamped, slopes[rules.opacity_mode][0], gauss)
        by_power = torch.where(clamped, slopes[rules.power_mode][1], raw)
    alpha = value + by_opacity * (opacities - opacities.detach())[:, None] + by_power * (powers - powers.detach())
    if rules.smooth_cutoff:
        return fade(alpha, RasterConfig(cutoff=rules.cutoff, smooth_cutoff=True)), raw
    return torch.where(alpha >= rules.cutoff, alpha, 0.0), raw


def blend(e: Ellipses, rows: Tensor, pixels: Tensor, background: Tensor, rules: Rules, flaws: Flaws, margin: float
          ) -> tuple[Tensor, Tensor, Tensor]:
    """(colours [P,3], safe [P], clamped [P]) of the ellipses `rows` at pixels [P,2]."""
    dx, dy = (pixels - e.means2d[rows][:, None]).unbind(-1)
    a, b, c = (e.conics[rows, i, None] for i in range(3))
    powers = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
    alphas, raw = alphas_of(e.opacities[rows], powers, rules)
    after = torch.cumprod(1 - alphas.detach(), dim=0)
    before = torch.cat([torch.ones_like(after[:1]), after[:-1]])
    tested = before if rules.stop_after else after
    going = tested >= rules.transmittance_min
    alphas = torch.where(going, alphas, 0.0)
    after = torch.cumprod(1 - alphas, dim=0)
    before = torch.cat([torch.ones_like(after[:1]), after[:-1]])
    last = after[-1] if len(after) else pixels.new_ones(len(pixels))
    shade = scale_gradient(last, flaws.background_term)
    share = {"once": shade, "never": 0.0 * shade, "twice": 2.0 * shade, "unweighted": torch.ones_like(shade)}[rules.background]
    colors = (scale_gradient(before, flaws.occlusion_term) * alphas).T @ e.colors[rows] + share[:, None] * background
    with torch.no_grad():
        close = (raw / max(rules.cutoff, FAINT) - 1).abs() < margin if rules.cutoff else torch.zeros_like(going)
        close |= (raw / rules.alpha_max - 1).abs() < margin if rules.alpha_max < 1 else False
        if rules.transmittance_min:
            close |= (tested / rules.transmittance_min - 1).abs() < 10 * margin
        if rules.footprint < 1e3:
            close |= (-2 * powers > (0.97 * rules.footprint) ** 2) & (raw >= rules.cutoff)
        return colors, ~close.any(0), (raw > rules.alpha_max).any(0)


def draw(probe: Probe, rules: Rules, flaws: Flaws | None = None, tensors: dict[str, Tensor] | None = None,
         margin: float = 1e-6) -> Picture:
    """The probe's picture; differentiable in `tensors` where they are given (the probe's own otherwise).

    `margin` is the relative distance to a threshold below which a pixel is not safe.
    """
    tensors, flaws = tensors or probe.tensors(), flaws or Flaws()
    camera = probe.camera
    e = ellipses_of(tensors, camera, rules, flaws)
    image = torch.zeros(camera.height, camera.width, 3, dtype=torch.float64)
    safe, clamped = torch.ones(2, camera.height, camera.width, dtype=torch.bool)
    parts = []
    for left, top, right, bottom, rows in _windows(e, camera):
        y, x = torch.meshgrid(torch.arange(top, bottom) + rules.pixel_center, torch.arange(left, right) + rules.pixel_center,
                              indexing="ij")
        pixels = torch.stack([x, y], dim=-1).reshape(-1, 2).double()
        colors, sound, hot = blend(e, rows, pixels, tensors["background"], rules, flaws, margin)
        shape = (bottom - top, right - left)
        parts.append(((slice(top, bottom), slice(left, right)), colors.reshape(*shape, 3)))
        safe[top:bottom, left:right] = sound.reshape(shape)
        clamped[top:bottom, left:right] = hot.reshape(shape)
    for where, colors in parts:
        image[where] = colors
    flipped = {"upright": (), "rows": (0,), "columns": (1,), "both": (0, 1)}[rules.orientation]
    return Picture(image.flip(flipped), safe.flip(flipped), clamped.flip(flipped), e)


def _windows(e: Ellipses, camera: Camera) -> Iterator[tuple[int, int, int, int, Tensor]]:
    """(left, top, right, bottom, rows of the ellipses that may reach it): the whole picture, or its tiles."""
    if len(e.ids) * camera.width * camera.height <= DENSE_PAIRS:
        yield 0, 0, camera.width, camera.height, torch.arange(len(e.ids))
        return
    low, high = e.means2d.detach() - e.extents - 1, e.means2d.detach() + e.extents + 1
    for top in range(0, camera.height, TILE_SIZE):
        for left in range(0, camera.width, TILE_SIZE):
            right, bottom = min(left + TILE_SIZE, camera.width), min(top + TILE_SIZE, camera.height)
            reach = (low[:, 0] < right) & (high[:, 0] > left) & (low[:, 1] < bottom) & (high[:, 1] > top)
            yield left, top, right, bottom, torch.nonzero(reach).flatten()


def gradients(probe: Probe, cotangent: Tensor, rules: Rules, flaws: Flaws | None = None) -> dict[str, Tensor]:
    """Gradients of sum(cotangent * image) by parameter; cotangent [H,W,3]."""
    leaves = probe.leaves()
    image = draw(probe, rules, flaws, leaves).image
    found = torch.autograd.grad((image * cotangent).sum(), list(leaves.values()), allow_unused=True)
    return {name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in zip(leaves.items(), found, strict=True)}
