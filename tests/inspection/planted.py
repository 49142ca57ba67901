"""Rasterizers with a known fault: the source of the plain one with one place changed."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from app.inspection.audit import plain

SOURCE = inspect.getsource(plain)


class ScaledGradient(torch.autograd.Function):
    """x, its gradient times a factor (a tensor that broadcasts, or a number)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: Any) -> torch.Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *v: torch.Tensor) -> Any:
        return v[0] * ctx.factor, None


def planted(*changes: tuple[str, str]) -> Callable[..., torch.Tensor]:
    """plain.render with each `old` replaced by `new`; every `old` must be there."""
    source = SOURCE
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    module = types.ModuleType("planted")
    module.__dict__["scaled"] = ScaledGradient.apply
    exec(compile(source, "planted.py", "exec"), module.__dict__)
    return module.render


DETACHED_DIRECTION = ("offsets = means - camera_center", "offsets = means.detach() - camera_center")
HALVED_CONIC = ("a, b, c = conics[:, 0, 0, None], conics[:, 0, 1, None]",
                "a, b, c = conics[:, 0, 0, None], scaled(conics[:, 0, 1, None], 0.5)")
NO_BACKGROUND_TERM = ("rest[:, None] * background", "rest.detach()[:, None] * background")
NO_CX = ("fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]", "fx, fy, cx, cy = K[0, 0], K[1, 1], width / 2, height / 2")
BACK_TO_FRONT = ("torch.argsort(depths, stable=True)", "torch.argsort(-depths, stable=True)")
XYZW = ("w, x, y, z = (quats", "x, y, z, w = (quats")

LIMITLESS = (
    ("ALPHA_MAX = 0.99", "ALPHA_MAX = 1.0"), ("CUTOFF = 1.0 / 255.0", "CUTOFF = 0.0"),
    ("TRANSMITTANCE_MIN = 1e-4", "TRANSMITTANCE_MIN = 0.0"),
    ("torch.minimum(torch.maximum(x / z, -cx / fx - margin_x), (width - cx) / fx + margin_x)", "x / z"),
    ("torch.minimum(torch.maximum(y / z, -cy / fy - margin_y), (height - cy) / fy + margin_y)", "y / z"),
    ("quats / quats.norm(dim=-1, keepdim=True)", "quats"))
"""The shortest rasterizer that one may write: nothing is clamped, cut off or stopped."""

FAULTS: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "halved off-diagonal conic gradient": ((HALVED_CONIC,), "conic_off_diagonal"),
    "halved off-diagonal conic in the exponent": (
        (("2 * b * dx * dy + c * dy", "b * dx * dy + c * dy"),), "conic_off_diagonal"),
    "background missing in dL/dalpha": ((NO_BACKGROUND_TERM,), "background_term"),
    "background blended twice": ((("rest[:, None] * background", "2 * rest[:, None] * background"),), "background_blend"),
    "background never blended": ((("rest[:, None] * background", "0 * rest[:, None] * background"),), "background_blend"),
    "background not weighted": ((("+ rest[:, None] * background", "+ background + 0 * rest[:, None]"),), "background_blend"),
    "SH direction detached": ((DETACHED_DIRECTION,), "sh_direction_detached"),
    "SH direction from the origin": ((("offsets = means - camera_center", "offsets = means"),), "sh_direction"),
    "principal point ignored": ((NO_CX,), "principal_point"),
    "cx ignored": ((("cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]", "cx, cy = K[0, 0], K[1, 1], width / 2, K[1, 2]"),),
                   "principal_point"),
    "fx for both axes": ((("fx, fy, cx, cy = K[0, 0], K[1, 1]", "fx, fy, cx, cy = K[0, 0], K[0, 0]"),), "focal"),
    "back to front": ((BACK_TO_FRONT,), "sort_order"),
    "not sorted": ((("torch.argsort(depths, stable=True)", "torch.arange(len(depths))"),), "sort_order"),
    "sorted by x": ((("torch.argsort(depths, stable=True)", "torch.argsort(means.detach()[:, 0], stable=True)"),),
                    "sort_order"),
    "sorted by the world's z": ((("torch.argsort(depths, stable=True)", "torch.argsort(means.detach()[:, 2], stable=True)"),),
                                "sort_order"),
    "quaternions as xyzw": ((XYZW,), "quat_convention"),
    "rotation transposed": ((("axes = rotation_matrices(quats)", "axes = rotation_matrices(quats).transpose(1, 2)"),),
                            "quat_convention"),
    "no gradient of the normalisation": (
        (("quats / quats.norm(dim=-1, keepdim=True)", "quats / quats.norm(dim=-1, keepdim=True).detach()"),),
        "quat_normalization_gradient"),
    "viewmat transposed": ((("rotation, translation = viewmat[:3, :3], viewmat[:3, 3]",
                             "rotation, translation = viewmat[:3, :3].T, viewmat[:3, 3]"),
                            ("depths = (means.detach() @ viewmat[2, :3])", "depths = (means.detach() @ viewmat[:3, 2])"),
                            ("-viewmat[:3, :3].T @", "-viewmat[:3, :3] @")), "viewmat"),
    "opacity gradient of the logit": (
        (("raw = opacities[:, None] * gauss",
          "raw = scaled(opacities, (opacities * (1 - opacities)).detach())[:, None] * gauss"),), "opacity_gradient"),
    "opacity gradient halved": ((("raw = opacities[:, None]", "raw = scaled(opacities, 0.5)[:, None]"),), "opacity_gradient"),
    "scale gradient of the logarithm": (
        (("* scales[:, None, :]", "* scaled(scales, scales.detach())[:, None, :]"),), "scale_gradient"),
    "scales activated twice": ((("* scales[:, None, :]", "* torch.exp(scales)[:, None, :]"),), "scale_activation"),
    "opacities activated twice": ((("raw = opacities[:, None]", "raw = torch.sigmoid(opacities)[:, None]"),),
                                  "opacity_activation"),
    "occlusion missing in dL/dalpha": ((("before * alphas, colors", "before.detach() * alphas, colors"),), "occlusion_term"),
    "Jacobian detached": ((("flat = jacobian @", "flat = jacobian.detach() @"),), "jacobian_detached"),
    "2D mean gradient doubled": ((("return centers, torch", "return scaled(centers, 2.0), torch"),), "means2d_gradient"),
    "colours get no gradient above degree 0": (
        (("sh).sum(dim=1))", "torch.cat([sh[:, :1], sh[:, 1:].detach()], 1)).sum(dim=1))"),), "gradient_sh"),
    "upside down": ((("return image.reshape(height, width, 3)", "return image.reshape(height, width, 3).flip(0)"),),
                    "image_orientation"),
    "camera rotation transposed in the covariance": (
        (("flat = jacobian @ rotation @", "flat = jacobian @ rotation.T @"),), "covariance"),
    "pixels at their corners": ((("+ 0.5\n    columns", "+ 0.0\n    columns"), ("device=means.device) + 0.5\n    pixels",
                                 "device=means.device) + 0.0\n    pixels")), "pixel_center"),
    "cut at 2 sigma": ((("alphas = torch.where(alphas >= CUTOFF, alphas, 0.0)",
                         "alphas = torch.where((alphas >= CUTOFF) & (gauss > math.exp(-2.0)), alphas, 0.0)"),), "footprint"),
    "drawn behind the camera": ((("order = order[depths[order] > NEAR]", "order = order[depths[order].abs() > NEAR]"),),
                                "behind_camera"),
    "centres outside the picture left out": (
        (("centers, conics, depths = project(means, quats, scales, viewmat, K, width, height)",
          "centers, conics, depths = project(means, quats, scales, viewmat, K, width, height)\n"
          "    opacities = opacities * ((centers > 0) & (centers < torch.tensor([width, height]))).all(1)"),),
        "offscreen_culling"),
}
"""What is changed, and the id that has to be found: this one and no other."""

TOGETHER = [
    ("cx ignored", "fx for both axes", "viewmat transposed", "SH direction from the origin", "background not weighted"),
    ("rotation transposed", "drawn behind the camera", "centres outside the picture left out", "opacity gradient halved",
     "scale gradient of the logarithm", "colours get no gradient above degree 0"),
    ("scales activated twice", "background never blended"),
    ("opacities activated twice", "pixels at their corners"),
]
"""Faults that are looked for in one rasterizer, to save time."""
ALONE = [name for name in FAULTS if all(name not in names for names in TOGETHER)]

MODES: dict[str, tuple[tuple[tuple[str, str], ...], dict[str, Any]]] = {
    "as it is": ((), {"alpha_max": 0.99, "gradient_mode": "exact", "cutoff": 1 / 255, "transmittance_min": 1e-4, "eps2d": 0.3,
                      "antialiased": False, "sort_key": "depth", "depth_ties": "index", "quats_normalized": True,
                      "sh_degree": 3, "color_clamp": "zero", "background_gradient": True}),
    "0.999": ((("ALPHA_MAX = 0.99", "ALPHA_MAX = 0.999"),), {"alpha_max": 0.999, "gradient_mode": "exact"}),
    "no clamp": ((("ALPHA_MAX = 0.99", "ALPHA_MAX = 1.0"),), {"alpha_max": None, "gradient_mode": "none"}),
    "straight through": ((("torch.clamp(raw, max=ALPHA_MAX)", "raw + (torch.clamp(raw, max=ALPHA_MAX) - raw).detach()"),),
                         {"alpha_max": 0.99, "gradient_mode": "straight_through"}),
    "straight through, 0.999": (
        (("ALPHA_MAX = 0.99", "ALPHA_MAX = 0.999"),
         ("torch.clamp(raw, max=ALPHA_MAX)", "raw + (torch.clamp(raw, max=ALPHA_MAX) - raw).detach()")),
        {"alpha_max": 0.999, "gradient_mode": "straight_through"}),
    "straight through with the clamped alpha": (
        (("torch.clamp(raw, max=ALPHA_MAX)", "raw * (torch.clamp(raw, max=ALPHA_MAX) / raw).detach()"),),
        {"gradient_mode": "straight_through_clamped"}),
    "no cutoff": ((("CUTOFF = 1.0 / 255.0", "CUTOFF = 0.0"),), {"cutoff": 0.0}),
    "cutoff 0.01": ((("CUTOFF = 1.0 / 255.0", "CUTOFF = 0.01"),), {"cutoff": 0.01}),
    "no early stop": ((("TRANSMITTANCE_MIN = 1e-4", "TRANSMITTANCE_MIN = 0.0"),), {"transmittance_min": 0.0}),
    "stops after the crossing one": (
        (("going = torch.cumprod(1 - alphas, dim=0) >= TRANSMITTANCE_MIN",
          "going = torch.cumprod(1 - alphas, dim=0) / (1 - alphas) >= TRANSMITTANCE_MIN"),),
        {"transmittance_min": 1e-4, "stop_rule": "the crossing one is blended"}),
    "smooth cutoff": (
        (("alphas = torch.where(alphas >= CUTOFF, alphas, 0.0)",
          "t = torch.clamp(alphas / CUTOFF - 1, 0, 1)\n    alphas = alphas * t * t * (3 - 2 * t)"),),
        {"cutoff": 1 / 255, "smooth_cutoff": True}),
    "cut at 3 sigma": (
        (("alphas = torch.where(alphas >= CUTOFF, alphas, 0.0)",
          "alphas = torch.where((alphas >= CUTOFF) & (gauss > math.exp(-4.5)), alphas, 0.0)"),), {"cutoff": 1 / 255}),
    "antialiased": (
        (("    camera_center = -viewmat",
          "    covariances = torch.linalg.inv(conics)\n    unblurred = covariances - LOW_PASS * torch.eye(2).to(means)\n"
          "    opacities = opacities * torch.sqrt(torch.clamp(torch.det(unblurred) / torch.det(covariances), min=0))\n"
          "    camera_center = -viewmat"),), {"antialiased": True, "eps2d": 0.3}),
    "SH of degree 1 used": ((("(harmonics(directions, sh.shape[1])[:, :, None] * sh)",
                              "(harmonics(directions, 4)[:, :, None] * sh[:, :4])"),), {"sh_degree": 1}),
    "another low-pass": ((("LOW_PASS = 0.3", "LOW_PASS = 0.1"),), {"eps2d": 0.1}),
    "sorted by distance": (
        (("torch.argsort(depths, stable=True)",
          "torch.argsort((means.detach() @ viewmat[:3, :3].T + viewmat[:3, 3]).norm(dim=-1), stable=True)"),),
        {"sort_key": "distance"}),
    "quaternions not normalised": ((("quats / quats.norm(dim=-1, keepdim=True)", "quats"),), {"quats_normalized": False}),
    "colours not clamped": ((("torch.relu(0.5 +", "(0.5 +"),), {"color_clamp": "none"}),
    "background without gradient": ((("rest[:, None] * background", "rest[:, None] * background.detach()"),),
                                    {"background_gradient": False}),
    "float32 inside": (
        (("    depths = (means.detach() @",
          "    means, quats, scales, opacities, sh, viewmat, K, background = (\n        t.float() for t in "
          "(means, quats, scales, opacities, sh, viewmat, K, background))\n    depths = (means.detach() @"),),
        {"alpha_max": 0.99}),
}
"""What is changed, and what the report has to say about it, without a fault."""

MODES_TOGETHER = [
    ("as it is",), ("antialiased",),
    ("0.999", "no cutoff", "sorted by distance"),
    ("no clamp", "no early stop", "quaternions not normalised"),
    ("straight through", "smooth cutoff", "colours not clamped"),
    ("straight through, 0.999", "cutoff 0.01", "stops after the crossing one"),
    ("straight through with the clamped alpha", "another low-pass", "SH of degree 1 used"),
    ("straight through", "cut at 3 sigma", "background without gradient", "float32 inside"),   # much as graphdeco's
]
