"""One Gaussian's part in the picture with every decision held as it is at x: who blends where, who is clamped, the order.

At a pixel, with T the transmittance in front of the Gaussian and S the colour of all that is behind it, seen with nothing
in front (composite.py's sum over m > k, divided by what reaches it),

    color = prefix + T (alpha c + (1 - alpha) S)                                                                   (1)

and prefix, T and S do not change when only this Gaussian moves. So a finite difference of (1) is that of the picture
between kinks, and its gradient by autograd, through the reference's project, sh and clamp_alpha, is the reference's.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from app.inspection.kinks import projection_clamped
from app.inspection.local_picture import Evaluation, LocalPicture
from render.config import RasterConfig
from render.reference.activate import activate
from render.reference.project import project
from render.reference.rasterize import assemble, blend, clamp_alpha, fade, tile_lists, tile_pixels
from render.reference.sh import sh_basis, view_directions
from render.types import PARAM_GROUPS, Camera, GaussianParams

EVERYWHERE = 1e-9
"""The cutoff and near plane of a projection that culls nobody, so that the footprint of x holds."""
UNLIMITED = 1e6
"""clamp_fov of a projection whose Jacobian is not clamped."""


@dataclass
class FrozenGaussian:
    """Pixel arrays are those of the region at which the Gaussian blends at x, [P]."""

    local: LocalPicture
    camera: Camera
    raster: RasterConfig         # for the projection
    row: GaussianParams          # of this Gaussian alone
    rows: Tensor                 # [P] pixel row in the region
    columns: Tensor              # [P]
    prefix: Tensor               # [P,3]
    transmittances: Tensor       # [P] T
    behind: Tensor               # [P,3] S
    raw: Tensor                  # [P] opacity * exp(-q/2) at x
    colored: Tensor              # [3] bool: the channel is above 0 at x
    signs: Tensor | None         # [H',W',3] of picture minus photograph, for L1
    exact: bool                  # the projection's decisions can be held too

    def _alpha(self, row: GaussianParams, *, autograd: bool) -> tuple[Tensor, Tensor]:
        """(alpha [P], colour [3]); for finite differences a clamped alpha moves as its gradient mode claims."""
        rules = self.local.base.problem.raster
        gaussian = activate(row)
        projected = project(gaussian.means, gaussian.quats, gaussian.scales, gaussian.opacities, self.camera, self.raster)
        dx = self.columns.double() + 0.5 - projected.means2d[0, 0]
        dy = self.rows.double() + 0.5 - projected.means2d[0, 1]
        a, b, c = projected.conics[0]
        opacity = gaussian.opacities[0] * projected.compensations[0]
        raw = opacity * torch.exp(-(0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy))
        alpha = clamp_alpha(raw, rules) if autograd else self._held(raw, rules)
        alpha = fade(alpha, rules) if rules.smooth_cutoff else alpha
        degree = self.local.base.problem.sh_degree
        basis = sh_basis(view_directions(gaussian.means, self.camera), degree)
        color = 0.5 + torch.einsum("nk,nkc->nc", basis, gaussian.sh[:, :(degree + 1) ** 2])[0]
        return alpha, torch.where(self.colored, color, 0.0)

    def _held(self, raw: Tensor, rules: RasterConfig) -> Tensor:
        clamped = self.raw > rules.alpha_max
        beyond = {"exact": torch.full_like(raw, rules.alpha_max),
                  "straight_through": raw - self.raw + rules.alpha_max,
                  "straight_through_clamped": raw * (rules.alpha_max / self.raw)}[rules.alpha_gradient]
        return torch.where(clamped, beyond, raw)

    def _loss(self, row: GaussianParams, *, autograd: bool) -> Tensor:
        alpha, color = self._alpha(row, autograd=autograd)
        alpha = alpha[:, None]
        pixels = self.prefix + self.transmittances[:, None] * (alpha * color + (1 - alpha) * self.behind)
        down, across = self.local.inner
        picture = self.local.surrounding.clone()
        picture[self.rows + down.start, self.columns + across.start] = pixels
        return self.local.loss.smooth(picture, self.signs)

    @torch.no_grad()
    def value(self, group: str, component: int, x: float) -> float:
        """The local loss with that entry at x and every decision held."""
        row = replace(self.row, **{group: getattr(self.row, group).clone()})
        getattr(row, group).view(-1)[component] = x
        return float(self._loss(row, autograd=False))

    def gradients(self) -> dict[str, Tensor]:
        """The reference's analytic gradient at x, in the alpha gradient mode of the rules, by group, flattened."""
        row = replace(self.row, **{name: getattr(self.row, name).clone() for name in PARAM_GROUPS}).requires_grad_()
        self._loss(row, autograd=True).backward()
        return {name: (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad).reshape(-1)
                for name, tensor in row.trained().items()}


def freeze(local: LocalPicture, base: Evaluation) -> Generator[None, None, FrozenGaussian]:
    """Hold what the evaluation at x decided. A bite of work a tile: yields between them."""
    problem, output = local.base.problem, base.output
    inputs = (output.projected, output.splat_opacities, output.bins, output.splat_colors)
    ids = output.bins.flatten_ids.long()
    starts = output.bins.tile_offsets.tolist()
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for tile, (mean, conic, opacity, color) in enumerate(tile_lists(*inputs)):
        mine = torch.nonzero(ids[starts[tile]:starts[tile + 1]] == local.place).flatten().tolist()
        pixels = tile_pixels(tile, local.camera, opacity)
        if mine:
            parts.append(_around(mine[0], mean, conic, opacity, color, pixels, problem.background, problem.raster))
            yield
        else:
            count = len(pixels)
            parts.append((pixels.new_zeros(count, 3), pixels.new_zeros(count), pixels.new_zeros(count, 3)))
    rows, columns = torch.nonzero(base.blended, as_tuple=True)
    prefix, transmittances, behind = (assemble(torch.stack(part), local.camera)[rows, columns]
                                      for part in zip(*parts, strict=True))
    limited = any(projection_clamped(local, base))
    raster = replace(problem.raster, cutoff=EVERYWHERE,
                     clamp_fov=problem.raster.clamp_fov if limited else UNLIMITED)
    camera = replace(local.camera, near=EVERYWHERE, far=1e300)
    own = slice(local.place, local.place + 1)
    row = GaussianParams(**{name: tensor[own].clone() for name, tensor in local.params.trained().items()},
                         uids=local.params.uids[own])
    return FrozenGaussian(local, camera, raster, row, rows, columns, prefix, transmittances, behind,
                          base.raw[rows, columns], output.splat_colors[local.place] > 0,
                          local.loss.signs(base.surrounding), exact=not limited)


def _around(n: int, means2d: Tensor, conics: Tensor, opacities: Tensor, colors: Tensor, pixels: Tensor, background: Tensor,
            config: RasterConfig) -> tuple[Tensor, Tensor, Tensor]:
    """(prefix [P,3], T [P], S [P,3]) of the n-th Gaussian of a tile's list, in which it blends; see (1)."""
    mixed = blend(means2d, conics, opacities, pixels, config)
    weights = mixed.weights
    after = (mixed.before[n] * (1 - mixed.alphas[n]))[:, None]
    behind = weights[n + 1:].T @ colors[n + 1:] + mixed.transmittance[:, None] * background
    return weights[:n].T @ colors[:n], mixed.before[n], behind / after
