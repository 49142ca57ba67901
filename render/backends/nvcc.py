"""The CUDA compiler: which chips it knows, the kernels' source as one text, the cache of what it built.

PyCUDA runs the compiler (render/backends/cuda.py); everything here works without it and without a GPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from render.backends.compile import CompileError, cache_folder, source_folder
from render.config import TILE_SIZE

_LOCAL = re.compile(r'^[ \t]*#include[ \t]+"([^"]+)".*$', re.MULTILINE)
_SYSTEM = re.compile(r"^[ \t]*#include[ \t]+<[^>]+>.*$", re.MULTILINE)
_HOST_ONLY = ("simd.h",)
_USUAL = () if sys.platform == "win32" else ("/usr/local/cuda/bin",)
_INTEGRATED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}
"""Jetson and its kin: their machine code does not run on a graphics card, nor a card's on them."""
_DIGEST = 32
Run = Callable[[str, list[str], str, str], bytes]
"""(source, options, architecture, "cubin" or "ptx") -> what the compiler built. Raises CompileError with its text."""


@dataclass(frozen=True)
class Nvcc:
    path: str
    version: str                        # the release, as "13.0"
    known: tuple[tuple[int, int], ...]  # compute capabilities it compiles for, ascending


@dataclass(frozen=True)
class Target:
    """What is compiled for a chip: machine code for it or for an older one of its family, else PTX that the driver ends."""

    kind: str           # cubin or ptx
    architecture: str   # sm_90, compute_120


def _say(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def find_nvcc() -> Nvcc | None:
    """The CUDA compiler on PATH, or the one of $CUDA_HOME or $CUDA_PATH, or where the toolkit's installer puts it."""
    folders = [os.path.join(os.environ[name], "bin") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    path = shutil.which("nvcc") or next(filter(None, (shutil.which("nvcc", path=f) for f in (*folders, *_USUAL))), None)
    return _ask(path) if path else None


@cache
def _ask(path: str) -> Nvcc | None:
    release = re.search(r"release ([\d.]+)", _say(path, "--version"))
    known = sorted({divmod(int(digits), 10) for digits in re.findall(r"compute_(\d+)\b", _say(path, "--list-gpu-arch"))})
    return Nvcc(path, release[1], tuple(known)) if release and known else None


def target_for(capability: tuple[int, int], nvcc: Nvcc) -> Target:
    """What to compile for a chip. Raises CompileError for one that is older than everything the compiler knows."""
    older = [known for known in nvcc.known if known == capability or (known < capability and known not in _INTEGRATED)]
    if not older:
        oldest = ".".join(map(str, nvcc.known[0]))
        raise CompileError(f"the GPU has compute capability {capability[0]}.{capability[1]} and nvcc {nvcc.version} compiles "
                           f"for {oldest} and newer: install an older CUDA toolkit")
    major, minor = older[-1]
    runs = (major, minor) == capability or (major == capability[0] and capability not in _INTEGRATED)
    return Target("cubin", f"sm_{major}{minor}") if runs else Target("ptx", f"compute_{major}{minor}")


@cache
def source(file: str) -> str:
    """One .cu file with its headers in place: ASCII, and nothing left to include, since nvcc brings what CUDA needs."""
    folder, seen = source_folder(), set[Path]()

    def expand(path: Path) -> str:
        if path in seen:
            return ""
        seen.add(path)
        text = path.read_text(encoding="ascii").replace("#pragma once", "")
        return _SYSTEM.sub("", _LOCAL.sub(
            lambda match: "" if match[1] in _HOST_ONLY else expand((path.parent / match[1]).resolve()), text))

    return expand((folder / f"{file}.cu").resolve())


def options(double: bool) -> list[str]:
    """Never --use_fast_math: it flushes denormals and makes divisions inexact.

    PyCUDA repeats each of nvcc's warnings on the user's terminal. Those left out mean nothing there: that a chip is old, and
    that a file does not use all functions of its headers (177).
    """
    return ["-std=c++17", "-O3", "-lineinfo", "-Wno-deprecated-gpu-targets", "-diag-suppress=177", f"-DTILE_SIZE={TILE_SIZE}",
            *(["-DGS_DOUBLE"] if double else [])]


def _target_path(file: str, double: bool, target: Target, nvcc: Nvcc) -> Path:
    digest = hashlib.sha256("\0".join((source(file), *options(double), target.architecture, nvcc.version)).encode())
    name = f"cuda-{file}-{'f64' if double else 'f32'}-{target.architecture}-{digest.hexdigest()[:20]}.{target.kind}"
    return cache_folder() / name


def _cached(path: Path) -> bytes | None:
    """What is cached, unless it is damaged: the driver is given no length and would read past the end of code cut short."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        code = content[:-_DIGEST]
        return code if code and hashlib.sha256(code).digest() == content[-_DIGEST:] else None
    return None


def is_built(file: str, double: bool, target: Target, nvcc: Nvcc) -> bool:
    return _cached(_target_path(file, double, target, nvcc)) is not None


def built(file: str, double: bool, target: Target, nvcc: Nvcc, run: Run) -> bytes:
    """The machine code (or PTX) of one file, compiled when this source, compiler and chip have none yet."""
    path = _target_path(file, double, target, nvcc)
    found = _cached(path)
    if found is not None:
        return found
    code = run(source(file), options(double), target.architecture, target.kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            part.write(code + hashlib.sha256(code).digest())
        os.replace(part.name, path)
    except OSError as error:
        raise CompileError(f"the kernel cache {path.parent} cannot be written ({error.strerror}): "
                           "set SPLATSCOPE_CACHE to another folder") from error
    return code


def forget(file: str, double: bool, target: Target, nvcc: Nvcc) -> None:
    """Delete what is cached, as when it cannot be loaded."""
    _target_path(file, double, target, nvcc).unlink(missing_ok=True)
