"""`splatscope render RUN_OR_PLY ... --out OUT`: pictures or a video of finished Gaussians, without a window."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from app.commands.errors import UsageError, say
from app.commands.train import MOST_THREADS, require_threads
from app.data.scene import Scene, SceneError
from app.messages import MODES, ViewRequest
from render.config import Backend, setting

if TYPE_CHECKING:
    from app.commands.render_cameras import Shots
    from app.config import TrainConfig
    from app.engine.frozen_model import FrozenModel
    from render.types import Camera, GaussianParams

T = TypeVar("T")
LARGEST_SIDE = 8192
BACKGROUNDS = {"black": (0.0, 0.0, 0.0), "white": (1.0, 1.0, 1.0)}
Mode = Literal["color", "depth", "transmittance", "error", "difference", "truth", "contributors", "ellipsoids", "points",
               "heatmap"]


@dataclass(frozen=True)
class RenderArgs:
    """Pictures or a video of finished Gaussians, without a window."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_PLY")] = setting(
        "", "Folder of a training run, a checkpoint, or a Gaussian PLY.")
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="OUT")] = setting(
        "", "A video, NAME.mp4, or a folder for PNGs.")
    overwrite: bool = setting(False, "Replace a video of that name, or PNGs of the same names in that folder; other files "
                              "there stay.")
    path: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Along a camera path, saved in the window's tab Camera.")
    turntable: bool = setting(False, "Once around the middle.")
    views: bool = setting(False, "From every camera of the photographs.")
    scene: Annotated[str, tyro.conf.arg(metavar="SCENE")] = setting(
        "", "The scene that the Gaussians were trained on: its cameras and photographs; without it a run's cameras.json, or "
        "the scene that the run names.")
    width: int = setting(0, "Of the pictures; 0 = 1280, or as the other side and the photographs say.", unit="px", lo=0,
                         hi=LARGEST_SIDE)
    height: int = setting(0, "Of the pictures; 0 = 720, or as the other side and the photographs say.", unit="px", lo=0,
                          hi=LARGEST_SIDE)
    fps: float = setting(30.0, "Frames per second.", lo=1.0, hi=240.0)
    mode: Mode = setting("color", "What to show; error, difference and truth need --views and --scene.")
    quantity: str = setting("opacity", "Of a heatmap, such as opacity, largest_scale, anisotropy.")
    value_range: Annotated[tuple[float, ...], tyro.conf.arg(metavar="LOW HIGH")] = setting(
        (), "The numbers at the ends of the colours; without them the same automatic ones for all frames.")
    background: str = setting("", "black, white or R,G,B from 0 to 1; without it the one of the training.")
    seconds: float = setting(8.0, "How long the turntable goes around.", unit="s")
    radius: float = setting(0.0, "Of the turntable, in world units; 0 = as far as the photographs were taken from.")
    above: float | None = setting(None, "Height of the turntable over the middle, in world units; without it as high as the "
                                  "photographs.")
    up: Annotated[tuple[float, ...], tyro.conf.arg(metavar="X Y Z")] = setting(
        (), "What is up, for the turntable; without it as the photographs say.")
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    threads: int = setting(0, "CPU threads; 0 = all.", lo=0, hi=MOST_THREADS)
    quiet: bool = setting(False, "No progress bar, no summary, and nothing of what will be drawn.")


def check(args: RenderArgs) -> None:
    """Raises UsageError, one sentence, for flags that cannot be; before anything is loaded."""
    if not args.model:
        raise UsageError("splatscope render needs Gaussians: splatscope render RUN_OR_PLY --turntable --out OUT.")
    if not args.out:
        raise UsageError("splatscope render needs a place for the result: --out NAME.mp4, or --out FOLDER.")
    if bool(args.path) + args.turntable + args.views != 1:
        raise UsageError("choose exactly one of --path FILE, --turntable and --views.")
    for name in ("width", "height"):
        if not 0 <= getattr(args, name) <= LARGEST_SIDE:
            raise UsageError(f"--{name} is {getattr(args, name)}; it must be at most {LARGEST_SIDE} px, or 0.")
    if MODES[args.mode].needs_photograph and not (args.views and args.scene):
        raise UsageError(f"--mode {args.mode} compares with photographs: add --views --scene SCENE.")
    if args.value_range and not (len(args.value_range) == 2 and -1e30 < args.value_range[0] < args.value_range[1] < 1e30):
        raise UsageError("--value_range takes two numbers, the lower one first.")
    if args.up and not (len(args.up) == 3 and 0.0 < np.linalg.norm(args.up) < 1e30):
        raise UsageError("--up takes three numbers, a direction.")
    if not (0.0 < args.seconds <= 3600.0 and 0.0 <= args.radius < 1e30):
        raise UsageError("--seconds must be more than 0 and at most 3600, and --radius at least 0.")
    background_of(args.background)
    require_threads(args.threads)


def background_of(text: str) -> tuple[float, ...] | None:
    """None = as training had it. Raises UsageError."""
    if not text or text in BACKGROUNDS:
        return BACKGROUNDS.get(text)
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(0.0 <= value <= 1.0 for value in values):
        raise UsageError(f"--background is {text!r}; give black, white or three numbers from 0 to 1, such as 0.2,0.2,0.25.")
    return values


def spare(args: RenderArgs, names: Sequence[str] = ()) -> None:
    """Raises UsageError where something would be replaced that nobody said may be; a folder's pictures have these names."""
    from app.data.films import in_the_way

    there = "" if args.overwrite else in_the_way(args.out, names)
    if there:
        raise UsageError(f"{there}; choose another name for --out, or add --overwrite to replace what is there.")


def run(args: RenderArgs) -> int:
    """Draw; returns the exit code. SceneError and UsageError carry one sentence for whoever calls."""
    from app.data.films import check_film

    check(args)
    check_film(args.out, args.fps)
    spare(args)
    where = Path(args.model).expanduser()
    scene = _scene(args)
    source = read_model(where)

    from app.commands.render_cameras import guess, shots, surroundings, views_of
    from app.training.backend import ready_backend, set_threads, usable_cores

    views, why = ([], "") if args.path else views_of(where, scene)
    wanted = shots(args, views, surroundings(views, scene, source.means(), args.up))
    spare(args, wanted.names)
    ready = ready_backend(args.backend)
    for sentence in (*source.notices, guess(args, views, why), ready.sentence):
        if sentence:
            say(sentence)
    set_threads(args.threads or usable_cores(), ready.name)
    model = source.model(ready.name, scene, background_of(args.background))
    sentence = film(args, model, wanted)
    if not args.quiet:
        print(sentence)
    return 0


def _scene(args: RenderArgs) -> Scene | None:
    if not args.scene:
        return None
    from app.data.open import open_scene

    return open_scene(args.scene)


# ---------------------------------------------------------------- the Gaussians


@dataclass(frozen=True)
class Source:
    """Gaussians from a file, and how they were trained."""

    path: Path
    params: GaussianParams
    config: TrainConfig
    iteration: int = 0
    notices: tuple[str, ...] = ()

    def means(self) -> np.ndarray:
        return self.params.means.numpy()

    def model(self, backend: str, scene: Scene | None, background: tuple[float, ...] | None) -> FrozenModel:
        import torch

        from app.engine.frozen_model import FrozenModel
        from render.pipeline import device_of

        device = device_of(backend)
        degree = round((self.params.shN.shape[1] + 1) ** 0.5) - 1
        backdrop = None if background is None else torch.tensor(background, dtype=torch.float32, device=device)
        return FrozenModel(str(self.path), scene=scene, fixed_params=self.params.to(device), fixed_config=self.config,
                           fixed_backend=backend, iteration_then=self.iteration, backdrop=backdrop, degree_then=degree)


def read_model(where: Path) -> Source:
    """The newest Gaussians of a run, of its PLYs and its checkpoints, or a file's. Raises SceneError."""
    from app.data.checkpoints import SUFFIX, find
    from app.data.open import find_gaussians, find_run

    if not where.exists():
        raise SceneError(f"{where} does not exist; name the folder of a run, a checkpoint or a Gaussian PLY")
    if where.is_file() and where.suffix == SUFFIX:
        return _of_checkpoint(where)
    saved = find_run(where)
    checkpoints = find(where)[0] if where.is_dir() else []
    if checkpoints and max(found.iteration for found in checkpoints) > (saved[-1][0] if saved else -1):
        return _of_checkpoint(where)
    file = find_gaussians(where)
    if file is None:
        raise SceneError(f"{where} holds no Gaussians: it is no PLY and no run with a point_cloud or a checkpoint; "
                         "name what `splatscope train -m` wrote")
    return _of_ply(file, where, saved[-1][0] if saved else 0)


def _of_ply(file: Path, run_folder: Path, iteration: int) -> Source:
    from app.config import TrainConfig
    from app.data.gaussians import read_gaussians
    from app.options import config_from
    from app.training.arrays import to_params

    loaded = read_gaussians(file)
    config, notices = TrainConfig(), list(loaded.notices)
    record = run_folder / "config.json"
    if run_folder.is_dir() and record.is_file():   # antialiasing, the low-pass and the background as they were trained
        try:
            config, _ = config_from(json.loads(record.read_text(encoding="utf-8"))["config"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            notices.append(f"{record} cannot be read, so the default rules of rendering hold.")
    return Source(file, to_params(loaded.gaussians, str(file)), config, iteration, tuple(notices))


def _of_checkpoint(where: Path) -> Source:
    from app.options import config_from
    from app.training.checkpoint import newest

    found = newest(where)
    config, _ = config_from(found.state.meta.get("config", {}))
    return Source(found.path or where, found.state.params(), config, found.state.iteration, found.notices)


# ---------------------------------------------------------------- drawing


def film(args: RenderArgs, model: FrozenModel, wanted: Shots) -> str:
    """Draw every shot and write it; returns what was done. What is finished when it ends early is kept, as far as it is
    whole."""
    from app.camera_path import framed
    from app.data.films import film_size, is_video, older_pictures, open_film
    from app.engine.drawing import coloured, draw, to_bytes
    from app.engine.photographs import Photographs
    from app.progress import progress_bar

    sizes = [film_size(args.out, camera.width, camera.height) for camera in wanted.cameras]
    cameras = [camera if (camera.width, camera.height) == size else framed(camera, *size)
               for camera, size in zip(wanted.cameras, sizes, strict=True)]
    if max(max(camera.width, camera.height) for camera in cameras) > LARGEST_SIDE:
        raise UsageError(f"a picture may be at most {LARGEST_SIDE} px wide and high; give a smaller --width and --height.")
    requests = [ViewRequest(camera, args.mode, args.quantity, tuple(args.value_range) or None,  # type: ignore[arg-type]
                            wanted.indices[k] if wanted.indices else None) for k, camera in enumerate(cameras)]
    photographs = Photographs()
    found = _ended(coloured(model, requests, photographs))
    if found.note:   # it would show something else than what was asked for
        raise UsageError(found.note[:1].lower() + found.note[1:])
    output, done = open_film(args.out, wanted.names, cameras[0].width, cameras[0].height, args.fps,
                             overwrite=args.overwrite), 0
    if not args.quiet:
        rate = f" at {args.fps:g} frames per second" if is_video(args.out) else ""
        say(f"drawing {counted(cameras)}{rate}")
    try:
        with progress_bar(len(requests), unit="frame", desc="rendering", quiet=args.quiet) as bar:
            for request in map(found.of, requests):
                output.add(to_bytes(draw(model, request, request.camera, photographs).rgb))
                done += 1
                bar.update()
        output.finish()
    except BaseException:
        output.abort()
        if done and not is_video(args.out):
            say(f"{done} of {len(requests)} pictures are in {args.out}")
        raise
    rate = f", {len(requests) / args.fps:.1f} s" if is_video(args.out) else ""
    sentence = f"{counted(cameras)}{rate}, written to {args.out}"
    if args.overwrite and not is_video(args.out) and (older := older_pictures(args.out, wanted.names)):
        say(f"{args.out} also holds {older} older PNG{'s' if older > 1 else ''} of other names, left as before")
    if (legend := found.legend) is not None:
        sentence += f"\n{legend.label} from {legend.lo:.4g} to {legend.hi:.4g} {legend.unit}".rstrip()
    return sentence


def counted(cameras: Sequence[Camera]) -> str:
    """How many frames of which size; photographs, and so their views, may be of several."""
    width, height = max(camera.width for camera in cameras), max(camera.height for camera in cameras)
    several = len({(camera.width, camera.height) for camera in cameras}) > 1
    frames = f"{len(cameras):,} frame{'s' if len(cameras) > 1 else ''}"
    return f"{frames} of {'at most ' if several else ''}{width} x {height} px"


def _ended(work: Generator[Any, None, T]) -> T:
    """What a part of a job returns, worked off at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
