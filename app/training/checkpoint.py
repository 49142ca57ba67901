"""A run on disk: safetensors with JSON in its header, no pickle; a file is whole or it is not there.

A run folder has them in checkpoints/BRANCH/iteration_N.safetensors. Each is written beside its place, flushed and renamed,
carries a checksum of every array and its own version, so that a damaged one is found out and the one before it is taken.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from app.data.atomic import write_atomic
from app.data.scene import SceneError
from app.training.autosave import MAIN
from app.training.ring import surplus
from app.training.state import RunState

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
FORMAT = "splatscope checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Saved:
    """What the header of a checkpoint file says."""

    path: Path
    iteration: int
    branch: str
    saved_at: float       # seconds since the epoch
    gaussians: int
    nbytes: int           # of the file
    reason: str = ""      # why it was written: "time", "iterations", "close", "stop", "user", "end", "branch"


@dataclass(frozen=True)
class Checkpoint:
    """A state, and what whoever ran the trainer wanted to keep beside it (JSON): scene, camera, curves, events."""

    state: RunState
    extra: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    path: Path | None = None


class CheckpointError(SceneError):
    """A file that cannot be taken up; one sentence."""


def place(run: Path, iteration: int, branch: str = MAIN) -> Path:
    return run / FOLDER / branch / f"iteration_{iteration}{SUFFIX}"


def write(path: Path, state: RunState, extra: Mapping[str, Any] | None = None, *, branch: str = MAIN, reason: str = "user"
          ) -> Saved:
    """Write one atomically. Raises SceneError, one sentence, when the disk is full; an older file stays as it is (C10)."""
    arrays = {name: np.ascontiguousarray(array) for name, array in state.arrays.items()}
    now = time.time()
    head = {"iteration": state.iteration, "branch": branch, "saved_at": now, "gaussians": state.count, "reason": reason}
    meta = {"format": FORMAT, "version": str(VERSION), "head": json.dumps(head),
            "meta": json.dumps(dict(state.meta), allow_nan=False),
            "extra": json.dumps(_finite(dict(extra or {})), allow_nan=False),
            "checksums": json.dumps({name: zlib.crc32(array.reshape(-1).view(np.uint8)) for name, array in arrays.items()})}
    meta["texts"] = str(_text_sum(meta))
    data = save(arrays, meta)
    write_atomic(path, lambda stream: stream.write(data))
    return Saved(path, state.iteration, branch, now, state.count, len(data), reason)


def _text_sum(meta: Mapping[str, str]) -> int:
    """Checksum of the texts in a header."""
    return zlib.crc32("\n".join(meta.get(name, "") for name in ("head", "meta", "extra", "checksums")).encode())


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _header(path: Path) -> dict[str, str]:
    """The texts in a file's header. Raises CheckpointError."""
    try:
        with safe_open(path, framework="np") as file:
            found = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is no checkpoint or is damaged ({error}); choose another") from None
    if found.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but no checkpoint of a training run; choose another")
    version = found.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise CheckpointError(f"{path} was written by a newer version of Splatscope (format {version}, this one reads up to "
                              f"{VERSION}); update Splatscope")
    if found.get("texts") != str(_text_sum(found)):
        raise CheckpointError(f"{path} is damaged: the checksum of its header differs; choose another")
    return found


def describe(path: Path) -> Saved:
    """What a file is, without reading its arrays. Raises CheckpointError."""
    found = _header(path)
    try:
        head = json.loads(found["head"])
        return Saved(path, int(head["iteration"]), str(head.get("branch", MAIN)), float(head.get("saved_at", 0.0)),
                     int(head.get("gaussians", 0)), path.stat().st_size, str(head.get("reason", "")))
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: its header cannot be read ({error}); choose another") from None


def read(path: Path) -> Checkpoint:
    """The whole of it, every checksum verified. Raises CheckpointError."""
    found = _header(path)
    try:
        meta, extra = json.loads(found["meta"]), json.loads(found.get("extra", "{}"))
        sums = json.loads(found.get("checksums", "{}"))
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}   # noqa: SIM118 - no dictionary
        state = RunState(arrays, meta)
        _ = state.iteration, state.count
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); choose another") from None
    wrong = [name for name, array in arrays.items()
             if sums.get(name) != zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8))]
    if wrong:
        raise CheckpointError(f"{path} is damaged: the checksum of {wrong[0]} differs; choose another")
    return Checkpoint(state, extra, path=path)


def find(run: Path) -> tuple[list[Saved], list[str]]:
    """(what a run folder has, newest first; sentences about files that are damaged)."""
    found, complaints = [], []
    for path in sorted((run / FOLDER).glob(f"*/iteration_*{SUFFIX}")):
        try:
            found.append(describe(path))
        except CheckpointError as error:
            complaints.append(str(error))
    found.sort(key=lambda saved: (saved.saved_at, saved.iteration), reverse=True)
    return found, complaints


def newest(path: Path) -> Checkpoint:
    """The checkpoint that a file or a run folder stands for: of a folder, the newest that is not damaged; the notices
    name those that are. Raises CheckpointError when there is none."""
    if path.is_file():
        return read(path)
    found, complaints = find(path)
    for saved in found:
        try:
            checkpoint = read(saved.path)
        except CheckpointError as error:
            complaints.append(str(error))
        else:
            return Checkpoint(checkpoint.state, checkpoint.extra, (*complaints, *checkpoint.notices), saved.path)
    if complaints:
        raise CheckpointError(complaints[0])
    raise CheckpointError(f"{path} has no checkpoint to resume from; train into it first, or name another run")


def thin_out(run: Path, budget: int) -> list[Path]:
    """Delete checkpoints until they take at most `budget` bytes; returns what is gone. The newest ones always stay."""
    found, _ = find(run)
    gone = []
    for branch in {saved.branch for saved in found}:
        entries = sorted((saved for saved in found if saved.branch == branch), key=lambda saved: saved.iteration)
        share = budget * sum(s.nbytes for s in entries) // max(1, sum(s.nbytes for s in found))
        for index in surplus([(saved.iteration, saved.nbytes) for saved in entries], share):
            entries[index].path.unlink(missing_ok=True)
            gone.append(entries[index].path)
    return gone
