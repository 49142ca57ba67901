"""`splatscope [PATH]` and `splatscope view X.ply`: the window on a scene, a run or a file of Gaussians."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from app.commands.parsing import UsageError
from app.commands.train import MOST_THREADS, config_of, require_tensorboard, require_threads
from app.config import TrainConfig
from app.data.checkpoints import is_run
from app.data.scene import SceneError
from app.demo import demo_folder
from app.gui.display import display_problem
from app.options import config_from, flatten
from app.records.lock import require_free
from app.records.place import recent_runs
from app.training.autosave import AutosaveConfig
from render.config import Backend, Domain, setting

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
    threads: int = setting(0, "CPU threads; 0 = all.", lo=0, hi=MOST_THREADS)
    model_path: Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="OUT")] = setting(
        "", "Folder for the record of the run: options, curves, events, plots; without it a new one in your data folder."
    )
    no_record: bool = setting(False, "Keep no record of the run.")
    tensorboard: bool = setting(False, "Also write the curves for TensorBoard, into the folder tb of the record.")
    resume: bool = setting(False, "Go on with the newest run, or with the one in OUT, from its newest checkpoint; a run given "
                           "as PATH goes on in any case.")
    autosave: AutosaveConfig = field(default_factory=AutosaveConfig)
    timeline_megabytes: int = setting(0, "Memory for moments of the run's past; 0 = a tenth of what is free, at most 1,024.",
                                      unit="MiB", lo=0, hi=1_000_000, valid=Domain("between 0 and 100,000,000", 0, 100_000_000))
    paused: bool = setting(False, "Open the scene without starting to train.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting(
        "", "Write one JSON line per drawn frame to this file, in place of an older one.")


FOR_THE_DEMO = WindowArgs(iterations=3000)
"""What the flags start from when the demo opens: it converges in a minute or two, and so should its schedules."""


@dataclass(frozen=True)
class ViewArgs:
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = setting("", "A Gaussian PLY or a run folder.")
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting(
        "", "Write one JSON line per drawn frame to this file, in place of an older one.")


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


def resumed(args: WindowArgs, again: Callable[[WindowArgs], WindowArgs]) -> tuple[WindowArgs, dict[str, Any]]:
    """(the flags, with the path of the run that goes on; the options that they change in it, by path).

    `again` reads the flags once more, on other defaults: those of the run. Raises SceneError where there is none.
    """
    path = args.path
    if args.resume and not (path and is_run(Path(path).expanduser())):
        path = args.model_path or newest_run()
        if not is_run(Path(path).expanduser()):
            raise SceneError(f"{path} has no checkpoint to resume from; name another run")
    if not path or not is_run(Path(path).expanduser()):
        return args, {}
    from app.training.checkpoint import newest

    config, _ = config_from(newest(Path(path).expanduser()).state.meta.get("config", {}))
    args = again(replace(WindowArgs(), **{f.name: getattr(config, f.name) for f in fields(TrainConfig)}))
    before, now = flatten(config), flatten(config_of(args))
    return replace(args, path=path), {name: value for name, value in now.items() if value != before[name]}


def newest_run() -> str:
    """The run of this user that was saved last. Raises SceneError when there is none."""
    runs = recent_runs(1)
    if not runs:
        raise SceneError("there is no run to go on with yet; open a scene first, or name the folder of a run")
    return str(runs[0])


def run(args: WindowArgs, again: Callable[[WindowArgs], WindowArgs] = lambda defaults: defaults) -> int:
    """Open the window and train unless asked to wait. `again` reads the flags once more on other defaults."""
    args, changes = resumed(args, again)
    config = config_of(args)
    require_threads(args.threads)
    path = args.path or str(demo_path())
    require_recognised(path)
    require_display()
    place = place_of(args)
    if place is not None and is_run(run := Path(path).expanduser()):   # it will go on in its own folder
        require_free(run if run.is_dir() else run.absolute().parents[2])
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
        autosave=args.autosave,
        changes=changes,
        timeline_bytes=args.timeline_megabytes << 20,
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
        require_free(folder)
        prepare_output(folder)
        return Place(folder.resolve(), tensorboard=args.tensorboard)
    preferences, _ = load(default_path())   # the window says what is wrong with them
    return Place(tensorboard=args.tensorboard) if preferences.record or args.tensorboard else None


def run_view(args: ViewArgs) -> int:
    """Open the window on Gaussians that are not trained further."""
    if not args.path:
        raise SceneError("splatscope view needs a Gaussian PLY; name one, for example `splatscope view point_cloud.ply`")
    require_recognised(args.path)
    require_display()
    from app.launch import launch

    return launch(args.path, backend=args.backend, trace=args.trace or None, play=False, config=TrainConfig(),
                  resume=False)
