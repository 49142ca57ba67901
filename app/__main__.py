"""The command line: `splatscope ...`, or `python -m app ...`. Only the chosen command's modules are imported, and inside
guarded(), so that Ctrl-C while they load is one line too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from app.commands.errors import UsageError, guarded

ABOUT = """Watch a 3D Gaussian splatting scene converge live, and take it apart while it trains.

splatscope [PATH]                  open a window on a scene, or on the bundled demo
splatscope RUN                     go on with a run; --resume goes on with the newest one
splatscope train SCENE -m OUT      train without a window
splatscope view FILE.ply           open a window on a finished model
splatscope render RUN_OR_PLY       pictures or a video along a path, around, or from the photographs' places
splatscope info PATH               say what a path holds
splatscope compare RUN RUN ...     put the figures and curves of runs side by side
splatscope gradcheck SCENE_OR_RUN  check gradients by finite differences
splatscope audit MODULE:FUNCTION   say what is wrong with another rasterizer
splatscope doctor                  say what was found here and what will be used

Each command has its own --help. --debug shows the traceback of an error, --version the version.
A folder that is named like a command is opened as ./NAME."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    if debug:
        words.remove("--debug")
        os.environ["SPLATSCOPE_DEBUG"] = "1"
    if "--version" in words:
        print(f"splatscope {metadata.version('splatscope')}")
        return 0
    name = words[0] if words and words[0] in COMMANDS else ""
    return guarded(lambda: COMMANDS[name](words[1:] if name else words), debug=debug)


def _window(words: list[str]) -> int:
    from app.commands.parsing import parse
    from app.commands.window import FOR_THE_DEMO, WindowArgs, run

    if "-h" in words or "--help" in words:
        print(ABOUT + "\n")  # printed here, for the help of the flags would reflow it
    try:
        args = parse(WindowArgs, words, prog="splatscope", description="Flags of the window:")
    except UsageError:
        first = words[0]
        if first.startswith("-") or os.path.exists(os.path.expanduser(first)):
            raise
        names = ", ".join(name for name in COMMANDS if name)  # most likely a mistyped command with its flags
        raise UsageError(f"{first} is none of the commands {names}, and no path either; see `splatscope --help`.") from None
    if not args.path and not args.resume:
        args = parse(WindowArgs, words, prog="splatscope", description="", defaults=FOR_THE_DEMO)
    return run(args, lambda defaults: parse(WindowArgs, words, prog="splatscope", description="", defaults=defaults))


def _view(words: list[str]) -> int:
    from app.commands.parsing import parse
    from app.commands.window import ViewArgs, run_view

    return run_view(
        parse(
            ViewArgs,
            source_as_positional(words),
            prog="splatscope view",
            description="Open a window on a finished model.",
        )
    )


def _train(words: list[str]) -> int:
    from app.commands.parsing import parse
    from app.commands.train import TrainArgs, run

    def read(defaults: TrainArgs | None = None) -> TrainArgs:
        return parse(TrainArgs, source_as_positional(words), prog="splatscope train",
                     description="Train a scene without a window.", defaults=defaults)

    return run(read(), read)


def _render(words: list[str]) -> int:
    from app.commands.parsing import parse
    from app.commands.render import RenderArgs, run

    return run(
        parse(
            RenderArgs,
            words,
            prog="splatscope render",
            description="Draw pictures or a video of finished Gaussians.",
        )
    )


def _info(words: list[str]) -> int:
    from app.commands.info import InfoArgs, run
    from app.commands.parsing import parse

    args = parse(
        InfoArgs,
        source_as_positional(words),
        prog="splatscope info",
        description="Say what a path was recognised as.",
    )
    if not args.path:
        raise UsageError("splatscope info needs a path: splatscope info SCENE.")
    return run(args.path, args.json)


def _compare(words: list[str]) -> int:
    from app.commands.compare import CompareArgs, run
    from app.commands.parsing import parse

    return run(
        parse(
            CompareArgs,
            words,
            prog="splatscope compare",
            description="Put the figures and curves of runs side by side.",
        )
    )


def _gradcheck(words: list[str]) -> int:
    from app.commands.gradcheck import GradcheckArgs, run
    from app.commands.parsing import parse

    return run(
        parse(
            GradcheckArgs,
            source_as_positional(words),
            prog="splatscope gradcheck",
            description="Check gradients by central differences in float64.",
        )
    )


def _audit(words: list[str]) -> int:
    from app.commands.audit import AuditArgs, run
    from app.commands.parsing import parse

    return run(
        parse(
            AuditArgs,
            words,
            prog="splatscope audit",
            description="Say what is wrong with a differentiable rasterizer, and by which rules it draws.",
        )
    )


def _doctor(words: list[str]) -> int:
    from app.commands.doctor import DoctorArgs, run
    from app.commands.parsing import parse

    return run(
        parse(
            DoctorArgs,
            words,
            prog="splatscope doctor",
            description="Say what was found, what will be used and how to get more.",
        )
    )


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "": _window,
    "train": _train,
    "view": _view,
    "render": _render,
    "info": _info,
    "compare": _compare,
    "gradcheck": _gradcheck,
    "audit": _audit,
    "doctor": _doctor,
}


def source_as_positional(words: Sequence[str]) -> list[str]:
    """`-s SCENE` and `--source_path SCENE`, as other trainers call it, become the positional that our commands take.

    Raises UsageError when the flag stands last, without its value.
    """
    out: list[str] = []
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag not in ("-s", "--source_path", "--source-path"):
            out.append(word)
            continue
        given = value if equals else next(rest, None)
        if given is None:
            raise UsageError(f"{flag} needs the scene's folder behind it.")
        found.append(given)
    # in front: a flag with several values, such as --test_iterations, would swallow it at the end
    return found + out


if __name__ == "__main__":
    sys.exit(main())
