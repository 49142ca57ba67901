"""What a checkpoint remembers of the branches of its run (app/engine/timeline/memory.py), where the run went on without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.data.checkpoints import CheckpointError, describe, find
from app.messages import Densified, Evaluated, OptionChanged
from app.training.checkpoint import Checkpoint
from app.training.saving import branch_of, events_of, history_of


def since(timeline: Mapping[str, Any], found: Checkpoint, run: Path) -> dict[str, Any]:
    """The memory of a checkpoint, with what other branches of its folder have become since it was written.

    A branch that went on is as far as its newest file, and only its files are known of it from there. Where it may have been
    trained again from before the end that is remembered (its process was killed before that was saved), branches that grew
    behind what was saved share none of its files.
    """
    branches = [dict(one) for one in timeline.get("branches", ())]
    if found.path is None or not branches:
        return dict(timeline)
    try:
        written = describe(found.path).order
    except CheckpointError:   # somebody took it away meanwhile
        return {}
    files = [saved for saved in find(run)[0] if saved.branch != branch_of(found)]
    for one in branches:
        mine = [saved for saved in files if saved.branch == one["name"] and not one["folder"]]
        last = max((saved.iteration for saved in mine), default=0)
        if not any(saved.order > written for saved in mine) and last <= one["tip"]:
            continue
        again = any(saved.order > written and saved.iteration < one["tip"] for saved in mine)
        whole = not again and any(saved.iteration == one["tip"] for saved in mine)
        one |= {"tip": last, "known": last, "log": []}
        for kind in ("densified", "evaluated", "changed"):
            one[kind] = [event for event in one.get(kind, ()) if event["iteration"] <= last]
        same = max((saved.iteration for saved in mine if saved.order <= written), default=0)
        for child in branches if not whole else ():
            if child["parent"] == one["name"] and child["fork"] > same:
                child |= {"parent": "", "fork": 0, "known": max(child["known"], child["fork"])}
    return {**timeline, "branches": branches}


def onward(timeline: Mapping[str, Any], found: Checkpoint, branch: str) -> dict[str, Any]:
    """What a window knows of branches, with the run on `branch` from the checkpoint on; without a window nobody logs what is
    done to it, so what came before is not replayed across that point."""
    branches, before = [dict(one) for one in timeline.get("branches", ())], branch_of(found)
    mine = next((one for one in branches if one.get("name") == before), None)
    if mine is None:
        return {}
    iteration = found.state.iteration
    if branch != before:
        kinds = {"densified": Densified, "evaluated": Evaluated, "changed": OptionChanged}
        events = {name: [asdict(event) for event in events_of(found.extra) if isinstance(event, kind)]   # type: ignore
                  for name, kind in kinds.items()}
        lines = {name: [axis.tolist() for axis in series.values()] for name, series in history_of(found).series.items()}
        mine |= {"tip": iteration, **events, "curves": lines}
        branches.append({**mine, "name": branch, "label": branch, "parent": before, "fork": iteration, "folder": ""})
        mine = branches[-1]
    mine["known"] = iteration
    return {**timeline, "branches": branches}
