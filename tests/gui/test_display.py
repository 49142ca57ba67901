"""G15: no window can open, and the user reads one sentence instead of an aborted process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.gui import display as module
from app.gui.display import display_problem
from tests.gui.x11 import Display

ROOT = Path(__file__).parents[2]
OPEN = """
import sys
from app.gui.window import run_window
from app.mailbox import Fifo, Latest
closed = []
code = run_window(Fifo(), Latest(), Fifo(), Latest(), trace={trace!r}, on_close=lambda: closed.append(1))
assert closed == [1]
sys.exit(code)
"""


def refused(environment: dict[str, str], trace: str | None = None) -> str:
    """stderr of a process that tried; it must have ended with code 2 and one line."""
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run([sys.executable, "-c", OPEN.format(trace=trace)], cwd=ROOT, env={**kept, **environment}, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
    return done.stderr


def test_G15_no_display_names_variable_package_and_the_way_on() -> None:
    text = refused({})
    assert "DISPLAY" in text and "xvfb" in text and "splatscope train" in text


def test_G15_dead_display() -> None:
    display = Display(640, 480)
    display.stop()
    assert repr(display.name) in refused({"DISPLAY": display.name})


def test_wayland_without_x() -> None:
    assert "XWayland" in refused({"WAYLAND_DISPLAY": "wayland-0"})


@pytest.fixture
def without_glx() -> Iterator[str]:
    display = Display(640, 480, "-extension", "GLX")
    yield display.name
    display.stop()


def test_display_without_glx(without_glx: str) -> None:
    assert "GLX" in refused({"DISPLAY": without_glx})


def test_trace_that_cannot_be_written(tmp_path: Path) -> None:
    """Said before a window opens."""
    display = Display(640, 480)
    try:
        assert "--trace" in refused({"DISPLAY": display.name}, str(tmp_path / "missing" / "trace.jsonl"))
    finally:
        display.stop()


@pytest.mark.parametrize(("library", "package"), [("libGL.so.1", "libgl1"), ("libX11.so.6", "libx11-6")])
def test_missing_library_names_its_package(library: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ctypes.CDLL

    def load(name: str, *args: Any) -> Any:
        if name == library:
            raise OSError(f"{name}: cannot open shared object file")
        return real(name, *args)

    monkeypatch.setattr(module.ctypes, "CDLL", load)
    problem = display_problem({"DISPLAY": ":0"}, "linux")
    assert problem is not None and package in problem and library in problem


def test_other_systems_need_no_display() -> None:
    assert display_problem({}, "win32") is None and display_problem({}, "darwin") is None
