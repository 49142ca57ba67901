"""`splatscope [PATH]` and `splatscope view X.ply`: the window on a scene, a run or a file of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import tyro

from app.commands.parsing import UsageError
from app.config import TrainConfig
from app.data.scene import SceneError
from app.gui.display import display_problem
from render.config import setting

Backend = Literal["auto", "cuda", "cpu", "reference"]


@dataclass(frozen=True)
class WindowArgs:
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = setting(
        "", "Folder of a COLMAP or transforms.json scene, or a Gaussian PLY; without it the bundled demo opens."
    )
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting(
        "", "Write one JSON line per drawn frame to this file."
    )
    paused: bool = setting(False, "Open the scene without starting to train.")
    iterations: int = setting(TrainConfig.iterations, "Training steps.", unit="it", lo=1, hi=100000)


@dataclass(frozen=True)
class ViewArgs:
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = setting(
        "", "A Gaussian PLY or a run folder."
    )
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    trace: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting(
        "", "Write one JSON line per drawn frame to this file."
    )


def demo_path() -> Path:
    """Folder of the bundled demo scene."""
    folder = Path(str(resources.files("assets"))) / "demo"
    if not (folder / "transforms_train.json").is_file():
        raise SceneError(f"the bundled demo is missing from {folder}; install splatscope again or name a scene folder")
    return folder


def require_display() -> None:
    """Say at once that no window can open here, before seconds are spent on loading torch."""
    problem = display_problem()
    if problem:
        raise UsageError(problem)


def run(args: WindowArgs) -> int:
    """Open the window and train unless asked to wait."""
    require_display()
    from app.launch import launch

    path = args.path or str(demo_path())
    return launch(
        path,
        backend=args.backend,
        trace=args.trace or None,
        play=not args.paused,
        config=TrainConfig(iterations=args.iterations),
    )


def run_view(args: ViewArgs) -> int:
    """Open the window on Gaussians that are not trained further."""
    if not args.path:
        raise SceneError(
            "splatscope view needs a Gaussian PLY; name one, for example `splatscope view point_cloud.ply`"
        )
    if not Path(args.path).exists():
        raise SceneError(f"{args.path} does not exist; name a Gaussian PLY or a run folder")
    require_display()
    from app.launch import launch

    return launch(args.path, backend=args.backend, trace=args.trace or None, play=False, config=TrainConfig())
