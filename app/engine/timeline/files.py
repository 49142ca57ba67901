"""What a run folder has of branches, by the names of its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.data.checkpoints import FOLDER, by_iteration
from app.engine.timeline.branches import Branch, Branches


def files_of(branch: Branch) -> dict[int, Path]:
    """Checkpoints of a branch by iteration."""
    folder = branch.folder / FOLDER / branch.name if branch.folder is not None else None
    return {} if folder is None else by_iteration(folder)


def unknown(folder: Path | None, known: Branches) -> Iterator[Branch]:
    """Branches of a run folder that nobody remembers but for, maybe, their labels; where they parted from others is not
    known."""
    needed = {path for branch in known for path in branch.inherited.values()}
    names, labels = {branch.name for branch in known}, {branch.label for branch in known}
    for path in sorted((folder / FOLDER).glob("*")) if folder is not None else ():
        files = by_iteration(path) if path.is_dir() and path.name not in names else {}
        if files and not needed.issuperset(files.values()):   # else one that was deleted, whose past others share
            label = known.left.get(path.name, path.name)
            yield Branch(path.name, path.name if label in labels else label, folder=folder, on_disk=files, tip=max(files),
                         known=max(files), recorded=True)
