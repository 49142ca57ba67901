"""The branches of a run as JSON, kept beside its checkpoints, so that a run taken up later has its past again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.engine.timeline.branches import Branch, Branches, Entry
from app.messages import Densified, Evaluated, OptionChanged

if TYPE_CHECKING:
    from app.engine.timeline.timeline import Timeline

EVENTS = 500
"""Of each kind and branch, the last ones."""


def memory(timeline: Timeline) -> dict[str, Any]:
    """What remember() takes. Curves and events of the branch that trains stand elsewhere in its checkpoint."""
    entries: list[Entry] = []
    numbers: dict[Entry, int] = {}
    branches = []
    for branch in timeline.branches:
        for entry in branch.log:
            if entry not in numbers:
                numbers[entry] = len(entries)
                entries.append(entry)
        told: dict[str, Any] = {
            "name": branch.name, "inherited": {str(iteration): str(path) for iteration, path in branch.inherited.items()},
            "label": branch.label, "parent": branch.parent, "fork": branch.fork, "known": branch.known,
            "tip": branch.tip, "seconds": branch.seconds, "log": [numbers[entry] for entry in branch.log],
            "folder": str(branch.folder) if branch.folder is not None and branch.folder != timeline.now.folder else ""}
        if branch.name != timeline.current:
            told["densified"] = [asdict(event) for event in branch.densified[-EVENTS:]]
            told["evaluated"] = [asdict(event) for event in branch.evaluated[-EVENTS:]]
            told["changed"] = [asdict(event) for event in branch.changed[-EVENTS:]]
            told["curves"] = {name: [curve.x.tolist(), curve.y.tolist()] for name, curve in branch.frozen_curves().items()}
        branches.append(told)
    return {"entries": [[entry.iteration, dict(entry.options)] for entry in entries], "branches": branches,
            "left": dict(timeline.branches.left)}


def remember(told: Mapping[str, Any], current: str, now: Branch) -> Branches:
    """The branches that memory() told, `now` among them with the events and curves that it has. Raises KeyError, TypeError or
    ValueError for what is not of its making."""
    entries = [Entry(int(iteration), dict(options)) for iteration, options in told["entries"]]
    branches = Branches()
    branches.left = {str(name): str(label) for name, label in dict(told.get("left", {})).items()}
    for one in told["branches"]:
        folder = Path(one["folder"]) if one["folder"] else now.folder
        branch = now if one["name"] == current else Branch(str(one["name"]), "", folder=folder, recorded=True)
        branch.label, branch.parent, branch.fork = str(one["label"]), str(one["parent"]), int(one["fork"])
        branch.known, branch.tip, branch.seconds = int(one["known"]), int(one["tip"]), float(one["seconds"])
        branch.inherited = {int(iteration): Path(path) for iteration, path in one.get("inherited", {}).items()
                            if Path(path).is_file()}
        branch.log = [entries[number] for number in one["log"]]
        if branch is not now:
            branch.densified = [Densified(**event) for event in one["densified"]]
            branch.evaluated = [Evaluated(**{**event, "views": tuple(map(tuple, event["views"]))})
                                for event in one["evaluated"]]
            branch.changed = [OptionChanged(**event) for event in one.get("changed", ())]
            for name, (x, y) in one["curves"].items():
                branch.history.series[name].extend(np.array(x), np.array(y))
        branches.add(branch)
    if current not in branches:
        raise ValueError(f"the branch {current} is missing")
    return branches
