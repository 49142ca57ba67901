"""Gradients: compared with the reference's under the detected rules, and a deviation told by the mistake that reproduces it.

A mistake is a factor on one cotangent of the chain (Flaws). Those that fit are looked for one at a time, then two, then three;
what is left is looked for in the parameter alone (a missing or doubled activation, a factor), and else named after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from app.inspection.audit import oracle, probes
from app.inspection.audit.findings import Findings
from app.inspection.audit.types import PARAMETERS, Comparison, Flaws, Probe, Rules, relative_error

TRIED: dict[str, tuple[float, ...]] = {
    "conic_b": (0.5, 2.0, 0.0, -1.0), "background_term": (0.0, 2.0, -1.0), "sh_direction": (0.0, -1.0),
    "jacobian": (0.0,), "occlusion_term": (0.0, -1.0), "cov2d_xy": (0.5, 2.0, 0.0), "cov3d_off": (0.5, 2.0, 0.0),
    "means2d": (0.5, 2.0, -1.0, 0.0)}
IDS = {"conic_b": "conic_off_diagonal", "background_term": "background_term", "sh_direction": "sh_direction_detached",
       "jacobian": "jacobian_detached", "occlusion_term": "occlusion_term", "cov2d_xy": "covariance_off_diagonal",
       "cov3d_off": "covariance_off_diagonal", "means2d": "means2d_gradient"}
WHAT = {"conic_b": "the gradient of the conic's off-diagonal term", "background_term": "the background's term in dL/dalpha",
        "sh_direction": "the gradient that reaches the means through the SH viewing direction",
        "jacobian": "the gradient that reaches the means through the projection's Jacobian",
        "occlusion_term": "the term of what lies behind in dL/dalpha",
        "cov2d_xy": "the gradient of the 2D covariance's off-diagonal term",
        "cov3d_off": "the gradient of the 3D covariance's off-diagonal terms", "means2d": "the gradient of the projected means"}
FACTORS = {0.0: "is missing", 0.5: "is halved", 2.0: "is doubled", -1.0: "has the wrong sign"}
BEAM = 4
"""How many of the best explanations are refined by one more mistake."""
DEEPEST = 3


@dataclass
class Gradients:
    """The rasterizer's gradients of one scene and the cotangent that they belong to."""

    probe: Probe
    cotangent: Tensor                   # [H,W,3], 0 on pixels that rounding decides about
    got: dict[str, Tensor | None]

    def errors(self, right: dict[str, Tensor]) -> dict[str, float]:
        """Relative error per parameter that the rasterizer has a gradient for."""
        return {name: relative_error(got, right[name]) for name, got in self.got.items() if got is not None}


def take(f: Findings, probe: Probe, seed: int) -> Gradients:
    """Gradients for a random cotangent, on the pixels that rounding cannot flip."""
    safe = oracle.draw(probe, f.rules, margin=f.margin).safe
    cotangent = probes.cotangent(probe, seed) * safe[..., None]
    return Gradients(probe, cotangent, _compared(f, probe, f.target.gradients(probe, cotangent)))


def _compared(f: Findings, probe: Probe, got: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Without what no rule fixes: the share along the quaternion, where the rasterizer does not normalise it itself."""
    quats = got["quats"]
    if quats is not None and not f.rules.quats_normalized:
        got["quats"] = tangential(quats, probe.quats)
    return got


def tangential(gradient: Tensor, quats: Tensor) -> Tensor:
    """[N,4] gradient without its share along unit quaternions [N,4]."""
    return gradient - (gradient * quats).sum(-1, keepdim=True) * quats


def reference(f: Findings, g: Gradients, flaws: Flaws) -> dict[str, Tensor]:
    """The reference's gradients with those mistakes."""
    return {name: tensor for name, tensor in
            _compared(f, g.probe, dict(oracle.gradients(g.probe, g.cotangent, f.rules, flaws))).items() if tensor is not None}


# ---------------------------------------------------------------- which mistakes
def explain(f: Findings, scenes: list[Probe]) -> Flaws:
    """Find the fewest mistakes that reproduce the gradients of all scenes, and add them as faults."""
    taken = [take(f, probe, seed) for seed, probe in enumerate(scenes)]
    right = [reference(f, g, Flaws()) for g in taken]
    errors = _worst(g.errors(r) for g, r in zip(taken, right, strict=True))
    _absent(f, taken)
    if all(e <= f.report.gradient_tolerance for e in errors.values()):
        return Flaws()
    wrong = {name for name, e in errors.items() if e > f.report.gradient_tolerance}
    flaws = _search(f, taken[0], right[0], wrong)
    left = _worst(g.errors(reference(f, g, flaws)) for g in taken)
    for name, factor in flaws.deviating().items():
        alone = replace(Flaws(), **{name: factor})
        shown = _worst(_differences(reference(f, g, alone), r) for g, r in zip(taken, right, strict=True))
        parameter = max(shown, key=shown.__getitem__)
        f.report.add(IDS[name], parameter, errors.get(parameter, shown[parameter]),
                     f"{WHAT[name][0].upper()}{WHAT[name][1:]} {FACTORS[factor]}; with that mistake the reference gives "
                     "the same gradients.")
    for name, error in left.items():
        if error > f.report.gradient_tolerance:
            _name_rest(f, name, error, taken, [reference(f, g, flaws)[name] for g in taken])
    return flaws


def _differences(a: dict[str, Tensor], b: dict[str, Tensor]) -> dict[str, float]:
    return {name: relative_error(a[name], b[name]) for name in a}


def _worst(errors: Iterable[dict[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for found in errors:
        for name, error in found.items():
            worst[name] = max(worst.get(name, 0.0), error)
    return worst


def _absent(f: Findings, taken: list[Gradients]) -> None:
    """Parameters without a gradient: that of the background is optional."""
    f.report.modes["background_gradient"] = taken[0].got["background"] is not None
    for name in PARAMETERS[:5]:
        if taken[0].got[name] is None:
            f.report.add(f"gradient_{name}", name, 1.0, f"{name} receive no gradient at all.")


def _possible(f: Findings, g: Gradients, right: dict[str, Tensor], wrong: set[str]) -> list[tuple[str, float]]:
    """The mistakes that change no parameter but wrong ones."""
    found = []
    for name, factors in TRIED.items():
        alone = replace(Flaws(), **{name: factors[0]})
        shown = _differences(reference(f, g, alone), right)
        if {p for p, error in shown.items() if error > 3 * f.report.gradient_tolerance} <= wrong:
            found += [(name, factor) for factor in factors]
    return found


def _search(f: Findings, g: Gradients, right: dict[str, Tensor], wrong: set[str]) -> Flaws:
    """The smallest set of mistakes that explains the most parameters in one scene."""
    tolerance = f.report.gradient_tolerance
    possible = _possible(f, g, right, wrong)

    def judge(flaws: Flaws) -> tuple[int, float]:
        wrong = [e for e in g.errors(reference(f, g, flaws)).values() if e > tolerance]
        return len(wrong), sum(math.log(min(e, 1e6) / tolerance) for e in wrong)

    best_score = judge(Flaws())
    best, beam, seen = Flaws(), [Flaws()], {Flaws()}
    for _ in range(DEEPEST):
        scored = []
        for base in beam:
            for name, factor in possible:
                flaws = replace(base, **{name: factor})
                if name not in base.deviating() and flaws not in seen:
                    seen.add(flaws)
                    scored.append((judge(flaws), flaws))
        scored.sort(key=lambda entry: entry[0])
        # one more mistake has to explain one more parameter, or it is only a better fit of something else
        if scored and scored[0][0][0] < best_score[0]:
            best_score, best = scored[0]
        if best_score[0] == 0:
            break
        beam = [flaws for _, flaws in scored[:BEAM]]
    return best


# ---------------------------------------------------------------- one parameter alone
def _name_rest(f: Findings, name: str, error: float, taken: list[Gradients], right: list[Tensor]) -> None:
    """A fault for a parameter whose gradient no mistake of the chain explains."""
    got = torch.cat([g.got[name].flatten() for g in taken if g.got[name] is not None])  # type: ignore[union-attr]
    wanted = torch.cat([r.flatten() for r in right])
    spread = {key: torch.cat([g.probe.tensors()[key].flatten() for g in taken]) for key in ("opacities", "scales")}
    o, s = spread["opacities"], spread["scales"]
    ideas: list[tuple[Tensor, str, str]] = []
    if name == "opacities":
        ideas += [(wanted * o * (1 - o), "opacity_gradient", "is that of the logit: o (1 - o) times the right one"),
                  (wanted * o, "opacity_gradient", "is multiplied by the opacity: alpha stands where exp(power) should"),
                  (wanted / o, "opacity_gradient", "is divided by the opacity")]
    if name == "scales":
        ideas += [(wanted * s, "scale_gradient", "is that of the log scales: the scale times the right one"),
                  (wanted / s, "scale_gradient", "is divided by the scale")]
    if name == "quats" and f.rules.quats_normalized:
        flat = torch.cat([g.probe.quats for g in taken])
        if relative_error(tangential(got.reshape(-1, 4), flat), tangential(wanted.reshape(-1, 4), flat)) \
                <= f.report.gradient_tolerance:
            f.report.add("quat_normalization_gradient", name, error, "The gradient of the quaternions lacks that of their "
                         "normalisation: it has a share along the quaternion, though its length changes nothing.")
            return
    for expected, id, words in ideas:
        if relative_error(got, expected) <= f.report.gradient_tolerance:
            f.report.add(id, name, error, f"The gradient of the {name} {words}.")
            return
    id = {"opacities": "opacity_gradient", "scales": "scale_gradient"}.get(name, f"gradient_{name}")
    factor = float((got * wanted).sum() / (wanted * wanted).sum())
    if not bool(torch.isfinite(got).all()):
        f.report.add(f"gradient_{name}", name, error, f"The gradient of {name} is not finite.")
    elif not got.any():
        f.report.add(f"gradient_{name}", name, error, f"The gradient of {name} is zero.")
    elif relative_error(got, factor * wanted) <= f.report.gradient_tolerance:
        f.report.add(id, name, error, f"The gradient of {name} is {factor:.4g} times the reference's.")
    elif name == "sh" and not got.reshape(-1, *taken[0].probe.sh.shape[1:])[:, 1:].any():
        f.report.add("gradient_sh", name, error, "Spherical harmonics above degree 0 receive no gradient.")
    else:
        f.report.add(f"gradient_{name}", name, error, f"The gradient of {name} is wrong; "
                     "none of the known mistakes explains it.")


def ask_quat_length(f: Findings) -> None:
    """Where the rasterizer normalises: half as long a gradient for twice as long a quaternion."""
    if not f.rules.quats_normalized:
        return
    probe = probes.tilted("long quaternion", length=1.25)
    g = take(f, probe, 3)
    got, right = g.got["quats"], reference(f, g, Flaws())["quats"]
    if got is None or relative_error(got, right) <= f.report.gradient_tolerance:
        return
    unit = reference(f, take(f, probes.tilted("tilted"), 3), Flaws())["quats"]
    if relative_error(got, unit) <= f.report.gradient_tolerance:
        f.report.add("quat_normalization_gradient", "quats", relative_error(got, right), "The gradient of a quaternion is not "
                     "divided by its length, though the rasterizer normalises it.")


# ---------------------------------------------------------------- the numbers of a scene
def compare(f: Findings, probe: Probe, seed: int = 0) -> Comparison:
    """Image and gradients of a scene beside the reference's, which has the detected modes but none of the mistakes."""
    rules = lawful(f)
    picture = oracle.draw(probe, rules, margin=f.margin)
    cotangent = probes.cotangent(probe, seed) * picture.safe[..., None]
    image = f.target.image(probe)
    plain = replace(f, report=replace(f.report, rules=rules))
    g = Gradients(probe, cotangent, _compared(plain, probe, f.target.gradients(probe, cotangent)))
    right = reference(plain, g, Flaws())
    errors: dict[str, float | None] = {name: None for name in PARAMETERS}
    errors |= g.errors(right)
    shown = torch.where(picture.safe[..., None], image, picture.image)
    return Comparison(probe.name, len(probe.means), probe.camera.width, probe.camera.height,
                      relative_error(shown, picture.image), errors, 1 - float(picture.safe.double().mean()), image,
                      picture.image)


def lawful(f: Findings) -> Rules:
    """The detected rules with every convention as the interface fixes it."""
    right = Rules()
    fixed = ("pixel_center", "scale_exp", "opacity_sigmoid", "quats", "conic_b", "principal_point", "focal", "viewmat", "order",
             "background", "orientation", "sh_direction")
    sort_key = right.sort_key if f.rules.sort_key == "world_z" else f.rules.sort_key
    return replace(f.rules, sort_key=sort_key, **{name: getattr(right, name) for name in fixed})
