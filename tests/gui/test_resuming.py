"""C10, C11 with the whole program: a window that is killed loses at most what came after its last autosave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.data.checkpoints import find
from app.records.lines import EVENTS, read_lines
from app.training.checkpoint import newest
from tests.gui.x11 import Display

ROOT = Path(__file__).parents[2]


@pytest.fixture
def display() -> Iterator[Display]:
    display = Display()
    yield display
    display.stop()


def start(display: Display, data: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DISPLAY": display.name, "XDG_DATA_HOME": str(data), "XDG_CONFIG_HOME": str(data)}
    return subprocess.Popen([sys.executable, "-m", "app", "--autosave.iterations", "10", *words], cwd=ROOT, env=environment,
                            stderr=subprocess.PIPE, text=True)


def until(program: subprocess.Popen[str], true) -> None:
    end = time.monotonic() + 60
    while not true():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_window_that_is_killed_goes_on_and_one_that_is_told_to_end_loses_nothing(display, tmp_path):
    runs = tmp_path / "splatscope" / "runs"

    def iterations() -> list[int]:
        return sorted(saved.iteration for run in runs.glob("*") for saved in find(run)[0])

    killed = start(display, tmp_path, "--long_side", "64")
    until(killed, lambda: len(iterations()) > 2)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (run,) = runs.glob("*")
    reached = newest(run).state.iteration
    assert reached >= max(iterations()) and not find(run)[1]

    ended = start(display, tmp_path, "--resume")
    until(ended, lambda: max(iterations()) > reached + 20)
    ended.send_signal(signal.SIGTERM)
    _, err = ended.communicate(timeout=60)
    assert ended.returncode == 128 + signal.SIGTERM and "Traceback" not in err, err
    found = newest(run)
    assert found.state.iteration > reached and [path.name for path in runs.glob("*")] == [run.name]
    assert found.extra["scene"]["kind"] == "demo" and found.extra["scene"]["long_side"] == 64 and found.extra["camera"]
    assert found.state.arrays["history.loss"].shape == (2, found.state.iteration)
    (closed,) = [line for line in read_lines(run / EVENTS) if line.get("event") == "closed"]
    assert found.state.iteration == closed["iteration"], "the newest file, of the close or of an autosave just before it"
