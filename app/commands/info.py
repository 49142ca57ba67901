"""`splatscope info PATH`: what a path was recognised as, for people or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from app.commands.errors import say
from app.data.open import Recognised, recognise
from app.data.scene import SceneError
from render.config import setting

SHOWN_MISSING = 5
KINDS = {"colmap": "COLMAP scene", "transforms": "transforms.json scene", "ply": "PLY", "run": "training run",
         "unknown": "not recognised"}


@dataclass(frozen=True)
class InfoArgs:
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = setting(
        "", "A scene's folder, a run's folder or a PLY.")
    json: bool = setting(False, "Print one JSON object instead of text.")


def run(path: str, json_output: bool = False) -> int:
    """Print what `path` is; 0, or 2 with one sentence on stderr where it cannot be used."""
    try:
        found = recognise(path)
    except SceneError as error:
        found = Recognised(path, "unknown", warnings=[str(error)])
    if json_output:
        print(found.to_json())
    if found.kind == "unknown":
        say(found.warnings[0])
        return 2
    if not json_output:
        print("\n".join(lines(found)))
    return 0


def lines(found: Recognised) -> list[str]:
    """The report for people: label and value, then the warnings."""
    rows = [("path", found.path), ("kind", KINDS[found.kind])]
    if found.source not in ("", found.path):
        rows.append(("read from", found.source))
    if found.kind == "colmap":
        rows.append(("registered", f"{found.listed} of {max(found.photos, found.listed)} images"))
    if found.listed:
        alpha = ", with alpha" if found.has_alpha else ""
        rows += [("images", found.images), ("views", f"{found.views} of {found.listed} with a camera"),
                 ("largest image", f"{found.width}x{found.height} px{alpha}"),
                 ("camera models", ", ".join(f"{model} ({count})" for model, count in found.camera_models.items())),
                 ("points", f"{found.points:,}")]
    elif found.points:
        rows.append(("points", f"{found.points:,}"))
    if found.sh_degree is not None:
        rows += [("Gaussians", f"{found.gaussians:,}"), ("SH degree", str(found.sh_degree))]
    if found.iterations:
        rows.append(("iterations", ", ".join(map(str, found.iterations))))
    if found.missing:
        more = len(found.missing) - SHOWN_MISSING
        rows.append(("missing", ", ".join(found.missing[:SHOWN_MISSING]) + (f" and {more} more" if more > 0 else "")))
    width = max(len(label) for label, _ in rows) + 2
    return [f"{label:<{width}}{value}" for label, value in rows] + [f"! {warning}" for warning in found.warnings]
