"""Compile the CPU kernels once per source text, flags, compiler and CPU, into the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from render.config import TILE_SIZE

PARTS = (("rasterize.cpp", "sh.cpp", "adam.cpp"),
         ("ssim.cpp", "binning.cpp", "project.cpp", "activate.cpp", "threads.cpp"))
"""Compiled side by side, each part as one file: the headers, half of all work, are then read twice instead of 8 times.
On two cores both take as long, 2.8 s with g++ 12 where 8 files took 5.5 s."""
BEAT = 0.1
"""Seconds between two calls of `progress`, which may end the compilation."""
Progress = Callable[[str], None]
"""Told in words how far it is, several times the same; may raise, which ends the compilation."""


class CompileError(RuntimeError):
    """The kernels cannot be built; the message holds what the compiler said."""


@dataclass(frozen=True)
class Compiler:
    name: str                # g++, clang++, clang-cl, ziglang or what $CXX says
    command: tuple[str, ...]
    path: str
    version: str


def _version(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


@cache
def _find(cxx: str) -> Compiler | None:
    candidates: list[tuple[str, tuple[str, ...]]] = []
    if cxx.strip():   # a path with blanks stands for itself, else words are options
        candidates.append((cxx, (cxx,) if shutil.which(cxx) else tuple(cxx.split())))
    candidates += [(name, (name,)) for name in ("g++", "clang++", "clang-cl")]
    if importlib.util.find_spec("ziglang"):
        candidates.append(("ziglang", (sys.executable, "-m", "ziglang", "c++")))
    for name, command in candidates:
        path = shutil.which(command[0])
        version = path and _version(command)
        if path and version:
            return Compiler(name, command, path, version)
    return None


def find_compiler() -> Compiler | None:
    """The C++ compiler that will be used: $CXX, g++, clang++, clang-cl or ziglang, the first that answers."""
    return _find(os.environ.get("CXX", ""))


def cxx_problem() -> str:
    """One sentence when $CXX names something that does not run and is passed over, else empty."""
    cxx = os.environ.get("CXX", "")
    found = find_compiler()
    if not cxx.strip() or (found is not None and found.name == cxx):
        return ""
    return (f"$CXX is {cxx!r}, which does not run, so {found.name if found else 'no compiler'} is used; "
            "set it to a C++ compiler, or unset it.")


def cache_folder() -> Path:
    """Where compiled kernels are kept ($SPLATSCOPE_CACHE overrides the user's cache folder)."""
    override = os.environ.get("SPLATSCOPE_CACHE")
    return Path(override).absolute() if override else Path(platformdirs.user_cache_dir("splatscope")) / "kernels"


def source_folder() -> Path:
    """The folder of cuda_src, installed or checked out."""
    spec = importlib.util.find_spec("cuda_src")
    if spec is None or not spec.submodule_search_locations:
        raise CompileError("the package cuda_src is missing: reinstall splatscope")
    return Path(next(iter(spec.submodule_search_locations)))


def _cpu() -> str:
    """Names the CPU well enough that -march=native code never meets another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(next((li for li in lines if li.startswith(key)), "") for key in ("model name", "flags", "Features"))
    except OSError:
        return platform.processor() + platform.machine()


def _is_clang_cl(compiler: Compiler) -> bool:
    return compiler.command[0].removesuffix(".exe").endswith("clang-cl")


def flags(compiler: Compiler, double: bool) -> list[str]:
    """No flag here may change what a NaN, an infinity or a denormal means: that excludes -ffast-math and its parts."""
    macros = [f"-DTILE_SIZE={TILE_SIZE}"] + (["-DGS_DOUBLE"] if double else [])
    if _is_clang_cl(compiler):
        return ["/std:c++20", "/O2", "/EHsc", "/LD", "/clang:-march=native", "/clang:-fno-math-errno", *macros]
    tune = "-mcpu=native" if platform.machine().lower() in ("arm64", "aarch64") else "-march=native"
    common = ["-std=c++20", "-O3", tune, "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fvisibility=hidden", *macros]
    # Windows finds a compiler's own libraries only on PATH, where ctypes does not look
    common += ["-static"] if sys.platform == "win32" else ["-fPIC", "-pthread"]
    return common


def _key(compiler: Compiler, options: list[str], folder: Path) -> str:
    digest = hashlib.sha256()
    for part in ("\0".join(compiler.command), compiler.version, "\0".join(options), _cpu()):
        digest.update(part.encode() + b"\0")
    for path in sorted([*folder.glob("*.h"), *folder.glob("*.cpp"), *folder.glob("math/*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


_build_lock = threading.Lock()
_ahead: dict[bool, Future[Path]] = {}


def built_library(double: bool, progress: Progress | None = None) -> Path:
    """The compiled kernels, building them when this source, compiler and CPU have none yet.

    Raises CompileError when there is no compiler or it fails. Other processes may build at the same time: each writes
    a file of its own and renames it into place.
    """
    begun = _ahead.get(double)
    return begun.result() if begun is not None else _built(double, progress)


@contextmanager
def ahead(double: bool, progress: Progress) -> Iterator[None]:
    """What built_library does begins now, in a thread of its own; in the block built_library waits for it.

    For whoever has something else to wait for meanwhile, such as importing PyTorch. Does nothing where nothing is missing.
    """
    compiler = find_compiler()
    if compiler is None or _target(compiler, double).exists():
        yield
        return
    begun: Future[Path] = Future()

    def run() -> None:
        try:
            begun.set_result(_built(double, progress))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            begun.set_exception(error)

    _ahead[double] = begun
    threading.Thread(target=run, name="compile", daemon=True).start()
    try:
        yield
    finally:   # the block may have failed: the compilers end at their next report, or at their end
        wait([begun])
        del _ahead[double]


def _built(double: bool, progress: Progress | None) -> Path:
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler was found ($CXX, g++, clang++, clang-cl): install g++, "
                           "or pip install 'splatscope[zig]'")
    target = _target(compiler, double)
    with _build_lock:
        if not target.exists():
            _build(compiler, flags(compiler, double), source_folder(), target, progress or _sayer())
    return target


def _target(compiler: Compiler, double: bool) -> Path:
    """Where the kernels of this source, compiler and CPU are, or will be."""
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    key = _key(compiler, flags(compiler, double), source_folder())
    return cache_folder() / f"kernels-{'f64' if double else 'f32'}-{key}{suffix}"


def is_built() -> bool:
    """Whether training finds its kernels (float32) compiled."""
    compiler = find_compiler()
    return compiler is not None and _target(compiler, double=False).exists()


def _sayer() -> Progress:
    """Prints each text once."""
    said = [""]

    def say(text: str) -> None:
        if text != said[0]:
            said[0] = text
            print(text, file=sys.stderr, flush=True)

    return say


class _Team:
    """Compilers that run side by side and can be ended together."""

    def __init__(self, compiler: Compiler, folder: str) -> None:
        self._name, self._folder = compiler.name, folder
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[str]] = []
        self._ended = False

    def run(self, command: list[str]) -> None:
        """Run one command to its end. Raises CompileError with what it said when it fails or end() was called."""
        with self._lock:
            if self._ended:
                raise CompileError("the compilation was stopped")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                       cwd=self._folder, start_new_session=True)
            self._running.append(process)
        out, error = process.communicate()
        if process.returncode != 0:
            raise CompileError(f"{self._name} could not compile the CPU kernels:\n{error.strip() or out.strip()}")

    def end(self) -> None:
        """End every compiler and what it started, which would go on without it."""
        with self._lock:
            self._ended = True
            for process in (p for p in self._running if p.poll() is None):
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGTERM) if os.name == "posix" else process.kill()


def _part(names: tuple[str, ...], folder: Path, scratch: str) -> str:
    """A file that holds all of a part."""
    path = Path(scratch) / names[0]
    path.write_text("".join(f'#include "{(folder / name).as_posix()}"\n' for name in names), encoding="utf-8")
    return str(path)


def _build(compiler: Compiler, options: list[str], folder: Path, target: Path, progress: Progress) -> None:
    """One object file per part, side by side, then the library; all in a scratch folder beside the target.

    An error, Ctrl-C or an exception from `progress` ends the compilers that still run.
    """
    said = f"Compiling the CPU kernels with {compiler.name}, once for this machine"
    progress(f"{said} ...")
    start = time.monotonic()
    microsoft = _is_clang_cl(compiler)
    compiling = [o for o in options if o not in ("-shared", "/LD")]

    def to(path: str) -> list[str]:
        return ["/c", f"/Fo{path}"] if microsoft else ["-c", "-o", path]

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [str(Path(scratch) / f"{part[0]}.o") for part in PARTS]
            team = _Team(compiler, scratch)
            jobs = {pool.submit(team.run, [*compiler.command, *compiling, *to(out), _part(part, folder, scratch)])
                    for part, out in zip(PARTS, objects)}
            text = said
            try:
                while jobs:
                    done, jobs = wait(jobs, BEAT, FIRST_COMPLETED)
                    for job in done:
                        job.result()
                        text = f"{said}: {len(PARTS) - len(jobs)} of {len(PARTS)} parts are done"
                    progress(f"{text} ...")
            except BaseException:
                team.end()
                raise
            built = Path(scratch) / target.name
            output = [f"/Fe:{built}"] if microsoft else ["-o", str(built)]
            team.run([*compiler.command, *options, *objects, *output])
            try:
                os.replace(built, target)
            except PermissionError:   # Windows: another process has built and loaded the same meanwhile
                if not target.exists():
                    raise
    except OSError as error:
        raise CompileError(f"the kernel cache {target.parent} cannot be written ({error.strerror}): "
                           "set SPLATSCOPE_CACHE to another folder") from error
    progress(f"Compiled the CPU kernels in {time.monotonic() - start:.1f} s.")
