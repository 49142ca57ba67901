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
from app.data.checkpoints import FORMAT, VERSION, CheckpointError, Saved, find, header, none_whole, text_sum
from app.training.state import RunState


@dataclass(frozen=True)
class Checkpoint:
    """A state, and what whoever ran the trainer wanted to keep beside it (JSON): scene, camera, curves, events."""

    state: RunState
    extra: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    path: Path | None = None   # absolute: its folders say of which run and branch it is


def write(path: Path, state: RunState, extra: Mapping[str, Any] | None = None, *, reason: str = "user", serial: int = 0
          ) -> Saved:
    """Write one atomically. Raises SceneError, one sentence, when the disk is full; an older file stays as it is (C10)."""
    arrays = {name: np.ascontiguousarray(array) for name, array in state.arrays.items()}
    now = time.time()
    head = {"iteration": state.iteration, "saved_at": now, "serial": serial, "gaussians": state.count, "reason": reason}
    meta = {"format": FORMAT, "version": str(VERSION), "head": json.dumps(head),
            "meta": json.dumps(dict(state.meta), allow_nan=False),
            "extra": json.dumps(_finite(dict(extra or {})), allow_nan=False),
            "checksums": json.dumps({name: _sum(array) for name, array in arrays.items()})}
    meta["texts"] = str(text_sum(meta))
    data = save(arrays, meta)
    write_atomic(path, lambda stream: stream.write(data))
    return Saved(path, state.iteration, path.parent.name, now, state.count, len(data), reason, serial)


def _sum(array: np.ndarray) -> int:
    """Checksum of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def read(path: Path) -> Checkpoint:
    """The whole of it, every checksum verified. Raises CheckpointError."""
    found = header(path)
    try:
        meta, extra = json.loads(found["meta"]), json.loads(found.get("extra", "{}"))
        sums = json.loads(found.get("checksums", "{}"))
        with safe_open(path, framework="np") as file:
            names = set(file.keys())
            strange = min(sums.keys() - names, default="") or min(names - sums.keys(), default="")
            if strange:
                raise CheckpointError(f"{path} is damaged: {strange} {'is missing' if strange in sums else 'was added'}; "
                                      "choose another")
            arrays = {name: file.get_tensor(name) for name in names}
        state = RunState(arrays, meta)
        _ = state.iteration, state.count
    except CheckpointError:
        raise
    except (SafetensorError, OSError, AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); choose another") from None
    wrong = [name for name, array in arrays.items() if sums[name] != _sum(array)]
    if wrong:
        raise CheckpointError(f"{path} is damaged: the checksum of {wrong[0]} differs; choose another")
    return Checkpoint(state, extra, path=path.resolve())


def newest(path: Path) -> Checkpoint:
    """The checkpoint that a file or a run folder stands for: of a folder, the newest that is not damaged; the notices
    name those that are. Raises CheckpointError when there is none."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; name a checkpoint or the folder of a run")
    if path.is_file():
        return read(path)
    found, complaints = find(path)
    for saved in found:
        try:
            checkpoint = read(saved.path)
        except CheckpointError as error:
            complaints.append(str(error))
        else:
            return Checkpoint(checkpoint.state, checkpoint.extra, (*complaints, *checkpoint.notices), checkpoint.path)
    if complaints:
        raise CheckpointError(none_whole(path, complaints))
    raise CheckpointError(f"{path} has no checkpoint to resume from; train into it first, or name another run")
