"""`splatscope train SCENE -m OUT`: graphdeco's flag names where it has one, and every TrainConfig setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from app.commands.parsing import UsageError
from app.config import EVAL_EVERY, TrainConfig
from app.options import OptionError, coerce, config_from, flatten
from app.records.lock import require_free
from app.training.autosave import AutosaveConfig
from render.config import Backend, setting

if TYPE_CHECKING:
    from app.training.checkpoint import Checkpoint


MOST_THREADS = 256


@dataclass(frozen=True)
class TrainArgs(TrainConfig):
    """Train a scene without a window."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SCENE")] = setting(
        "", "Folder of a COLMAP or transforms.json scene; -s SCENE is understood too.")
    model_path: Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="OUT")] = setting(
        "", "Folder for the results: point_cloud/iteration_N/point_cloud.ply, cameras.json, results.json.")
    resolution: Annotated[int, tyro.conf.arg(aliases=["-r"])] = setting(
        -1, "1, 2, 4 or 8 divides the size of the images, more is a width in px; -1 = at most 1600 px wide.")
    long_side: int = setting(0, "Longer side of the images in px instead of a resolution; 0 = no limit.", unit="px")
    images: str = setting("", "Folder of the images, where it is not called images.")
    eval: bool = setting(False, "Hold out every 8th view, or the test views of the files, and measure on them.")
    test_iterations: tuple[int, ...] = setting((), "Also measure at these iterations (with --eval).")
    save_iterations: tuple[int, ...] = setting((), "Also save at these iterations; the last is always saved.")
    backend: Backend = setting("auto", "What renders: auto takes the fastest that runs here.")
    threads: int = setting(0, "CPU threads; 0 = all.", lo=0, hi=MOST_THREADS)
    resume: bool = setting(False, "Go on from the newest checkpoint in OUT, with the scene and the options of the run; flags "
                           "change them.")
    start_checkpoint: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Go on from this checkpoint instead.")
    autosave: AutosaveConfig = field(default_factory=AutosaveConfig)
    tensorboard: bool = setting(False, "Also write the curves for TensorBoard, into OUT/tb.")
    quiet: bool = setting(False, "No progress bar and no summary.")


def config_of(args: TrainConfig) -> TrainConfig:
    """The training configuration among a command's flags. Raises UsageError naming a value that cannot be."""
    config = TrainConfig(**{f.name: getattr(args, f.name) for f in fields(TrainConfig)})
    for path, value in flatten(config).items():
        try:
            coerce(path, value)
        except OptionError as error:
            raise UsageError(f"--{error}.") from None
    if config.sh_degree > 3:
        raise UsageError(f"--sh_degree is {config.sh_degree}; choose 0, 1, 2 or 3.")
    return config


def resumed(args: TrainArgs, again: Callable[[TrainArgs], TrainArgs]) -> tuple[TrainArgs, Checkpoint | None]:
    """(what is asked for, the checkpoint to go on from). `again` reads the flags once more, on other defaults: those of the
    run. Raises SceneError for a run without a checkpoint."""
    if not args.resume and not args.start_checkpoint:
        return args, None
    from app.training.checkpoint import newest

    if not args.start_checkpoint and not args.model_path:
        raise UsageError("--resume needs the folder of the run: -m OUT --resume.")
    found = newest(Path(args.start_checkpoint or args.model_path).expanduser())
    config, _ = config_from(found.state.meta.get("config", {}))
    scene = found.extra.get("scene", {})
    defaults = replace(TrainArgs(), **{f.name: getattr(config, f.name) for f in fields(TrainConfig)},
                       source=str(scene.get("path", "")), resolution=int(scene.get("resolution", -1)),
                       long_side=int(scene.get("long_side", 0)), images=str(scene.get("images", "")),
                       eval=bool(scene.get("eval_every", 0)))
    return again(defaults), found


def require_tensorboard(wanted: bool) -> None:
    """Raises UsageError where event files are wanted and their package is missing."""
    if wanted:
        from app.records import tensorboard

        try:
            tensorboard.require_tensorboard()
        except ValueError as error:
            raise UsageError(str(error)) from None


def require_threads(threads: int) -> None:
    """Raises UsageError for a number of threads that cannot be."""
    if not 0 <= threads <= MOST_THREADS:
        raise UsageError(f"--threads is {threads}; it must be a number of threads up to {MOST_THREADS}, or 0 for all.")


def run(args: TrainArgs, again: Callable[[TrainArgs], TrainArgs] = lambda defaults: defaults) -> int:
    """Train; returns the exit code. SceneError and UsageError carry one sentence for whoever calls.

    `again` reads the command line once more on other defaults, for a run that is resumed.
    """
    args, found = resumed(args, again)
    if not args.source:
        raise UsageError("splatscope train needs a scene: splatscope train SCENE -m OUT.")
    if not args.model_path:
        raise UsageError("splatscope train needs a folder for the results: -m OUT.")
    config = config_of(args)
    require_threads(args.threads)
    require_tensorboard(args.tensorboard)
    out = Path(args.model_path)
    require_free(out)

    # the slow imports come after the flags are known to be right
    from app.data.open import open_scene
    from app.records.place import prepare_output
    from app.training.recording import Opening
    from app.training.run import say, train_headless
    from app.training.verdict import TrainingStopped

    held_out = EVAL_EVERY if args.eval else 0
    scene = open_scene(args.source, resolution=args.resolution, long_side=args.long_side, images=args.images or None,
                       eval_every=held_out)
    prepare_output(out)   # after the scene, so that a mistyped one leaves no empty folder behind
    for sentence in scene.warnings:
        say(sentence)
    for sentence in without_effect(args, held_out=len(scene.test)):
        say(sentence)
    try:
        results = train_headless(scene, config, out, backend=args.backend, threads=args.threads, quiet=args.quiet,
                                 test_iterations=args.test_iterations, save_iterations=args.save_iterations,
                                 autosave=args.autosave, resume_from=found,
                                 opening=Opening(args.resolution, args.long_side, args.images, held_out),
                                 tensorboard=args.tensorboard)
    except TrainingStopped as stopped:
        say(str(stopped))
        return 1
    if not args.quiet:
        print(summary(results, out))
    return 0


def without_effect(args: TrainArgs, *, held_out: int) -> list[str]:
    """A sentence for each iteration asked for at which nothing will happen."""
    said = []
    if args.test_iterations and not held_out:
        said.append("--test_iterations measures nothing, since no views are held out; add --eval.")
    for name in ("test_iterations", "save_iterations"):
        never = sorted(i for i in getattr(args, name) if not 1 <= i <= args.iterations)
        if never:
            said.append(f"--{name} {' '.join(map(str, never))} has no effect: the run has iterations 1 to {args.iterations}.")
    return said


def summary(results: dict, out: Path) -> str:
    """Two lines for the terminal."""
    held_out = "no held-out views" if results["psnr"] is None else (
        f"held-out PSNR {results['psnr']:.2f} dB, SSIM {results['ssim']:.4f} over {results['test_views']} views")
    return (f"{held_out}; {results['gaussians']:,} Gaussians, {results['seconds']:.1f} s training, "
            f"{results['iterations_per_second']:.1f} it/s on {results['backend']}\n"
            f"written to {out}")
