"""`splatscope compare RUN...`: the figures of runs side by side, what is best, and in which options they differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from app.commands.errors import UsageError, check_output
from render.config import setting


@dataclass(frozen=True)
class CompareArgs:
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = setting(
        (), "Folders of runs, as `splatscope train -m` and the window write them.")
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Also draw the curves of all runs into this picture.")
    json: bool = setting(False, "Print one JSON object instead of tables.")


def run(args: CompareArgs) -> int:
    """Print the comparison; 0. Raises UsageError and SceneError, one sentence each."""
    if not args.runs:
        raise UsageError("splatscope compare needs the folders of runs: splatscope compare RUN RUN.")
    if args.png:
        check_output("png", args.png)
    from app.data.atomic import write_atomic
    from app.records.compare import as_json, compare, text
    from app.records.read import read_run

    found = compare([read_run(path) for path in args.runs])
    print(json.dumps(as_json(found), indent=1) if args.json else text(found))
    if args.png:
        from app.records.plots import png, side_by_side

        data = png(side_by_side(found.runs, found.names))
        write_atomic(Path(args.png).expanduser(), lambda stream: stream.write(data))
    return 0
