"""Every way to look at the model. A mode of app.messages.MODES is one function here, marked with the mode's name.

It takes a Sight and returns a Picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from app.colormaps import LARGEST, auto_range, colorize
from app.data.scene import View
from app.engine.drawn import Drawn, drawn
from app.engine.foreseen import candidate_colors
from app.engine.model import Model
from app.engine.photographs import Photographs, same_pose
from app.inspection.densification_results import KINDS
from app.messages import Legend, ViewMode, ViewRequest
from app.training.arrays import host
from app.training.quantities.registry import Reading, Unreadable
from render.config import RasterConfig
from render.pipeline import contributors
from render.types import Camera, RenderOutput

DEPTH_EPS = 1e-10
"""Depth = sum(w z) / max(alpha, DEPTH_EPS): no division by zero where nothing is, no bias where something is."""
SURFACE_ALPHA = 0.5
"""A pixel this opaque counts for the automatic range of depths."""
EMPTY_ALPHA = 0.02
"""A pixel less opaque than this shows no depth."""
BACKDROP = (0.055, 0.06, 0.07)
"""Behind false colours and outside a photograph: dark, and none of the maps' own colours."""
ELLIPSOID_SIGMAS = 2.0
SURROUNDS = 3.0
"""A Gaussian nearer to the camera than so many of its largest standard deviations is not drawn as an ellipsoid."""
POINT_SIGMAS = 2.0
POINT_EPS2D = 0.5
"""A point is a Gaussian of no size: the low-pass [px^2] alone makes it POINT_SIGMAS * sqrt(0.5) = 1.4 px in radius."""
SOLID_ALPHA = 0.99


@dataclass
class Sight:
    """What a mode draws from. `camera` may be smaller than the requested one; both see the same."""

    model: Model
    request: ViewRequest
    camera: Camera
    photographs: Photographs = field(default_factory=Photographs)
    last_range: tuple[float, float] | None = None   # of the picture before, if it showed the same quantity

    @cached_property
    def drawn(self) -> Drawn:
        """What the picture is made of: all that neither the user hides nor the filter keeps out."""
        return drawn(self.model, self.request)

    def reading(self, name: str) -> Reading:
        """A quantity's values. Raises Unreadable, with a sentence for the user."""
        return self.model.reading(name, self.request.camera)

    @property
    def rules(self) -> RasterConfig:
        return self.model.options.raster

    def render(self, **named: Any) -> RenderOutput:
        """What is drawn of the model at this camera; keywords as Model.render."""
        return self.model.render(self.camera, **{"raster": self.rules, "gaussians": self.drawn.gaussians, **named})


@dataclass
class Picture:
    rgb: np.ndarray               # [h,w,3] float32
    legend: Legend | None = None
    note: str = ""
    legend_beside: Legend | None = None   # of the right part, where there are two


MODES: dict[ViewMode, Callable[[Sight], Picture]] = {}
"""The drawing function of every mode of app.messages.MODES."""


def draws(mode: ViewMode) -> Callable[[Callable[[Sight], Picture]], Callable[[Sight], Picture]]:
    """Enters the function below as the one that draws a mode."""
    def enter(function: Callable[[Sight], Picture]) -> Callable[[Sight], Picture]:
        MODES[mode] = function
        return function

    return enter


@draws("color")
def color(sight: Sight) -> Picture:
    """What training compares with the photographs."""
    return Picture(_image(sight.render()))


@draws("depth")
def depth(sight: Sight) -> Picture:
    """Expected camera z of what is visible: sum(w z) / max(alpha, eps) (N13)."""
    output = sight.render(depth=True)
    assert output.depths is not None
    alpha = 1.0 - host(output.transmittances)
    z = host(output.depths) / np.maximum(alpha, DEPTH_EPS)
    return _false_color(sight, z, alpha > EMPTY_ALPHA, "depth", "world units", "turbo",
                        sample=z[alpha > SURFACE_ALPHA])


@draws("transmittance")
def transmittance(sight: Sight) -> Picture:
    """Light from behind that still reaches the camera."""
    values = host(sight.render().transmittances)
    return _false_color(sight, values, None, "transmittance", "", "viridis", fixed=(0.0, 1.0))


def _compared(sight: Sight, what: str, label: str, colors: str, *, signed: bool) -> Picture:
    """Mean over channels of render - photograph, `signed` or not, where the camera is a scene view's."""
    image = _image(sight.render())
    photograph = _photograph(sight)
    if photograph is None:
        return Picture(_dimmed(image), note=_NO_PHOTOGRAPH.format(what))
    truth, inside = photograph
    difference = np.clip(image, 0.0, 1.0) - truth
    values = (difference if signed else np.abs(difference)).mean(2)
    return _false_color(sight, values, inside, label, "of full scale", colors, sample=values[inside], signed=signed)


@draws("error")
def error(sight: Sight) -> Picture:
    """Mean over channels of |render - photograph|, where the camera is a scene view's."""
    return _compared(sight, "an error", "|render - photograph|", "turbo", signed=False)


@draws("difference")
def difference(sight: Sight) -> Picture:
    """render - photograph with its sign, mean over channels."""
    return _compared(sight, "a difference", "render - photograph", "coolwarm", signed=True)


@draws("truth")
def truth(sight: Sight) -> Picture:
    """The photograph that training compares with."""
    photograph = _photograph(sight)
    if photograph is None:
        image = _image(sight.render())
        return Picture(_dimmed(image), note=_NO_PHOTOGRAPH.format("a photograph"))
    picture, inside = photograph
    return Picture(np.where(inside[..., None], picture, np.array(BACKDROP, np.float32)))


@draws("contributors")
def contributors_per_pixel(sight: Sight) -> Picture:
    """How many Gaussians were blended at each pixel."""
    output = sight.render()
    counted = contributors(output, sight.camera, sight.rules, sight.model.backend)
    counts = host(counted).astype(np.float32)
    return _false_color(sight, counts, counts > 0, "contributors per pixel", "Gaussians", "viridis",
                        sample=counts[counts > 0])


@draws("ellipsoids")
def ellipsoids(sight: Sight) -> Picture:
    """Every Gaussian as a solid ellipse at ELLIPSOID_SIGMAS standard deviations, shaded like a sphere."""
    return _solid(sight, sigmas=ELLIPSOID_SIGMAS, shaded=True)


@draws("points")
def points(sight: Sight) -> Picture:
    """Every Gaussian's mean as a dot of its colour."""
    return _solid(sight, sigmas=POINT_SIGMAS, shaded=False, eps2d=POINT_EPS2D,
                  scales=sight.drawn.gaussians.scales * 1e-6)


@draws("heatmap")
def heatmap(sight: Sight) -> Picture:
    """A number per Gaussian as its colour, composited with the true opacities."""
    try:
        reading = sight.reading(sight.request.quantity)
    except Unreadable as refusal:
        return Picture(_dimmed(_image(sight.render())), note=str(refusal))
    probe, unseen = reading.probe, host(reading.unseen)
    values = np.where(unseen, np.float32(np.nan), host(reading.values))
    log = (probe.log if sight.request.log_scale is None else sight.request.log_scale) and not probe.signed
    lo, hi = _range(sight, values, log=log, signed=probe.signed)
    colormap = "coolwarm" if probe.signed else sight.request.colormap or "viridis"
    if log:   # what is 0 lies at the lower end; only what is unknown is grey
        values = np.where(values <= 0.0, np.float32(lo), values)
    colors = torch.from_numpy(colorize(values, colormap, lo, hi, log)).to(sight.model.background.device)
    output = sight.render(colors=colors, background=_backdrop(sight))
    legend = Legend(probe.label, probe.unit, lo, hi, colormap, log, bool(unseen.any()))
    return Picture(_image(output), legend, _refusal(sight, log))


@draws("candidates")
def candidates(sight: Sight) -> Picture:
    """Who would take part in the next densification, and how; all others in dim grey."""
    plan = sight.model.candidates()
    if plan is None:
        return Picture(_dimmed(_image(sight.render())), note="Nothing densifies here: a PLY does not train.")
    gaussians = sight.drawn.gaussians
    colors, opacities = candidate_colors(plan, gaussians)
    if sight.drawn.shown is not None:
        opacities = torch.where(sight.drawn.shown, opacities, 0.0)
    output = sight.render(gaussians=replace(gaussians, opacities=opacities), colors=colors, background=_backdrop(sight))
    entries = tuple((kind.label, kind.color, int(getattr(plan, kind.name).sum())) for kind in KINDS)
    legend = Legend(f"if densified now, as of iteration {sight.model.planned_at:,}", "", 0.0, 1.0, "viridis",
                    entries=tuple(entry for entry in entries if entry[2]))
    return Picture(_image(output), legend if legend.entries else None, plan.problem and f"Nothing would happen: {plan.problem}")


def to_rgba(rgb: np.ndarray, width: int, height: int) -> np.ndarray:
    """C-contiguous float32 [height,width,4], alpha 1, in [0,1]; a smaller picture is enlarged bilinearly (G06)."""
    if rgb.shape[:2] != (height, width):
        chw = torch.from_numpy(np.ascontiguousarray(rgb)).permute(2, 0, 1)[None]
        rgb = torch.nn.functional.interpolate(chw, (height, width), mode="bilinear")[0].permute(1, 2, 0).numpy()
    rgba = np.ones((height, width, 4), dtype=np.float32)
    np.clip(rgb, 0.0, 1.0, out=rgba[..., :3])
    # Not a number would reach the graphics driver as it is.
    np.nan_to_num(rgba, copy=False, nan=0.0)
    return rgba


_NO_PHOTOGRAPH = "There is {} only at a photograph's camera; press [ or ] to go to one."


def _image(output: RenderOutput) -> np.ndarray:
    return host(output.colors)


def _backdrop(sight: Sight) -> torch.Tensor:
    return torch.tensor(BACKDROP, device=sight.model.background.device)


def _dimmed(image: np.ndarray) -> np.ndarray:
    """Grey and dark: a picture that stands in for the one asked for must not pass for it."""
    grey = np.clip(image, 0.0, 1.0).mean(2, keepdims=True) * np.float32(0.35)
    return np.broadcast_to(grey, image.shape)


def scene_view(model: Model, request: ViewRequest) -> View | None:
    """The scene view whose camera the request has (of whatever size and crop), if any."""
    views = model.scene.views if model.scene is not None else []
    if request.view_index is None or not 0 <= request.view_index < len(views):
        return None
    view = views[request.view_index]
    return view if same_pose(view.camera, request.camera) else None


def _photograph(sight: Sight) -> tuple[np.ndarray, np.ndarray] | None:
    view = scene_view(sight.model, sight.request)
    if view is None:
        return None
    return sight.photographs.at(view, sight.camera, sight.model.background)


def _range(sight: Sight, values: np.ndarray, *, log: bool = False, signed: bool = False) -> tuple[float, float]:
    """The requested range, else an automatic one that follows the values without flickering."""
    wanted = sight.request.value_range
    if wanted is not None and not _refusal(sight, log):
        return wanted
    lo, hi = auto_range(values, log=log, signed=signed)
    if sight.last_range is not None and (not log or sight.last_range[0] > 0.0):
        old_lo, old_hi = sight.last_range
        lo, hi = old_lo + 0.3 * (lo - old_lo), old_hi + 0.3 * (hi - old_hi)
    return lo, hi


def _refusal(sight: Sight, log: bool) -> str:
    """Why the requested range cannot be shown, in one sentence; empty where it can, or none was requested."""
    wanted = sight.request.value_range
    if wanted is None:
        return ""
    if not -LARGEST <= wanted[0] < wanted[1] <= LARGEST:
        return f"{wanted[0]:g} to {wanted[1]:g} is no range of colours, so it is automatic."
    if log and wanted[0] <= 0.0:
        return f"A logarithmic scale cannot begin at {wanted[0]:g}: choose a range above 0, or the linear scale."
    return ""


def _false_color(sight: Sight, values: np.ndarray, known: np.ndarray | None, label: str, unit: str, colormap: str, *,
                 fixed: tuple[float, float] | None = None, sample: np.ndarray | None = None, signed: bool = False) -> Picture:
    """Values per pixel as colours; pixels that are not `known` show the backdrop."""
    log = bool(sight.request.log_scale) and not signed
    if fixed is not None and sight.request.value_range is None and not log:
        lo, hi = fixed
    else:
        lo, hi = _range(sight, values if sample is None else sample, log=log, signed=signed)
    rgb = colorize(values, colormap, lo, hi, log)
    if known is not None:
        rgb[~known] = BACKDROP
    return Picture(rgb, Legend(label, unit, lo, hi, colormap, log), _refusal(sight, log))


def _solid(sight: Sight, *, sigmas: float, shaded: bool, eps2d: float | None = None,
           scales: torch.Tensor | None = None) -> Picture:
    """Solid shapes from the compositor itself.

    Opacities are so high that alpha is clamped to SOLID_ALPHA all over the ellipse of `sigmas` and falls below the
    cutoff right outside it; transmittance_min stops behind the first one.
    """
    raster = replace(sight.rules, alpha_max=SOLID_ALPHA, cutoff=SOLID_ALPHA * (1.0 - 1e-3),
                     transmittance_min=0.5 * (1.0 - SOLID_ALPHA), smooth_cutoff=False, antialiased=False,
                     eps2d=sight.rules.eps2d if eps2d is None else eps2d)
    gaussians = sight.drawn.gaussians
    visible = gaussians.opacities >= sight.rules.cutoff   # what training cannot see is not drawn either
    if shaded:   # one that surrounds the camera would be all there is to see, though training sees through it
        visible = visible & (_distances(gaussians.means, sight.camera) > SURROUNDS * gaussians.scales.amax(dim=1))
    opacities = torch.where(visible, raster.cutoff * math.exp(0.5 * sigmas * sigmas), 0.0).to(gaussians.opacities)
    solid = replace(gaussians, opacities=opacities, scales=gaussians.scales if scales is None else scales)
    output = sight.render(gaussians=solid, raster=raster, background=_backdrop(sight))
    image = _image(output)
    if not shaded:
        return Picture(image)
    return Picture(image * _sphere_shade(output, sigmas)[..., None])


def _distances(means: torch.Tensor, camera: Camera) -> torch.Tensor:
    """[N] world units from the camera."""
    center = torch.as_tensor(camera.center, dtype=means.dtype, device=means.device)
    return torch.linalg.vector_norm(means - center, dim=1)


def _sphere_shade(output: RenderOutput, sigmas: float) -> np.ndarray:
    """[h,w] brightness: each ellipse as a sphere lit from the camera, 1 in its middle and 0.35 at its rim."""
    last = host(output.last_ids)
    hit = last >= 0
    ids = host(output.bins.flatten_ids)[last[hit]]
    rows, columns = np.nonzero(hit)
    means, conics = host(output.projected.means2d)[ids], host(output.projected.conics)[ids]
    dx, dy = columns + 0.5 - means[:, 0], rows + 0.5 - means[:, 1]
    q = conics[:, 0] * dx * dx + 2.0 * conics[:, 1] * dx * dy + conics[:, 2] * dy * dy
    shade = np.ones(last.shape, dtype=np.float32)
    shade[hit] = 0.35 + 0.65 * np.sqrt(np.clip(1.0 - q / (sigmas * sigmas), 0.0, 1.0))
    return shade

