"""`splatscope info PATH`: what a path was recognised as, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from app.commands.errors import say
from app.data.open import Recognised, recognise
from app.data.scene import SceneError
from render.config import setting

if TYPE_CHECKING:
    from app.records.read import Run

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
    record = record_of(path)
    if record is not None and found.kind == "unknown":   # a run that has saved no point cloud
        found = replace(found, kind="run", warnings=[])
    if json_output:
        told = json.loads(found.to_json())
        print(json.dumps(told if record is None else told | {"record": record_json(record)}, indent=1))
    if found.kind == "unknown":
        say(found.warnings[0])
        return 2
    if not json_output:
        print("\n".join(lines(found, [] if record is None else record_rows(record))))
    return 0


def record_of(path: str) -> Run | None:
    """The record of a run in a folder; None where there is none that can be read."""
    from app.records.read import has_record, read_run

    folder = Path(path).expanduser()
    try:
        return read_run(folder) if folder.is_dir() and has_record(folder) else None
    except SceneError:
        return None


def record_json(record: Run) -> dict[str, Any]:
    from app.records.compare import as_json, compare

    return as_json(compare([record]))["runs"][0]


def record_rows(record: Run) -> list[tuple[str, str]]:
    """Basics of a run for people: what it was trained on and how far it came."""
    from app.records.read import summarise

    found = summarise(record)
    target = record.config.get("iterations") or found.iterations or 0
    measured = f" at iteration {found.measured:,}" if found.measured else ""
    rows = [("trained on", (record.about.get("scene") or {}).get("path")), ("started", record.about.get("started")),
            ("strategy", found.strategy), ("seed", record.about.get("seed")), ("backend", found.backend),
            ("iteration", found.iterations and f"{found.iterations:,} of {target:,}"),
            ("training", found.seconds and f"{found.seconds:,.1f} s, {found.rate or 0:.1f} it/s"),
            ("trained to", found.gaussians and f"{found.gaussians:,} Gaussians"),
            ("held-out", found.psnr and f"PSNR {found.psnr:.2f} dB, SSIM {found.ssim or 0:.4f}{measured}"),
            ("last event", record.events[-1]["event"] if record.events else None)]
    return [(label, str(value)) for label, value in rows if value is not None]


def lines(found: Recognised, record: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The report for people: label and value, those of its record last, then the warnings."""
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
    rows += record
    width = max(len(label) for label, _ in rows) + 2
    return [f"{label:<{width}}{value}" for label, value in rows] + [f"! {warning}" for warning in found.warnings]
