"""Where the record of a run lies: the folder that the user names, or a new one below the user's data folder."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app.data.checkpoints import FOLDER, SUFFIX
from app.data.regular import regular
from app.data.scene import SceneError
from app.records.lock import in_use

CONFIG = "config.json"
KEPT_DEMOS = 20
"""Runs of the bundled demo that nobody named: so many of the newest are kept."""
LIVE_SECONDS = 3600.0
"""A run that was written to so recently may still be going on."""
_STAMPED = re.compile(r"-\d{8}-\d{6}(-\d+)?$")


def runs_root() -> Path:
    """The folder of the runs that nobody named, on this system."""
    import platformdirs

    return Path(platformdirs.user_data_dir("splatscope", appauthor=False)) / "runs"


def recent_runs(limit: int, root: Path | None = None) -> list[Path]:
    """The runs that nobody named and that have a checkpoint, the one saved last first."""
    folder = root or runs_root()
    found = [(max(file.stat().st_mtime for file in files), run) for run in (folder.iterdir() if folder.is_dir() else ())
             if (files := list(run.glob(f"{FOLDER}/*/iteration_*{SUFFIX}")))]
    return [run for _, run in sorted(found, reverse=True)[:limit]]


def prepare_output(folder: Path) -> None:
    """Make the folder of a run and see that it can be written, before anything is computed. Raises SceneError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SceneError(f"{folder} cannot be written ({(error.strerror or str(error)).lower()}); "
                         "choose another folder with -m") from None


@dataclass(frozen=True)
class Place:
    """Where a window's runs are recorded: `folder`, or one folder a run below `root` (None = runs_root())."""

    folder: Path | None = None
    root: Path | None = None
    tensorboard: bool = False

    def choose(self, scene: str, now: datetime | None = None) -> Path:
        """The folder of a run that begins now on the scene of this path; nothing is made yet."""
        if self.folder is not None:
            return self.folder
        name = re.sub(r"[^\w.-]+", "_", Path(scene).resolve().name).strip("._") or "scene"
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        root = self.root or runs_root()
        path, number = root / f"{name}-{stamp}", 2
        while path.exists():
            path, number = root / f"{name}-{stamp}-{number}", number + 1
        return path


def prune_demos(root: Path, spare: Path, keep: int = KEPT_DEMOS) -> list[Path]:
    """Remove all but the newest unnamed runs of the demo; runs of other scenes are the user's work and stay.

    `spare`, what was written to in the last hour and what a process holds stay too. Returns what was removed; errors leave
    folders behind.
    """
    runs = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink() and _STAMPED.search(path.name)
            and _of_demo(path)]
    runs.sort(key=lambda path: path.name, reverse=True)   # all are of one scene, so names sort by time
    removed = []
    for path in runs[keep:]:
        newest = max((file.stat().st_mtime for file in path.glob("*.jsonl")), default=0.0)
        if path != spare and newest < time.time() - LIVE_SECONDS and not in_use(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _of_demo(folder: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return json.loads(regular(folder / CONFIG).read_text(encoding="utf-8"))["scene"]["kind"] == "demo"
    return False
