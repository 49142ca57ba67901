"""What an audit speaks of: a probe scene, the rules a rasterizer follows, the flaws of its backward, a fault, the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from render.types import Camera

PARAMETERS = ("means", "quats", "scales", "opacities", "sh", "background")
"""The differentiable arguments of the audited function, in its order."""


MODES = ("alpha_max", "cutoff", "smooth_cutoff", "transmittance_min", "stop_rule", "eps2d", "antialiased", "footprint_sigmas",
         "sort_key", "depth_ties", "quats_normalized", "sh_degree", "color_clamp", "nearest_depth_drawn", "background_gradient")
"""What is measured beside the gradient mode; the names are those of the JSON report."""


class AuditError(ValueError):
    """The audit could not run; the message is one sentence."""


@dataclass(frozen=True)
class Probe:
    """A scene that is shown to the rasterizer: activated parameters, float64 on the CPU, and a camera."""

    name: str
    camera: Camera
    means: Tensor        # [N,3] world
    quats: Tensor        # [N,4] wxyz, unit unless the probe is about their length
    scales: Tensor       # [N,3] world units
    opacities: Tensor    # [N] in (0,1)
    sh: Tensor           # [N,K,3], K = (degree+1)^2
    background: Tensor   # [3]

    def tensors(self) -> dict[str, Tensor]:
        """The differentiable arguments by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def leaves(self) -> dict[str, Tensor]:
        """Copies of them that require gradients."""
        return {name: tensor.detach().clone().requires_grad_() for name, tensor in self.tensors().items()}


@dataclass(frozen=True)
class Rules:
    """How a rasterizer draws. The defaults are Splatscope's own; an audit finds out what stands here.

    The first group are modes, on which rasterizers may differ; the second are conventions that the interface fixes, so that
    any other value than the default is a fault.
    """

    alpha_max: float = 0.99              # 1 = alpha is not clamped
    opacity_mode: str = "exact"          # dalpha/dopacity where alpha is clamped
    power_mode: str = "exact"            # dalpha/dpower there
    cutoff: float = 1 / 255              # alpha below which nothing is blended; 0 = none
    smooth_cutoff: bool = False
    transmittance_min: float = 1e-4      # 0 = no early stop
    stop_after: bool = False             # whether the Gaussian that crosses transmittance_min is still blended
    eps2d: float = 0.3                   # px^2
    antialiased: bool = False
    footprint: float = math.inf          # sigmas beyond which a Gaussian may be left out
    sort_key: str = "depth"              # or "distance" from the camera, which is a mode; or "world_z"
    depth_ties: str = "index"            # who is in front: the lower index, or the "reversed_index"
    quats_normalized: bool = False       # whether the rasterizer normalises quaternions itself
    color_clamp: str = "zero"            # colours from SH: "zero" = max(0, .), "unit" = into [0,1], or "none"
    sh_degree: int = 3                   # bands that are used

    pixel_center: float = 0.5            # px
    scale_exp: bool = False              # exp is applied to the scales again
    opacity_sigmoid: bool = False        # sigmoid is applied to the opacities again
    quats: str = "wxyz"                  # or "xyzw", "conjugate"
    conic_b: float = 1.0                 # factor on the off-diagonal term of the conic
    principal_point: str = "honoured"    # or "centre", "centre_x", "centre_y", "mirrored"
    focal: str = "both"                  # or "fx", "fy", "mean", "swapped"
    viewmat: str = "world_to_camera"     # or "transposed", "inverse"
    order: str = "front_to_back"         # or "back_to_front", "index", "reversed_index"
    background: str = "once"             # or "never", "twice", "unweighted"
    orientation: str = "upright"         # or "rows", "columns", "both": flipped
    sh_direction: str = "outwards"       # from the camera to the mean; or "inwards", "camera_axes", "from_origin"


@dataclass(frozen=True)
class Flaws:
    """Mistakes in a backward whose forward is right: a factor of 1 (or False) is the right gradient."""

    conic_b: float = 1.0                 # on dL/d(off-diagonal term of the conic)
    cov2d_xy: float = 1.0                # on dL/d(off-diagonal term of the 2D covariance)
    cov3d_off: float = 1.0               # on dL/d(off-diagonal terms of the 3D covariance)
    background_term: float = 1.0         # on the background's share of dL/dalpha
    occlusion_term: float = 1.0          # on the share of dL/dalpha of what lies behind
    sh_direction: float = 1.0            # on what reaches the means through the viewing direction
    jacobian: float = 1.0                # on what reaches the means through the projection's Jacobian
    means2d: float = 1.0                 # on dL/d(projected mean)

    def deviating(self) -> dict[str, float]:
        """The fields that are wrong, by name."""
        return {name: value for name, value in vars(self).items() if value != 1.0}


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, with its cause."""

    id: str
    parameter: str          # "image", or the parameter whose gradient shows it most
    relative_error: float   # max|got - right| / max|right|
    explanation: str        # one sentence

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "parameter": self.parameter, "relative_error": number(self.relative_error),
                "explanation": self.explanation}


@dataclass
class Comparison:
    """One scene in both rasterizers, under the detected rules."""

    name: str
    gaussians: int
    width: int
    height: int
    image_error: float                    # max|got - reference| / max|reference|
    gradient_errors: dict[str, float | None]  # the same per parameter; None = the rasterizer returns no gradient for it
    set_aside: float                      # share of pixels so near to a threshold that rounding decides
    image: Tensor                         # [H,W,3] of the rasterizer
    reference: Tensor                     # [H,W,3]


@dataclass
class Speed:
    gaussians: int
    width: int
    height: int
    forward_ms: float
    backward_ms: float


@dataclass
class Report:
    """All that an audit found."""

    target: str
    dtype: str
    device: str
    rules: Rules = field(default_factory=Rules)
    gradient_mode: str = "unknown"        # exact, straight_through, straight_through_clamped, none (no clamp), "mixed: ..."
    modes: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(MODES))
    """What was measured, ready for JSON; None = could not be measured."""
    precision: str = "float64"            # of the numbers, whatever their type says
    image_tolerance: float = 1e-7
    gradient_tolerance: float = 1e-6
    faults: list[Fault] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    speed: list[Speed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, id: str, parameter: str, relative_error: float, explanation: str) -> None:
        """Note a fault; a second one of the same id changes nothing."""
        if all(fault.id != id for fault in self.faults):
            self.faults.append(Fault(id, parameter, relative_error, explanation))

    @property
    def exit_code(self) -> int:
        """0 without a fault, 1 with one."""
        return 1 if self.faults else 0


def relative_error(got: Tensor, right: Tensor) -> float:
    """max|got - right| / max|right|; infinite where `got` is not finite, 0 where both are 0."""
    if not bool(torch.isfinite(got).all()):
        return math.inf
    error, scale = float((got - right).abs().max()), float(right.abs().max())
    return error / scale if scale > 0 else (0.0 if error == 0 else math.inf)


def number(value: float | None) -> float | None:
    """A float that JSON can hold: 4 digits, None where it is not finite."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None
