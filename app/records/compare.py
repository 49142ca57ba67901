"""Runs side by side: their figures, the best of each column, and the options in which they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.records.read import Run, Summary, summarise

NONE = "-"


@dataclass(frozen=True)
class Column:
    title: str
    name: str                                     # of Summary
    write: Callable[[Any], str] = str
    best: Callable[..., float] | None = None      # max, min, or None where neither is better


COLUMNS = (
    Column("run", "name"), Column("scene", "scene"), Column("strategy", "strategy"),
    Column("iterations", "iterations", "{:,}".format), Column("seconds", "seconds", "{:,.1f}".format, min),
    Column("it/s", "rate", "{:.1f}".format, max), Column("Gaussians", "gaussians", "{:,}".format, min),
    Column("PSNR", "psnr", "{:.2f}".format, max), Column("SSIM", "ssim", "{:.4f}".format, max),
    Column("LPIPS", "lpips", "{:.4f}".format, min),
)
CHANGE = ("iteration", "name", "old", "new")
LEFT = ("run", "scene", "strategy")
FOOTNOTE = "* the best of its column: highest it/s, PSNR and SSIM, lowest LPIPS, fewest seconds and Gaussians"


@dataclass(frozen=True)
class Comparison:
    runs: tuple[Run, ...]
    names: tuple[str, ...]            # one each, all different
    summaries: tuple[Summary, ...]
    differences: dict[str, tuple[Any, ...]]   # by option, a value per run; None = not recorded
    notes: tuple[str, ...]            # what to bear in mind, a sentence each


def compare(runs: Sequence[Run]) -> Comparison:
    names = _names(runs)
    summaries = tuple(summarise(run) for run in runs)
    return Comparison(tuple(runs), names, summaries, differences(runs), tuple(_notes(runs, names, summaries)))


def differences(runs: Sequence[Run]) -> dict[str, tuple[Any, ...]]:
    """Options, scene settings and machine that are not the same in all runs that have a record."""
    tables = [_settings(run) for run in runs]
    recorded = [table for table in tables if table]
    names = list(dict.fromkeys(name for table in recorded for name in table))
    known = {name: [table[name] for table in recorded if name in table] for name in names}   # versions differ in options
    return {name: tuple(table.get(name) for table in tables) for name, values in known.items()
            if any(value != values[0] for value in values[1:])}


def changes(run: Run) -> list[tuple[int, str, Any, Any]]:
    """(iteration, option, old, new) of what was changed while the run went on."""
    return [(event["iteration"], str(event["name"]), event.get("old"), event.get("new")) for event in run.events
            if event.get("event") == "option" and "name" in event and event.get("live") is not False]


def text(found: Comparison) -> str:
    """For a terminal."""
    lines = table([column.title for column in COLUMNS], _cells(found), left=LEFT)
    if any("*" in line for line in lines[1:]):
        lines += ["", FOOTNOTE]
    if len(found.runs) > 1:
        if found.differences:
            rows = [[name, *(_value(value) for value in values)] for name, values in found.differences.items()]
            lines += ["", "Options that differ:", *table(["", *found.names], rows, left=("", *found.names))]
        elif sum(bool(run.about) for run in found.runs) > 1:
            lines += ["", "The runs do not differ in any option."]
    for run, name in zip(found.runs, found.names, strict=True):
        if changes(run):
            lines += ["", f"Changed while {name} ran:",
                      *(f"  iteration {iteration:,}: {option} {_value(old)} -> {_value(new)}"
                        for iteration, option, old, new in changes(run))]
    return "\n".join(lines + [f"! {note}" for note in found.notes])


def as_json(found: Comparison) -> dict[str, Any]:
    """The same for programs."""
    return {"runs": [{**asdict(summary), "name": name, "folder": str(run.folder), "config": run.config,
                      "changed": [dict(zip(CHANGE, change, strict=True)) for change in changes(run)]}
                     for run, name, summary in zip(found.runs, found.names, found.summaries, strict=True)],
            "differences": {name: list(values) for name, values in found.differences.items()}, "notes": list(found.notes)}


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> list[str]:
    """Lines of aligned columns; numbers stand right, the columns of `left` left."""
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    return ["  ".join(cell.ljust(width) if title in left else cell.rjust(width)
                      for cell, width, title in zip(row, widths, titles, strict=True)).rstrip() for row in [titles, *rows]]


def _cells(found: Comparison) -> list[list[str]]:
    columns = []
    for column in COLUMNS:
        values = [getattr(summary, column.name) for summary in found.summaries]
        if column.name == "name":
            values = list(found.names)
        known = [value for value in values if value is not None]
        best = column.best(known) if column.best and len(set(known)) > 1 else math.nan
        marked = column.best is not None and best == best
        cells = [NONE if value is None else column.write(value) for value in values]
        columns.append([cell + ("*" if value == best else " ") if marked else cell
                        for cell, value in zip(cells, values, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The folders' names; with as many folders above as tell them apart."""
    parts = [run.folder.resolve().parts for run in runs]
    names = [run.name for run in runs]
    for depth in range(2, max(map(len, parts), default=1) + 1):
        if len(set(names)) == len(set(parts)):   # one run may be named twice
            break
        names = ["/".join(part[-depth:]) for part in parts]
    return tuple(f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names))


def _settings(run: Run) -> dict[str, Any]:
    if not run.about:
        return {}
    scene, machine = run.about["scene"], run.about.get("machine") or {}
    versions = run.about.get("versions") or {}
    return {**{f"scene.{name}": scene.get(name) for name in ("resolution", "long_side", "images", "eval_every")}, **run.config,
            "backend": machine.get("backend"), "threads": machine.get("threads"), "splatscope": versions.get("splatscope")}


def _notes(runs: Sequence[Run], names: Sequence[str], summaries: Sequence[Summary]) -> list[str]:
    notes = []
    paths = {run.about["scene"].get("path") for run in runs if run.about}
    if len(paths) > 1:
        notes.append("The runs are of different scenes, so their scores do not compare.")
    for run, name, summary in zip(runs, names, summaries, strict=True):
        if not run.about:
            notes.append(f"{name} has no record, only results.json: its scene and options are not known.")
        if summary.psnr is not None and summary.measured != summary.iterations:
            notes.append(f"The scores of {name} are of iteration {summary.measured or 0:,}.")
    return notes


def _value(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value) or "''"
