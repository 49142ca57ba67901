"""Modes, measured: low-pass, antialiasing, largest alpha, cutoff, footprint, early stop, gradient of a clamped alpha."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from app.inspection.audit import oracle, probes
from app.inspection.audit.findings import Findings
from app.inspection.audit.types import Probe, Rules, relative_error
from render.config import ALPHA_GRADIENTS

COLOR = 0.9
"""Red of the probes with one Gaussian: red / COLOR is its alpha, in front of black."""
OPACITY = 0.3
SIGMAS = (1.5, 4.0)
NEARLY_OPAQUE = 0.9998
"""Above any clamp in use, and leaves more than 1e-4 of the transmittance, so that no stopping rule hides it."""
KNOWN_CUTOFFS = (1 / 255, 1 / 256, 1 / 512, 1e-2, 1e-3, 1e-4)
KNOWN_STOPS = (1e-4, 1e-3, 1e-2, 1e-5, 1e-6)
LAYER = 0.1
CLAMPED_RADIUS = 6.0
"""px around the middle in which the probe of the gradient mode is clamped."""
STEPS = 26
"""Halvings of the interval in which the cutoff lies."""


# ---------------------------------------------------------------- the shape of one Gaussian
def profile(image: Tensor, probe: Probe) -> tuple[float, float, float, float] | None:
    """(peak alpha, variance px^2, centre x, centre y px off the optical axis) of one Gaussian, fitted to the logarithm of its
    picture; None where there is too little to see."""
    red = image[..., 0] / COLOR
    y, x = torch.meshgrid(torch.arange(probe.camera.height) + 0.5, torch.arange(probe.camera.width) + 0.5, indexing="ij")
    x, y = (x - probe.camera.K[0, 2]).double(), (y - probe.camera.K[1, 2]).double()
    seen = (red > 0.02) & torch.isfinite(red)
    if int(seen.sum()) < 9:
        return None
    x, y, logs = x[seen], y[seen], torch.log(red[seen])
    design = torch.stack([torch.ones_like(x), x, y, -(x * x + y * y)], dim=-1)
    constant, slope_x, slope_y, curvature = torch.linalg.lstsq(design, logs[:, None]).solution.flatten().tolist()
    if curvature <= 1e-6:
        return None
    variance = 0.5 / curvature
    center_x, center_y = slope_x * variance, slope_y * variance
    return math.exp(constant + 0.5 * (center_x**2 + center_y**2) / variance), variance, center_x, center_y


def measure_shape(f: Findings) -> bool:
    """Pixel centres, scales, opacities, low-pass and antialiasing from two round Gaussians; False where they make no sense."""
    scenes = [probes.one(f"round, sigma {sigma:g} px", sigma, OPACITY) for sigma in SIGMAS]
    images = [f.target.image(scene) for scene in scenes]
    fits = [profile(image, scene) for image, scene in zip(images, scenes, strict=True)]
    if fits[0] is None or fits[1] is None:
        f.report.add("image", "image", math.inf, "A round Gaussian in the middle of the picture is not drawn as one.")
        return False
    (peak1, v1, x1, y1), (_, v2, _, _) = fits[0], fits[1]
    changes: dict[str, object] = {}
    shift = 0.5 * (x1 + y1)
    if abs(shift) > 0.01:
        changes["pixel_center"] = 0.5 - shift
        f.report.add("pixel_center", "image", abs(shift),
                     f"Pixels are sampled {shift:+.2g} px beside their centres, which are at +0.5.")
    world = [float(scene.scales[0, 0]) for scene in scenes]
    factor = float(scenes[0].camera.K[0, 0]) / 3.0   # px per world unit at the depth of the probes
    widths = [factor * s for s in world]
    if abs((v2 - v1) / (widths[1]**2 - widths[0]**2) - 1) > 0.02:
        again = [factor * math.exp(s) for s in world]
        if v1 > 0.5 * again[0]**2:
            widths, changes["scale_exp"] = again, True
            f.report.add("scale_activation", "image", math.sqrt(v1) / SIGMAS[0] - 1,
                         "exp is applied to scales that are activated already.")
    eps2d = v1 - widths[0]**2
    compensation = widths[0]**2 / v1
    for sigmoid in (False, True):
        opacity = 1 / (1 + math.exp(-OPACITY)) if sigmoid else OPACITY
        if abs(peak1 / opacity - 1) < 5e-3:
            changes |= {"antialiased": False}
        elif abs(peak1 / (opacity * compensation) - 1) < 5e-3:
            changes |= {"antialiased": True}
        else:
            continue
        if sigmoid:
            changes["opacity_sigmoid"] = True
            f.report.add("opacity_activation", "image", abs(opacity / OPACITY - 1),
                         "sigmoid is applied to opacities that are activated already.")
        break
    candidates = [replace(f.rules, **{**changes, "eps2d": max(0.0, e)}) for e in (round(eps2d, 3), eps2d)]
    return _settle(f, scenes, images, candidates)


def _settle(f: Findings, scenes: list[Probe], images: list[Tensor], candidates: list[Rules]) -> bool:
    """Take the candidate that draws the images best, and judge the precision of the numbers by what is left."""
    errors = [max(_bright_error(image, oracle.draw(scene, rules).image) for image, scene in zip(images, scenes, strict=True))
              for rules in candidates]
    best = min(range(len(candidates)), key=errors.__getitem__)
    if errors[best] > 1e-3:
        if not f.report.faults:
            f.report.add("image", "image", errors[best], "A round Gaussian in the middle of the picture is drawn wrong: "
                         "neither its size nor its opacity explains the difference.")
        f.unexplained.append("round")
        return False
    f.report.rules = candidates[best]
    f.set_precision("float64" if errors[best] < 1e-9 else "float32")
    f.report.image_tolerance = max(f.report.image_tolerance, 3 * errors[best])
    f.report.modes |= {"eps2d": round(f.rules.eps2d, 6), "antialiased": f.rules.antialiased}
    return True


def _bright_error(image: Tensor, wanted: Tensor) -> float:
    """Relative error within 1.3 sigma: nothing is known yet of cutoffs and footprints."""
    bright = (wanted[..., :1] > 0.43 * wanted[..., 0].max()).expand_as(wanted)
    return relative_error(image[bright], wanted[bright])


# ---------------------------------------------------------------- clamp, cutoff, footprint, early stop
def centered(name: str, opacity: float, sigma: float = 40.0) -> Probe:
    """A wide Gaussian whose mean is exactly at the centre of the middle pixel."""
    return probes.one(name, sigma, opacity, camera=probes.plain_camera(33, 25))


def middle(f: Findings, probe: Probe) -> float:
    """Alpha at the middle pixel."""
    return float(f.target.image(probe)[probe.camera.height // 2, probe.camera.width // 2, 0]) / COLOR


def measure_alpha_max(f: Findings) -> None:
    """The alpha of a Gaussian of opacity 0.9998 at its middle."""
    probe = centered("nearly opaque", NEARLY_OPAQUE)
    unclamped = replace(f.rules, alpha_max=1.0, transmittance_min=0.0)
    wanted = float(oracle.draw(probe, unclamped).image[12, 16, 0]) / COLOR
    found = middle(f, probe)
    if f.rules.opacity_sigmoid or found < 0.5:
        f.report.modes["alpha_max"] = None
        return
    free = found > wanted - 4e-6
    f.learn(alpha_max=1.0 if free else round(found, 6))
    f.report.modes["alpha_max"] = None if free else f.rules.alpha_max


def measure_cutoff(f: Findings) -> None:
    """Halve the interval of opacities between one that is drawn and one that is not."""
    low, high = 2e-5, 0.05
    if f.rules.opacity_sigmoid or middle(f, centered("faint", high)) <= 0:
        f.report.modes |= {"cutoff": None, "smooth_cutoff": None}
        return
    if middle(f, centered("faint", low)) > 0.5 * low:
        f.learn(cutoff=0.0)
        f.report.modes |= {"cutoff": 0.0, "smooth_cutoff": False}
        return
    for _ in range(STEPS):
        between = math.sqrt(low * high)
        low, high = (low, between) if middle(f, centered("faint", between)) > 1e-9 else (between, high)
    cutoff = next((known for known in KNOWN_CUTOFFS if abs(high / known - 1) < 2e-3), high)
    share = middle(f, centered("faint", 1.5 * cutoff)) / (1.5 * cutoff)   # 1/2 halfway up our smooth ramp
    f.learn(cutoff=cutoff, smooth_cutoff=abs(share - 0.5) < 0.05)
    f.report.modes |= {"cutoff": cutoff, "smooth_cutoff": f.rules.smooth_cutoff}


def measure_footprint(f: Findings) -> None:
    """The nearest pixel, in sigmas, that ought to show a Gaussian of opacity 0.9 and does not."""
    probe = probes.one("footprint", 3.2, 0.9)
    image, wanted = f.target.image(probe)[..., 0], oracle.draw(probe, f.rules, margin=f.margin)
    lost = (image.abs() < 1e-7) & (wanted.image[..., 0] > 1e-4 * COLOR) & wanted.safe
    e = wanted.ellipses
    if not bool(lost.any()):
        f.report.modes["footprint_sigmas"] = None
        return
    y, x = torch.nonzero(lost).unbind(-1)
    squared = (x + f.rules.pixel_center - e.means2d[0, 0])**2 + (y + f.rules.pixel_center - e.means2d[0, 1])**2
    nearest = float(torch.sqrt(squared.min() * e.conics[0, 0]))
    f.learn(footprint=min(nearest, 3.0))
    f.report.modes["footprint_sigmas"] = round(nearest, 2)
    if nearest < 2.8:
        f.report.add("footprint", "image", float(wanted.image[..., 0][lost].max() / wanted.image[..., 0].max()),
                     f"Gaussians are cut off {nearest:.1f} sigma from their centre, where they still show.")


def measure_stop(f: Findings) -> None:
    """What 300 layers of alpha 0.1 let through of a white background."""
    f.report.modes |= {"transmittance_min": None, "stop_rule": None}
    if f.rules.background != "once" or f.rules.opacity_sigmoid:
        return
    probe = probes.curtain("curtain")
    left = float(f.target.image(probe)[8, 8, 0])
    layers = len(probe.opacities)
    blended = round(math.log(max(left, 1e-30)) / math.log(1 - LAYER))
    if blended >= layers - 1:
        f.learn(transmittance_min=0.0)
        f.report.modes["transmittance_min"] = 0.0
        return
    after = (1 - LAYER)**blended
    if abs(left / after - 1) > 1e-2:
        return
    exact = 1e-3   # what rounding may do to a product of so many factors
    for stop_after in (False, True):
        top = after / (1 - LAYER) if stop_after else after
        for known in KNOWN_STOPS:
            if top * (1 - LAYER) < known <= top * (1 + exact):
                f.learn(transmittance_min=known, stop_after=stop_after)
                break
        else:
            continue
        break
    else:
        f.learn(transmittance_min=after * math.sqrt(1 - LAYER))
    f.report.modes |= {"transmittance_min": f.rules.transmittance_min,
                       "stop_rule": "the crossing one is blended" if f.rules.stop_after else "the crossing one is left out"}


# ---------------------------------------------------------------- the gradient of a clamped alpha
def measure_gradient_mode(f: Findings) -> None:
    """dalpha/dopacity and dalpha/dpower at clamped pixels, each told by the mode whose gradient fits it best.

    One wide Gaussian; the gradient at its clamped middle is divided by that at its unclamped rim, so that a constant factor,
    which would be a fault of its own, does not hide the mode.
    """
    report = f.report
    if f.rules.alpha_max >= 1.0 or f.rules.opacity_sigmoid:
        report.gradient_mode = "none" if f.rules.alpha_max >= 1.0 else "unknown"
        return
    sigma = CLAMPED_RADIUS / math.sqrt(2 * math.log(max(NEARLY_OPAQUE / f.rules.alpha_max, 1 + 1e-6)))
    probe = probes.one("clamped", sigma, NEARLY_OPAQUE)
    picture = oracle.draw(probe, f.rules, margin=f.margin)
    hot = picture.clamped & picture.safe
    distance = -torch.log(torch.clamp(picture.image[..., 0] / COLOR, min=1e-9))
    rim = ~picture.clamped & picture.safe & (distance < 2.0)
    side = torch.zeros_like(hot)
    side[:, probe.camera.width // 2:] = True   # half of the picture: over all of it dL/dmean is 0 by symmetry
    if not bool((hot & side).any()) or not bool((rim & side).any()):
        report.gradient_mode = "unknown"
        return
    found = {}
    for parameter, name in (("opacities", "opacity_mode"), ("means", "power_mode")):
        hottest, cooler = ((where & side).double()[..., None].expand(-1, -1, 3).contiguous() for where in (hot, rim))
        got = [f.target.gradients(probe, v)[parameter] for v in (hottest, cooler)]
        found[name] = "unknown"
        if got[0] is None or got[1] is None:
            continue
        calm = _strength(oracle.gradients(probe, cooler, f.rules)[parameter])
        factor = _strength(got[1]) / calm if calm else 0.0
        if not math.isfinite(factor) or abs(factor) < 1e-6:
            continue
        wanted = {mode: _strength(oracle.gradients(probe, hottest, replace(f.rules, **{name: mode}))[parameter])
                  for mode in ALPHA_GRADIENTS}
        scale = max(abs(v) for v in wanted.values())
        errors = {mode: abs(_strength(got[0]) / factor - value) / scale for mode, value in wanted.items()}
        best = min(errors, key=errors.__getitem__)
        # with alpha_max 0.999 the two straight-through modes differ by 5e-4
        if errors[best] < 0.25 * (1 - f.rules.alpha_max):
            found[name] = best
    known = {name: mode for name, mode in found.items() if mode != "unknown"}
    f.learn(**known)
    report.gradient_mode = found["opacity_mode"] if len(set(found.values())) == 1 else (
        f"mixed: {found['opacity_mode']} for the opacity, {found['power_mode']} for the power")


def _strength(gradient: Tensor) -> float:
    """One number of a gradient of one Gaussian: its first entry, of which the others are multiples or unknown."""
    return float(gradient.flatten()[0])
