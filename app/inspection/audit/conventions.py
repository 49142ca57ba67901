"""What the interface fixes, asked one by one: camera, quaternions, order, background, SH, culling.

Each probe shows one thing only, so that whoever draws it otherwise has that thing wrong; the alternatives are the mistakes seen
in public, and the one that draws the same picture names the cause. What an answer teaches holds for the questions after it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import torch

from app.inspection.audit import probes
from app.inspection.audit.findings import Alternative, Findings
from app.inspection.audit.types import Probe

ROUGHLY = 0.05
"""Relative error below which separate spots are in the right places."""
UNKNOWN = "none of the known mistakes explains it"


def ask_all(f: Findings) -> None:
    """Every question of this file, in an order in which each needs only the answers before it."""
    ask_orientation(f)
    ask_covariance(f)
    ask_camera(f)
    ask_order(f)
    ask_background(f)
    ask_harmonics(f)
    ask_culling(f)


def ask_orientation(f: Findings) -> None:
    """Whether the picture is upside down or mirrored: told by spots, roughly, before their exact shape is asked about."""
    probe = probes.spots("orientation", probes.plain_camera())
    image = f.target.image(probe)
    errors = {o: f.matches(image, probe, replace(f.rules, orientation=o))[1] for o in ("upright", "rows", "columns", "both")}
    best = min(errors, key=errors.__getitem__)
    if best != "upright" and errors[best] < ROUGHLY < errors["upright"]:
        f.learn(orientation=best)
        words = {"rows": "upside down", "columns": "mirrored left to right", "both": "turned by 180 degrees"}[best]
        f.report.add("image_orientation", "image", errors["upright"], f"The picture is {words}; row 0 is the top, +y is down.")


def ask_camera(f: Findings) -> None:
    """Focal lengths, principal point, pose: spots that do not overlap."""
    f.ask(probes.spots("spots", probes.plain_camera()), [], "projection",
          f"Separate round Gaussians are not where the pinhole puts them, or not of their size; {UNKNOWN}.")
    f.ask(probes.spots("fx != fy", probes.plain_camera(fx=52.0, fy=66.0)), [
        Alternative({"focal": "fx"}, "focal", "fx is used for both axes, fy is ignored."),
        Alternative({"focal": "fy"}, "focal", "fy is used for both axes, fx is ignored."),
        Alternative({"focal": "mean"}, "focal", "The mean of fx and fy is used for both axes."),
        Alternative({"focal": "swapped"}, "focal", "fx and fy are swapped."),
    ], "focal", f"With fx != fy the picture is wrong; {UNKNOWN}.")
    f.ask(probes.spots("principal point", probes.plain_camera(shift=(6.4, -4.7))), [
        Alternative({"principal_point": "centre"}, "principal_point",
                    "cx and cy are ignored: the picture is that of a principal point at the image's centre."),
        Alternative({"principal_point": "centre_x"}, "principal_point",
                    "cx is ignored: the picture is that of a principal point in the middle of the width."),
        Alternative({"principal_point": "centre_y"}, "principal_point",
                    "cy is ignored: the picture is that of a principal point in the middle of the height."),
        Alternative({"principal_point": "mirrored"}, "principal_point", "The principal point's offset has the wrong sign."),
    ], "principal_point", f"With an off-centre principal point the picture is wrong; {UNKNOWN}.")
    f.ask(probes.spots("pose", probes.plain_camera(viewmat=probes.turned(5))), [
        Alternative({"viewmat": "transposed"}, "viewmat", "The rotation of viewmat is read transposed."),
        Alternative({"viewmat": "inverse"}, "viewmat", "viewmat is read as camera to world."),
    ], "viewmat", f"With a turned and moved camera the picture is wrong; {UNKNOWN}.")
    if not f.unexplained:
        f.ask(probes.tilted("tilted, turned, off the axis", viewmat=probes.turned(5), shift=(8.0, -6.0)), [], "covariance",
              f"A long Gaussian off the optical axis of a turned camera has the wrong shape; {UNKNOWN}.")


def ask_covariance(f: Findings) -> None:
    """One long, tilted Gaussian: quaternion order, off-diagonal conic term; the same with a longer quaternion."""
    f.ask(probes.tilted("tilted"), [
        Alternative({"quats": "xyzw"}, "quat_convention", "Quaternions are read as xyzw; the interface is wxyz."),
        Alternative({"quats": "conjugate"}, "quat_convention", "Rotations are read transposed (the conjugate quaternion)."),
        *(Alternative({"conic_b": factor}, "conic_off_diagonal",
                      f"The off-diagonal term of the conic counts {factor:g} times in the exponent.")
          for factor in (0.5, 0.0, 2.0, -1.0)),
    ], "covariance", f"A long, tilted Gaussian has the wrong shape; {UNKNOWN}.")
    if "tilted" in f.unexplained:
        return
    probe = probes.tilted("long quaternion", length=1.25)
    image = f.target.image(probe)
    for normalized in (False, True):
        if f.matches(image, probe, replace(f.rules, quats_normalized=normalized))[0]:
            f.learn(quats_normalized=normalized)
            f.report.modes["quats_normalized"] = normalized
            return
    f.report.modes["quats_normalized"] = None   # only unit quaternions are promised, so this is nobody's fault


def ask_order(f: Findings) -> None:
    """Five Gaussians over each other; then two in the same place."""
    probe = probes.heap("heap")
    image = f.target.image(probe)
    depths = probe.means @ torch.as_tensor(probe.camera.viewmat[2, :3]) + float(probe.camera.viewmat[2, 3])
    if not f.matches(image, probe, f.rules)[0] and f.matches(image, probe, replace(f.rules, sort_key="distance"))[0]:
        f.learn(sort_key="distance")   # as some do on purpose: no fault
    f.report.modes["sort_key"] = f.rules.sort_key
    settings: list[dict[str, str]] = [
        {"order": "back_to_front"}, {"order": "back_to_front", "sort_key": "distance"}, {"order": "index"},
        {"order": "reversed_index"}, {"sort_key": "world_z"}]
    words = ["Gaussians are blended back to front.", "Gaussians are blended back to front, by their distance.",
             "Gaussians are not sorted: they are blended in the order of their indices.",
             "Gaussians are not sorted: they are blended in the reversed order of their indices.",
             "Gaussians are sorted by the z of the world, not of the camera."]
    same, error = f.matches(image, probe, f.rules)
    if not same and not any(f.matches(image, probe, replace(f.rules, **changes))[0] for changes in settings):
        for order in itertools.permutations(range(len(depths))):
            if f.matches(image, _in_order(probe, order), replace(f.rules, order="index"))[0]:
                f.report.add("sort_order", "image", error, f"Gaussians at depths {_listed(depths)} are blended in the order "
                             f"{_listed(order)}; front to back is {_listed(torch.argsort(depths))}.")
                f.unexplained.append(probe.name)
                return
    f.ask(probe, [Alternative(c, "sort_order", w) for c, w in zip(settings, words, strict=True)], "blending",
          "Gaussians over each other are blended by another rule than front-to-back alpha compositing, in whatever order.")
    if f.rules.order != "front_to_back" or f.rules.sort_key == "world_z":
        f.report.modes["depth_ties"] = None
        return
    twins = probes.twins("twins")
    image = f.target.image(twins)
    ties = next((t for t in ("index", "reversed_index") if f.matches(image, twins, replace(f.rules, depth_ties=t))[0]), None)
    f.report.modes["depth_ties"] = ties
    if ties:
        f.learn(depth_ties=ties)


def _in_order(probe: Probe, order: tuple[int, ...]) -> Probe:
    rows = torch.tensor(order)
    return replace(probe, **{name: tensor[rows] for name, tensor in probe.tensors().items() if name != "background"})


def _listed(values: object) -> str:
    return ", ".join(f"{v:.3g}" for v in np.asarray(values).tolist())


def ask_background(f: Findings) -> None:
    """The spots, in front of a colour."""
    probe = replace(probes.spots("background", probes.plain_camera()),
                    background=torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64))
    f.ask(probe, [
        Alternative({"background": "never"}, "background_blend", "The background is not blended in."),
        Alternative({"background": "twice"}, "background_blend", "The background is blended in twice."),
        Alternative({"background": "unweighted"}, "background_blend",
                    "The background is added as it is, not times the transmittance that is left."),
    ], "background_blend", f"In front of a coloured background the picture is wrong; {UNKNOWN}.")


def ask_harmonics(f: Findings) -> None:
    """Spots whose colour depends on the direction; then colours below 0 and above 1."""
    rest = 0.1 * np.random.default_rng(7).standard_normal((5, 15, 3))
    posed = probes.spots("SH", probes.plain_camera(viewmat=probes.turned(5)), rest=rest)
    used = f.target.sh_degree
    lower = [Alternative({"sh_degree": d}, "", "") for d in range(used - 1, -1, -1)]
    f.learn(sh_degree=used)
    f.ask(posed, [
        *lower,
        Alternative({"sh_direction": "inwards"}, "sh_direction",
                    "SH are evaluated in the opposite direction, from the mean to the camera."),
        Alternative({"sh_direction": "camera_axes"}, "sh_direction",
                    "SH are evaluated in the camera's axes, so that colours turn with the camera."),
        Alternative({"sh_direction": "from_origin"}, "sh_direction",
                    "SH are evaluated in the direction from the world's origin, not from the camera."),
    ], "sh_basis", f"Colours from spherical harmonics are wrong; {UNKNOWN}.")
    if f.rules.sh_degree < used:
        f.report.notes.append(f"It accepts spherical harmonics of degree {used} and uses those up to {f.rules.sh_degree}.")
    f.report.modes["sh_degree"] = f.rules.sh_degree
    bright = probes.spots("bright and dark", probes.plain_camera())
    sh = bright.sh.clone()
    sh[:, 0, 0] -= 4.0
    sh[:, 0, 1] += 4.0
    bright = replace(bright, sh=sh)
    image = f.target.image(bright)
    clamp = next((c for c in ("zero", "none", "unit") if f.matches(image, bright, replace(f.rules, color_clamp=c))[0]), None)
    f.report.modes["color_clamp"] = clamp
    if clamp:
        f.learn(color_clamp=clamp)


def ask_culling(f: Findings) -> None:
    """Centres outside the picture, Gaussians behind the camera, and the nearest depth that is drawn."""
    f.ask(probes.overhanging("overhanging"), [], "offscreen_culling",
          "Gaussians whose centre lies outside the picture are left out or drawn wrong where they reach into it.")
    f.ask(probes.behind("behind"), [], "behind_camera", "Gaussians behind the camera are drawn.")
    probe = probes.nearby("near")
    image = f.target.image(probe)
    w, h = probe.camera.width // 3, probe.camera.height // 3
    seen = [d for i, d in enumerate(probes.NEAR_DEPTHS)
            if float(image[i // 3 * h:(i // 3 + 1) * h, i % 3 * w:(i % 3 + 1) * w].abs().max()) > 0.05]
    f.report.modes["nearest_depth_drawn"] = min(seen) if seen else None


def compare_pictures(f: Findings, scenes: list[Probe]) -> list[Probe]:
    """The scenes that are drawn as the rules found say. Everything at once: what no probe has found shows here."""
    right = []
    for probe in scenes:
        image = f.target.image(probe)
        same, error = f.matches(image, probe, f.rules)
        if same:
            right.append(probe)
        elif not f.unexplained and all(fault.id != "image" for fault in f.report.faults):
            f.report.add("image", "image", error, f"The picture of the scene {probe.name} is wrong though every single rule "
                         f"looks right; {UNKNOWN}.")
            f.unexplained.append(probe.name)
    return right
