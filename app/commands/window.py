"""`splatscope [PATH]` and `splatscope view X.ply`: the window on a scene, a run or a file of Gaussians."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from app.commands.parsing import UsageError
from app.commands.train import config_of, require_tensorboard, require_threads
from app.config import TrainConfig
from app.data.scene import SceneError
from app.demo import demo_folder
from app.gui.display import display_problem
from render.config import Backend, setting

if TYPE_CHECKING:
    from app.records.place import Place


@dataclass(frozen=True)
class WindowArgs(TrainConfig):
    """Everything that training can be told, and what only the window needs."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = setting(
        "", "Folder of a COLMAP or transforms.json scene, a run or a Gaussian PLY; without it the bundled demo opens, "
        "for 3,000 iterations."
    )
    resolution: Annotated[int, tyro.conf.arg(aliases=["-r"])] = setting(
        -1, "1, 2, 4 or 8 divides the size of the images, more is a width in px; -1 = at most 1600 px wide."
    )
    long_side: int = setting(0, "Longer side of the images in px instead of a resolution; 0 = no limit.", unit="px")
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    threads: int = setting(0, "CPU threads; 0 = all.", lo=0, hi=256)
    model_path: Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="OUT")] = setting(
        "", "Folder for the record of the run: options, curves, events, plots; without it a new one in your data folder."
    )
    no_record: bool = setting(False, "Keep no record of the run.")
    tensorboard: bool = setting(False, "Also write the curves for TensorBoard, into the folder tb of the record.")
    paused: bool = setting(False, "Open the scene without starting to train.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Write one JSON line per drawn frame to this file.")


FOR_THE_DEMO = WindowArgs(iterations=3000)
"""What the flags start from when the demo opens: it converges in a minute or two, and so should its schedules."""


@dataclass(frozen=True)
class ViewArgs:
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = setting("", "A Gaussian PLY or a run folder.")
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Write one JSON line per drawn frame to this file.")


def demo_path() -> Path:
    """Folder of the bundled demo scene."""
    folder = demo_folder()
    if not (folder / "transforms_train.json").is_file():
        raise SceneError(f"the bundled demo is missing from {folder}; install splatscope again or name a scene folder")
    return folder


def require_recognised(path: str) -> None:
    """Say what is wrong with a path before a window opens on it."""
    from app.data.open import recognise

    found = recognise(path)
    if found.kind == "unknown":
        raise SceneError(found.warnings[0])


def require_display() -> None:
    """Say at once that no window can open here, before seconds are spent on loading torch."""
    problem = display_problem()
    if problem:
        raise UsageError(problem)


def run(args: WindowArgs) -> int:
    """Open the window and train unless asked to wait."""
    config = config_of(args)
    require_threads(args.threads)
    path = args.path or str(demo_path())
    require_recognised(path)
    require_display()
    place = place_of(args)
    from app.launch import launch

    return launch(
        path,
        backend=args.backend,
        trace=args.trace or None,
        play=not args.paused,
        config=config,
        resolution=args.resolution,
        long_side=args.long_side,
        threads=args.threads,
        debug=bool(os.environ.get("SPLATSCOPE_DEBUG")),
        record=place,
    )


def place_of(args: WindowArgs) -> Place | None:
    """Where the flags and the preferences let the run be recorded. Raises UsageError for flags that cannot be."""
    from app.gui.preferences import default_path, load
    from app.records.place import Place, prepare_output

    if args.no_record:
        for flag in ("model_path", "tensorboard"):
            if getattr(args, flag):
                raise UsageError(f"--no_record and --{flag} contradict each other; leave one of them out.")
        return None
    require_tensorboard(args.tensorboard)
    if args.model_path:
        folder = Path(args.model_path).expanduser().absolute()
        prepare_output(folder)
        return Place(folder, tensorboard=args.tensorboard)
    preferences, _ = load(default_path())   # the window says what is wrong with them
    return Place(tensorboard=args.tensorboard) if preferences.record or args.tensorboard else None


def run_view(args: ViewArgs) -> int:
    """Open the window on Gaussians that are not trained further."""
    if not args.path:
        raise SceneError("splatscope view needs a Gaussian PLY; name one, for example `splatscope view point_cloud.ply`")
    require_recognised(args.path)
    require_display()
    from app.launch import launch

    return launch(args.path, backend=args.backend, trace=args.trace or None, play=False, config=TrainConfig())
