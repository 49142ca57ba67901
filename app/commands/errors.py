"""What a command may end with: 0, 1 (our fault), 2 (the input's), 130 (Ctrl-C); never a traceback unless asked for."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

INTERRUPTED = 130
SMALLER = "use smaller images (-r 2, -r 4) or fewer Gaussians (--densify.cap 200000)"

class UsageError(ValueError):
    """The command line cannot be understood; the message is one sentence."""


def guarded(run: Callable[[], int], *, debug: bool) -> int:
    """The exit code of run(). Every failure becomes one sentence on stderr; with `debug` its traceback comes first."""
    print_any_name()
    try:
        return run()
    except KeyboardInterrupt:
        say("stopped by Ctrl-C")
        return INTERRUPTED
    except BrokenPipeError:
        # `splatscope info X | head` closed the pipe; a second flush at exit would complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        code, sentence = explain(error)
        say(sentence)
        return code


def print_any_name() -> None:
    """Let stdout write what its encoding lacks as an escape: a folder may be named in letters that a Windows code page,
    used for pipes and files there, does not have. stderr is like that from the start."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def explain(error: Exception) -> tuple[int, str]:
    """(exit code, one sentence) for an exception that reached the top."""
    from app.data.scene import SceneError  # brings numpy, and guarded() has to stand before anything slow is loaded

    if isinstance(error, (UsageError, SceneError)):
        return 2, str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename!r}: " if error.filename is not None else ""
        return 2, f"{where}{error.strerror.lower()}; check the path, its permissions and the free space"
    from app.training.memory import is_out_of_memory

    if is_out_of_memory(error):
        return 2, "the memory of this machine is exhausted; " + SMALLER
    if type(error).__name__ == "IntersectionBudgetError":  # by name: its module imports torch
        return 2, f"{str(error).rstrip('.')}; on the command line, {SMALLER} or a larger --raster.max_intersection_bytes"
    text = " ".join(str(error).split())
    return 1, f"internal error ({type(error).__name__}: {text}); run again with --debug for the traceback and report it"


def check_output(flag: str, path: str) -> None:
    """Refuse a file that cannot be written before any work is done. Raises UsageError."""
    where = Path(path).expanduser().absolute()
    if where.is_dir():
        raise UsageError(f"--{flag} {path} is a folder; name a file.")
    if not where.parent.is_dir():
        raise UsageError(f"--{flag} {path}: there is no such folder; make it first.")
    if not os.access(where.parent, os.W_OK):
        raise UsageError(f"--{flag} {path}: the folder cannot be written; choose another.")


def say(sentence: str) -> None:
    """One line on stderr, named after the program as other command-line tools do."""
    print(f"splatscope: {sentence}", file=sys.stderr)
