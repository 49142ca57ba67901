"""What another system can tell of Windows (G27): each branch that is taken only there is taken here with a faked platform.

What only a real Windows shows is in the README's release checklist.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from app.data import atomic, lens
from app.data.scene import SceneError
from app.engine import memory as engine_memory
from app.gui.display import icons
from app.records import lock
from app.training import backend, memory
from render.backends import compile
from render.backends.compile import Compiler
from tests.data.synthetic import transforms_scene

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parent.parent
CLANG_CL = Compiler("clang-cl", ("clang-cl",), "clang-cl", "clang version 18")


def fake(module: ModuleType, *missing: str, **changed: Any) -> SimpleNamespace:
    """A copy of a module of the standard library as it would be on another system."""
    return SimpleNamespace(**{k: v for k, v in vars(module).items() if k not in missing} | changed)


# ---------------------------------------------------------------- the whole program
AS_ON_WINDOWS = """
import ctypes, importlib, os, pkgutil, signal, sys, types
import concurrent.futures, importlib.metadata, multiprocessing, subprocess, tempfile
import dearpygui.dearpygui, matplotlib.font_manager, numpy, PIL.Image, platformdirs, plyfile, pycolmap, scipy.spatial, torch
import tqdm, tyro
# what is ours comes after what is others', which know their system already
import fcntl

class Msvcrt(types.ModuleType):   # locks bytes of a file from where it stands, which nobody else may read then
    LK_NBLCK = 2

    @staticmethod
    def locking(file, mode, length):
        assert mode == Msvcrt.LK_NBLCK and length == 1 and os.lseek(file, 0, os.SEEK_CUR) > 1 << 20
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

sys.modules["msvcrt"] = Msvcrt("msvcrt")
for name in ("fcntl", "grp", "posix_ipc", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("fchmod", "fork", "getgid", "getloadavg", "getpgid", "getuid", "geteuid", "killpg", "mkfifo", "nice",
             "sched_getaffinity", "setsid", "statvfs", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "alarm", "pthread_kill", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.platform = "win32"

class Kernel32:
    def GlobalMemoryStatusEx(self, status):
        status._obj.available = 4 << 30
        return 1

ctypes.windll = types.SimpleNamespace(kernel32=Kernel32())
import app, render
for package in (app, render):
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
from app.__main__ import main
scene, out = sys.argv[1:]
sys.argv = ["splatscope"]
codes = [main(["info", scene]), main(["doctor", "--json"]),
         main(["train", scene, "-m", out, "--iterations", "2", "--backend", "reference", "--eval"])]
sys.exit(0 if codes == [0, 0, 0] else f"exit codes {codes}")
"""


def test_G27_everything_imports_and_trains_without_what_only_posix_has(tmp_path: Path) -> None:
    """No fcntl, resource, os.killpg, os.sched_getaffinity, SIGKILL ...: each module loads, and a run trains to its end."""
    scene = transforms_scene(tmp_path / "scene")
    done = subprocess.run([sys.executable, "-c", AS_ON_WINDOWS, str(scene), str(tmp_path / "out")], cwd=ROOT, timeout=200,
                          capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert results["peak_rss_bytes"] is None and results["gaussians"] > 0


@pytest.mark.parametrize("words", [["info"], ["info", "--json"], ["train", "--iterations", "1", "--backend", "reference"]])
def test_G27_a_name_that_the_code_page_lacks_is_no_internal_error(words: list[str], tmp_path: Path) -> None:
    """D06: pipes and files get Python's output in a code page there, which has no letter of データ."""
    scene = transforms_scene(tmp_path / "データ λ ä")
    out = ["-m", str(tmp_path / "λ out")] if words[0] == "train" else []
    done = subprocess.run([sys.executable, "-m", "app", *words, str(scene), *out], cwd=ROOT, timeout=120, capture_output=True,
                          env={**os.environ, "PYTHONIOENCODING": "cp1252"})
    assert done.returncode == 0, done.stderr
    assert b"\\u03bb" in done.stdout
    if "--json" in words:
        assert json.loads(done.stdout.decode("utf-8"))["path"] == str(scene)


def test_G27_text_files_name_their_encoding() -> None:
    """Where they do not, Windows takes its code page: what Linux wrote is read wrongly. /proc is ASCII, and not there."""
    found = []
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "render").rglob("*.py")]:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        on_proc = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                   and "/proc/" in (ast.get_source_segment(source, node) or "")]
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            owner = call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else ""
            words = {a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
            text = called in ("read_text", "write_text") or (
                called == "open" and owner not in ("os", "Image") and bool(call.args) and not any("b" in w for w in words))
            named = any(keyword.arg == "encoding" for keyword in call.keywords)
            if text and not named and not any(f.lineno <= call.lineno <= (f.end_lineno or 0) for f in on_proc):
                found.append(f"{path.relative_to(ROOT).as_posix()}:{call.lineno}")
    assert found == []


# ---------------------------------------------------------------- this machine
def test_G27_cores_are_counted_where_nobody_can_ask_for_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "sys", fake(sys, platform="win32"))
    monkeypatch.setattr(backend, "os", fake(os, "sched_getaffinity", cpu_count=lambda: 12))
    assert backend.usable_cores() == 12
    monkeypatch.setattr(backend, "os", fake(os, "sched_getaffinity", cpu_count=lambda: None))
    assert backend.usable_cores() == 1


def test_G27_memory_is_asked_from_the_windows_api(monkeypatch: pytest.MonkeyPatch) -> None:
    class GlobalMemoryStatusEx:
        def __call__(self, status: Any) -> int:
            assert status._obj.length == ctypes.sizeof(status._obj) == 64, "MEMORYSTATUSEX"
            status._obj.available = 5 << 30
            return 1

    class GetCurrentProcess:
        def __call__(self) -> int:
            return -1

    class GetProcessMemoryInfo:
        answer = 1

        def __call__(self, process: int, counters: Any, size: int) -> int:
            assert size == ctypes.sizeof(counters._obj) == 8 + 8 * ctypes.sizeof(ctypes.c_size_t), "PROCESS_MEMORY_COUNTERS"
            counters._obj.working_set = 7 << 20
            return self.answer

    asked = GetProcessMemoryInfo()
    kernel32 = SimpleNamespace(GlobalMemoryStatusEx=GlobalMemoryStatusEx(), GetCurrentProcess=GetCurrentProcess(),
                               K32GetProcessMemoryInfo=asked)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(ctypes, "WinDLL", lambda name: {"kernel32": kernel32}[name], raising=False)
    for module in (memory, engine_memory):
        monkeypatch.setattr(module, "sys", fake(sys, platform="win32"))
    assert memory.available_bytes() == 5 << 30 and memory.peak_rss_bytes() is None
    assert engine_memory.rss_bytes() == 7 << 20
    asked.answer = 0
    assert engine_memory.rss_bytes() == 0, "unknown, not an error"


def test_G27_a_file_is_saved_where_folders_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic, "os", fake(os, name="nt", open=refuse))
    atomic.write_atomic(tmp_path / "new" / "a ä.ply", lambda stream: stream.write(b"whole"))
    assert (tmp_path / "new" / "a ä.ply").read_bytes() == b"whole" and len(list((tmp_path / "new").iterdir())) == 1


def test_G27_pycolmap_loads_without_a_c_library_to_ask_for_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str | None) -> Any:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")

    monkeypatch.setattr(lens, "os", fake(os, name="nt"))
    monkeypatch.setattr(lens, "ctypes", fake(ctypes, CDLL=refuse))
    assert lens._pycolmap.__wrapped__().__name__ == "pycolmap"


def test_G27_the_icon_is_one_that_the_system_can_read() -> None:
    """Windows loads .ico only; the others .png."""
    png, ico = (".png", b"\x89PNG"), (".ico", b"\0\0\1\0")
    for system, (suffix, begins) in {"win32": ico, "linux": png, "darwin": png}.items():
        paths = {Path(p) for p in icons(system).values()}
        assert {p.suffix for p in paths} == {suffix}
        assert all(p.read_bytes().startswith(begins) for p in paths)


def test_G27_a_run_that_is_in_use_is_told_from_the_answer_of_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    places = []

    def locking(file: int, mode: int, length: int) -> None:
        places.append((os.lseek(file, 0, os.SEEK_CUR), mode, length))
        if len(places) > 1:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock, "sys", fake(sys, platform="win32"))
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    held = lock.take(tmp_path)
    monkeypatch.setattr(lock, "_held", {})   # as another process has it
    with pytest.raises(SceneError, match=rf"in use by another Splatscope \(process {os.getpid()}\)"):
        lock.take(tmp_path)
    assert len(places) == 2 and all(at > 32 and (mode, length) == (2, 1) for at, mode, length in places), "behind the number"
    monkeypatch.undo()
    held.release()


# ---------------------------------------------------------------- compiling
@pytest.mark.parametrize(("system", "suffix"), [("win32", ".dll"), ("linux", ".so"), ("darwin", ".dylib")])
def test_G27_the_library_is_named_as_the_system_names_them(system: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "sys", fake(sys, platform=system))
    for double in (False, True):
        assert compile._target(CLANG_CL, double).suffix == suffix


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Compiler], list[list[str]]]:
    """What a build on Windows would run, without running it."""
    def of(compiler: Compiler) -> list[list[str]]:
        ran: list[list[str]] = []
        included: list[str] = []

        def run(team: Any, command: list[str]) -> None:
            ran.append(command)
            if command[-1].endswith(".cpp"):
                included.extend(re.findall(r'^#include "(.+)"$', Path(command[-1]).read_text(encoding="utf-8"), re.M))
            for word in [w.removeprefix("/Fe:") for w in command if w.endswith(".dll")]:
                Path(word).write_bytes(b"MZ")

        monkeypatch.setattr(compile, "sys", fake(sys, platform="win32"))
        monkeypatch.setattr(compile._Team, "run", run)
        target = tmp_path / "cache ä" / "kernels.dll"
        compile._build(compiler, compile.flags(compiler, True), compile.source_folder(), target, lambda text: None)
        assert target.exists() and len(list(target.parent.iterdir())) == 1
        assert "\\" not in "".join(included)
        assert sorted(included) == sorted(p.as_posix() for p in compile.source_folder().glob("*.cpp"))
        ran.sort(key=lambda command: command[-1].startswith("/Fe:"))   # linking is last
        return ran
    return of


def test_G27_clang_cl_gets_flags_of_its_own(commands: Callable[[Compiler], list[list[str]]]) -> None:
    *sources, link = commands(CLANG_CL)
    assert sources
    for command in sources:
        assert command[0] == "clang-cl" and "/c" in command and "/LD" not in command and "-c" not in command
        assert any(w.startswith("/Fo") and w.endswith(".o") for w in command)
    assert "/LD" in link and sum(w.endswith(".o") for w in link) == len(sources)
    for command in (*sources, link):
        assert {"/std:c++20", "/O2", "-DGS_DOUBLE"} <= set(command)
        assert not [w for w in command if w.startswith(("-f", "-O", "-s", "-p", "-o"))], "flags of the other compilers"


def test_G27_a_real_clang_cl_understands_its_flags(commands: Callable[[Compiler], list[list[str]]]) -> None:
    """ziglang carries the whole of clang, so its driver can be asked what it would do."""
    if importlib.util.find_spec("ziglang") is None or platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("needs ziglang, which carries clang (pip install 'splatscope[zig]'), and an x86-64 processor")
    *sources, link = commands(CLANG_CL)
    driver = [sys.executable, "-m", "ziglang", "clang", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "-###"]
    # by its name alone, since what begins with / is a flag
    named: dict[str, Any] = dict(cwd=compile.source_folder(), capture_output=True, encoding="utf-8", timeout=120)
    said = subprocess.run([*driver, *sources[0][1:-1], "adam.cpp"], **named)
    warnings = [li for li in said.stderr.splitlines() if ": warning: " in li or ": error: " in li]
    assert said.returncode == 0 and not [w for w in warnings if "msvc-not-found" not in w], warnings
    jobs = [li for li in said.stderr.splitlines() if '"-cc1"' in li]
    assert len(jobs) == 1 and '"-std=c++20"' in jobs[0] and '"-O3"' in jobs[0] and '"GS_DOUBLE"' in jobs[0]
    assert '"-target-cpu" "x86-64"' not in jobs[0], "this processor, not the oldest"
    # without object files the driver only warns that there is nothing to link, so one source stands for them
    said = subprocess.run([*driver, *(w for w in link[1:] if not w.endswith(".o")), "adam.cpp"], **named)
    linker = [li for li in said.stderr.splitlines() if '"-dll"' in li]
    assert said.returncode == 0 and len(linker) == 1 and "kernels.dll" in linker[0], said.stderr[-2000:]


@pytest.mark.parametrize("name", ["g++", "clang++", "ziglang"])
def test_G27_other_compilers_get_no_flag_that_windows_lacks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(name, (name,), name, "1")
    monkeypatch.setattr(compile, "sys", fake(sys, platform="win32"))
    options = compile.flags(compiler, False)
    assert "-shared" in options and not {"-fPIC", "-pthread"} & set(options)
    monkeypatch.setattr(compile, "sys", fake(sys, platform="linux"))
    assert {"-shared", "-fPIC", "-pthread"} <= set(compile.flags(compiler, False))


def test_G27_compilers_are_ended_where_there_are_no_process_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compile, "os", fake(os, "killpg", name="nt"))
    team, failures = compile._Team(CLANG_CL, str(tmp_path)), []

    def work() -> None:
        try:
            team.run([sys.executable, "-c", "import time; time.sleep(100)"])
        except compile.CompileError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 30
    while not team._running:
        assert time.monotonic() < end
        time.sleep(0.01)
    team.end()
    thread.join(30)
    assert not thread.is_alive() and len(failures) == 1
    with pytest.raises(compile.CompileError, match="stopped"):
        team.run(["never"])
