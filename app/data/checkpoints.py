"""Checkpoint files of a run folder, as far as their headers go: what there is, how far it is, and whether it is whole.

They lie in checkpoints/BRANCH/iteration_N.safetensors; app/training/checkpoint.py reads and writes the whole of them.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from safetensors import SafetensorError, safe_open

from app.data.regular import regular
from app.data.ring import NEWEST, surplus
from app.data.scene import SceneError

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
FORMAT = "splatscope checkpoint"
VERSION = 1
ABANDONED_SECONDS = 600.0
"""A half-written file that nobody has touched for so long is the rest of a process that was killed."""
MAIN = "main"
"""The branch that a run begins with."""


@dataclass(frozen=True)
class Saved:
    """What the header of a checkpoint file says."""

    path: Path
    iteration: int
    branch: str           # the folder that it lies in
    saved_at: float       # seconds since the epoch
    gaussians: int
    nbytes: int           # of the file
    reason: str = ""      # why: "time", "iterations", "close", "stop", "user", "end", "branch", "start"
    serial: int = 0       # counts the files of a run, since clocks go back

    @property
    def order(self) -> tuple[int, float]:
        """Rises from one file of a run to the next."""
        return self.serial, self.saved_at


class CheckpointError(SceneError):
    """A file that cannot be taken up; one sentence."""


def place(run: Path, iteration: int, branch: str = MAIN) -> Path:
    """Raises ValueError without a branch: what lies beside the branches' folders is found by nobody."""
    if not branch:
        raise ValueError("a checkpoint needs the name of its branch")
    return run / FOLDER / branch / f"iteration_{iteration}{SUFFIX}"


def text_sum(meta: Mapping[str, str]) -> int:
    """Checksum of the texts in a header."""
    return zlib.crc32("\n".join(meta.get(name, "") for name in ("head", "meta", "extra", "checksums")).encode())


def header(path: Path) -> dict[str, str]:
    """The texts in a file's header. Raises CheckpointError."""
    try:
        with safe_open(regular(path), framework="np") as file:
            found = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is no checkpoint or is damaged ({error}); choose another") from None
    if found.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but no checkpoint of a training run; choose another")
    version = found.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise CheckpointError(f"{path} was written by a newer version of Splatscope (format {version}, this one reads up to "
                              f"{VERSION}); update Splatscope")
    if found.get("texts") != str(text_sum(found)):
        raise CheckpointError(f"{path} is damaged: the checksum of its header differs; choose another")
    return found


def describe(path: Path) -> Saved:
    """What a file is, without reading its arrays. Raises CheckpointError."""
    found = header(path)
    try:
        head = json.loads(found["head"])
        return Saved(path, int(head["iteration"]), path.resolve().parent.name, float(head.get("saved_at", 0.0)),
                     int(head.get("gaussians", 0)), path.stat().st_size, str(head.get("reason", "")),
                     int(head.get("serial", 0)))
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: its header cannot be read ({error}); choose another") from None


def find(run: Path) -> tuple[list[Saved], list[str]]:
    """(what a run folder has, newest first; sentences about files that are damaged)."""
    found, complaints = [], []
    for path in sorted((run / FOLDER).glob(f"*/iteration_*{SUFFIX}")):
        try:
            found.append(describe(path))
        except CheckpointError as error:
            complaints.append(str(error))
    found.sort(key=lambda saved: (*saved.order, saved.iteration), reverse=True)
    return found, complaints


def none_whole(run: Path, complaints: Sequence[str]) -> str:
    """One sentence about a run folder none of whose checkpoints can be read; `complaints` has one of each."""
    files = sorted(run.glob(f"{FOLDER}/*/iteration_*{SUFFIX}"), key=lambda file: file.stat().st_mtime)
    latest = next((said for file in reversed(files) for said in complaints if said.startswith(f"{file} ")), complaints[0])
    if len(complaints) == 1:
        return latest
    what = "are damaged" if all(" damaged" in said for said in complaints) else "cannot be read"
    return (f"all {len(complaints)} checkpoints in {run} {what} (newest: {latest.replace('; choose another', '')}); "
            "choose another run")


def thin_out(run: Path, budget: int) -> list[Path]:
    """Delete checkpoints until they take at most `budget` bytes; returns what is gone.

    The two that were saved last always stay, which is what resuming goes by, and so does the end of each branch.
    What a killed process left half-written goes too.
    """
    found, _ = find(run)
    newest, gone = {saved.path for saved in found[:NEWEST]}, []
    for branch in {saved.branch for saved in found}:
        entries = sorted((saved for saved in found if saved.branch == branch), key=lambda saved: saved.iteration)
        share = budget * sum(s.nbytes for s in entries) // max(1, sum(s.nbytes for s in found))
        for index in surplus([(saved.iteration, saved.nbytes) for saved in entries], share, newest=1):
            if entries[index].path not in newest:
                entries[index].path.unlink(missing_ok=True)
                gone.append(entries[index].path)
    for rest in (run / FOLDER).glob(f"*/.iteration_*{SUFFIX}.*.tmp"):
        with contextlib.suppress(OSError):
            if rest.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                rest.unlink()
    return gone


def by_iteration(folder: Path) -> dict[int, Path]:
    """The checkpoint files in a branch's folder, by the names that they have."""
    return {int(number): path for path in folder.glob(f"iteration_*{SUFFIX}")
            if (number := path.stem.removeprefix("iteration_")).isdigit()}


def begins_as(run: Path, taken: Collection[str] = ()) -> str:
    """The branch on which a new run begins in a folder: main, or where one has run there, or is `taken`, another."""
    return free_branch(run, "run", taken) if taken or is_run(run) else MAIN


def free_branch(run: Path, word: str, taken: Collection[str] = ()) -> str:
    """"WORD-2" and so on: a name that no branch in a run folder has, nor one of `taken`."""
    names = {name.lower() for name in taken} | {path.name.lower() for path in (run / FOLDER).glob("*")}
    return next(name for number in count(2) if (name := f"{word}-{number}").lower() not in names)


def goes_on_as(path: Path, iteration: int) -> str:
    """The branch on which a run goes on from a checkpoint file: its own, or another where its own has gone further, so that
    the files of that future stay what they are."""
    branch, run = path.parent.name, path.parent.parent.parent
    return free_branch(run, branch) if max(by_iteration(path.parent), default=0) > iteration else branch


def is_run(where: Path) -> bool:
    """Whether a path is a checkpoint, or a folder that has some."""
    if where.is_file():
        return where.suffix == SUFFIX
    return next((where / FOLDER).glob(f"*/iteration_*{SUFFIX}"), None) is not None


def run_of(path: Path) -> Path | None:
    """The run folder that a checkpoint file lies in; None where it was taken out of one."""
    folder = path.parent.parent.parent
    return folder if path.parent.parent.name == FOLDER else None
