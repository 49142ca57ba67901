"""Which renderer trains here, made ready to run. Nothing heavy is imported before it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from render.config import BACKENDS


@dataclass(frozen=True)
class Ready:
    """A backend that can run; `instead` says why it is not the one that was hoped for."""

    name: str
    instead: str = ""

    @property
    def sentence(self) -> str:
        """What the user is told of a backend that nobody asked for; empty when all is as it was wanted."""
        if not self.instead:
            return ""
        runs = "The plain PyTorch renderer runs, slowly," if self.name == "reference" else f"The backend {self.name} runs"
        return f"{runs} because {self.instead}."


def ready_backend(name: str, progress: Callable[[str], None] | None = None) -> Ready:
    """The backend that `name` stands for, its kernels compiled and loaded; `progress` is told in words.

    "auto" falls back from CUDA to the CPU's kernels to the reference, and says why where there is a GPU or no compiler.
    Raises ValueError, one sentence, when a backend asked for by name cannot run here. What a compiler says goes to stderr.
    """
    import torch

    from render.backends import compile, cuda
    from render.pipeline import resolve_backend

    if name in ("auto", "cpu"):
        _say_once(compile.cxx_problem())
    instead = ""
    if name == "auto" and not cuda.available() and torch.cuda.is_available():   # a card that lies idle is said
        instead = f"the GPU cannot be used: {cuda.problem()}"
    candidates = [resolve_backend(name)] if name != "auto" else [b for b in BACKENDS if b != "auto" and resolves(b)]
    for candidate in candidates:
        try:
            prepare(candidate, progress)
        except (compile.CompileError, MemoryError) as error:
            first, _, rest = str(error).partition("\n")
            first = first.rstrip(":. ")
            if rest:
                print(rest, file=sys.stderr, flush=True)   # neither a window nor a sentence has room for it
            if name != "auto":
                raise ValueError(f"backend {name} cannot run here: {first}") from error
            instead = first
        else:
            if candidate == "reference" and name == "auto" and not instead:
                instead = "no C++ compiler was found: install g++ or clang++, or pip install 'splatscope[zig]'"
            return Ready(candidate, instead)
    raise AssertionError("the reference always runs")


def prepare(backend: str, progress: Callable[[str], None] | None = None) -> None:
    """Compile and load what a backend needs. Raises CompileError."""
    from render.backends import cpu, cuda

    if backend == "cpu":
        cpu.prepare(progress)
    elif backend == "cuda":
        cuda.prepare(progress)


def resolves(backend: str) -> bool:
    """Whether a backend can run here, as far as can be told before anything is compiled."""
    from render.pipeline import usable_backends

    return backend in usable_backends()


@cache
def _say_once(sentence: str) -> None:
    if sentence:
        print(f"splatscope: {sentence}", file=sys.stderr, flush=True)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1   # macOS and Windows have no such question


def set_threads(count: int, backend: str) -> None:
    """Threads of our kernels, and of PyTorch.

    With kernels torch itself gets one: what is left for it is small, and its idle threads spin on the cores that the
    kernels need. Only the reference renderer, which is all torch, gets them all.
    """
    import torch

    from render.backends import cpu

    cpu.set_threads(count)
    torch.set_num_threads(count if backend == "reference" else 1)
