"""Builds and runs ceiling.cpp: evaluations per second of the bare inner loops on one core of this machine, now."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from render.backends import compile


def build(folder: Path) -> Path:
    """The ceiling program, built with the compiler and flags of the kernels."""
    compiler = compile.find_compiler()
    if compiler is None:
        raise SystemExit("the ceiling needs a C++ compiler: install g++")
    program = folder / "ceiling"
    options = [flag for flag in compile.flags(compiler, False) if flag not in ("-shared", "-fPIC", "-fvisibility=hidden")]
    source = Path(__file__).with_name("ceiling.cpp")
    include = ["-I", str(compile.source_folder())]
    subprocess.run([*compiler.command, *options, *include, str(source), "-o", str(program)], check=True)
    return program


class Ceiling:
    """Measured at each call; the fastest of all calls counts, since other programs can only slow it down."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._program = build(Path(self._folder.name))
        self.best: dict[str, float] = {"forward": 0.0, "backward": 0.0}

    def measure(self) -> None:
        now = json.loads(subprocess.run([str(self._program)], capture_output=True, text=True, check=True).stdout)
        self.best = {k: max(v, now[k]) for k, v in self.best.items()}
