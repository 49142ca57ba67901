"""`splatscope compare RUN...`: the figures of runs side by side, what is best, and in which options they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from app.commands.errors import UsageError, check_output, say
from render.config import setting

SHOWN = 5
"""Runs that are named where none is given."""


@dataclass(frozen=True)
class CompareArgs:
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = setting(
        (), "Folders of runs, as `splatscope train -m` and the window write them; those of the window also by name alone.")
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Also draw the curves of all runs into this picture, in "
                                                                     "place of an older one.")
    json: bool = setting(False, "Print one JSON object instead of tables.")


def run(args: CompareArgs) -> int:
    """Print the comparison; 0. Raises UsageError and SceneError, one sentence each."""
    from app.records.read import newest_runs, read_run

    if not args.runs:
        names = [folder.name for folder in newest_runs(SHOWN)]
        newest = f" The newest runs of the window: {', '.join(names)}." if names else ""
        raise UsageError(f"splatscope compare needs the folders of runs: splatscope compare RUN RUN.{newest}")
    if args.png:
        ending = Path(args.png).suffix
        if ending.lower() != ".png":
            raise UsageError(f"--png {args.png} {f'ends in {ending}' if ending else 'has no ending'}; name a picture that ends "
                             "in .png.")
        check_output("png", args.png)
    from app.data.atomic import write_atomic
    from app.records.compare import as_json, compare, text

    found = compare([read_run(folder) for folder in once(args.runs)])
    print(json.dumps(as_json(found), indent=1) if args.json else text(found))
    if args.png:
        from app.records.plots import png, side_by_side

        data = png(side_by_side(found.runs, found.names))
        write_atomic(Path(args.png).expanduser(), lambda stream: stream.write(data))
    return 0


def once(names: Sequence[str]) -> list[Path]:
    """The folders that names stand for; one that is named again, maybe otherwise, is left out and said."""
    folders: dict[Path, Path] = {}
    again: dict[Path, str] = {}
    for folder in map(where, names):
        if folders.setdefault(folder.resolve(), folder) is not folder:
            again[folder.resolve()] = str(folders[folder.resolve()])
    for name in again.values():
        say(f"the run {name} is named more than once; it is compared once")
    return list(folders.values())


def where(name: str) -> Path:
    """The folder that a name stands for: as it is, or below the folder of the runs that nobody named."""
    from app.records.place import runs_root

    given = Path(name).expanduser()
    below = runs_root() / name
    return below if not given.exists() and Path(name).name == name and below.is_dir() else given
