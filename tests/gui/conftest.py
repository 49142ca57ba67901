"""Windows that tests can talk to, each on an X server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.gui.x11 import Display, WindowManager, ask_to_close, need

ROOT = Path(__file__).parents[2]
STATE = ("dict(held=list(shell.keyboard._held), typing=shell.keyboard.typing(), dialogs=[d.shown for d in shell.dialogs()], "
         "notices=[n.text for n in shell.model.notices], failed=list(shell._complained), frames=shell.frames)")
DEADLINE = 30.0   # s that a condition may take on a machine under load


class Window:
    """A window in its own process. Coordinates are px of the screen, whose origin is the window's."""

    def __init__(self, folder: Path, *, play: bool = True, busy: bool = False, speed: float = 60.0,
                 with_scene: bool = True, demo: bool = False, managed: bool = False,
                 environment: dict[str, str] | None = None, alone: bool = False) -> None:
        """`demo`: the whole program instead of the fake engine; `managed`: with a window manager, so it can be minimised;
        `alone`: it starts in `folder`, where all that it writes goes, what it says on stderr as stderr.txt."""
        self.trace, self.preferences = folder / "trace.jsonl", folder / "window.json"
        self._xdotool = need("xdotool")
        if managed:
            need("twm")   # before the display is there, which nobody would stop
        self.display: Display | None = Display()
        self._manager = WindowManager(self.display, folder) if managed else None
        self._environment = {**os.environ, "DISPLAY": self.display.name, **(environment or {})}
        options = {"play": play, "busy": busy, "speed": speed, "scene": with_scene, "demo": demo, "trace": str(self.trace),
                   "preferences": str(self.preferences)}
        self.errors = folder / "stderr.txt" if alone else None
        if alone:
            self._environment |= {"PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"),
                                  "XDG_CONFIG_HOME": str(folder / "config")}
        with open(self.errors, "w") if self.errors is not None else nullcontext() as errors:
            self.process = subprocess.Popen([sys.executable, "-m", "tests.gui.host", json.dumps(options)], text=True,
                                            cwd=folder if alone else ROOT, env=self._environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors)
        assert self._answer() == "ready"

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the window ended with code {self.process.wait(10)}")
        value = json.loads(line)
        if isinstance(value, dict) and set(value) == {"error"}:
            raise AssertionError(value["error"])
        return value

    def _order(self, **order: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def get(self, expression: str) -> Any:
        return self._order(get=expression)

    def peek(self, expression: str) -> Any:
        """As get(), without the window's thread, which stands still while minimised; Dear PyGui must not be called."""
        return self._order(peek=expression)

    def run(self, statements: str) -> None:
        self._order(run=statements)

    def wait_for(self, expression: str, what: str = "") -> Any:
        """The first true value of the expression."""
        end = time.monotonic() + DEADLINE
        while True:
            value = self.get(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never became true: {what or expression}; {self.get(STATE)}")

    def peek_for(self, expression: str, seconds: float = DEADLINE) -> Any:
        """As wait_for(), by peek()."""
        end = time.monotonic() + seconds
        while not (value := self.peek(expression)):
            assert time.monotonic() < end, f"never became true: {expression}"
            time.sleep(0.05)
        return value

    def minimise(self) -> None:
        """As a click in the taskbar; afterwards nothing of the window is on the screen, and its engine was told."""
        self._until("windowminimize", visible=False)
        self.peek_for("engine.view_requests.get()[1].hidden")

    def restore(self) -> None:
        """Back on the screen, and drawing again."""
        frames = self.peek("shell.frames")
        self._until("windowmap", visible=True)
        self.wait_for(f"shell.frames > {frames + 3}")

    def _until(self, order: str, *, visible: bool) -> None:
        """Ask the window manager again each second, since what it hears while it starts is lost."""
        window, end, asked = self._found()[-1], time.monotonic() + DEADLINE, 0.0
        while bool(self._found("--onlyvisible")) is not visible:
            assert time.monotonic() < end, f"{order} has no effect"
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                self.input(order, window)
            time.sleep(0.05)

    def _found(self, *words: str) -> list[int]:
        found = subprocess.run([self._xdotool, "search", *words, "--name", "Splatscope"], env=self._environment, text=True,
                               capture_output=True, timeout=20)
        return [int(word) for word in found.stdout.split()]

    def frames(self, count: int) -> None:
        """Wait until so many more frames were drawn (G08)."""
        goal = self.get("shell.frames") + count
        self.wait_for(f"shell.frames >= {goal}")

    def input(self, *words: object) -> None:
        """Real X events, by xdotool."""
        subprocess.run([self._xdotool, *map(str, words)], env=self._environment, check=True, timeout=60)

    def point(self, x: float, y: float) -> None:
        """Move the pointer and let the window see it: a press takes what the frame before was over."""
        self.input("mousemove", round(x), round(y))
        self.frames(2)

    def click(self, x: float, y: float, button: int = 1) -> None:
        self.point(x, y)
        self.input("click", button)

    def type_into(self, item: str, text: str, *, enter: bool = True) -> None:
        """Replace what stands in a text field, as a person does: click, select all, type, Enter."""
        self.click(*self.middle(item))
        self.wait_for(f"dpg.is_item_active({item})")
        self.input("keydown", "ctrl")   # held over a few frames: a slow one would miss a quick Ctrl+A
        self.frames(2)
        self.input("key", "a")
        self.frames(3)
        self.input("keyup", "ctrl")
        self.frames(2)
        self.input("type", "--delay", 80, text)
        if enter:
            self.frames(2)
            self.input("key", "Return")
        self.frames(3)

    def middle(self, item: str) -> tuple[float, float]:
        """Screen px of the middle of an item, once it stands still: each answer is of a frame of its own, so a panel whose
        text has just grown by a line is not clicked where the item was before."""
        end, before = time.monotonic() + DEADLINE, None
        while True:
            place = self.get(f"(*dpg.get_item_rect_min({item}), *dpg.get_item_rect_size({item}))")
            if place == before:
                x, y, width, height = place
                return x + width / 2, y + height / 2
            assert time.monotonic() < end, f"{item} never stands still"
            before = place

    def received(self, kind: str) -> int:
        return self.get(f"sum(type(c).__name__ == {kind!r} for c in engine.received)")

    def close(self) -> int:
        """Ask the window to close, wait, and return its exit code."""
        if self.process.poll() is None:
            assert self.display is not None
            ask_to_close(self.display.name, self._found()[-1])
        code = self.process.wait(DEADLINE)
        self.end()
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if self._manager is not None:
            self._manager.stop()
            self._manager = None
        if self.display is not None:
            self.display.stop()
            self.display = None

    def rss(self) -> int:
        """Resident bytes of the process."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="session")
def make_window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Window]]:
    windows: list[Window] = []

    def make(**options: Any) -> Window:
        folder = options.pop("folder", None) or tmp_path_factory.mktemp("window")
        windows.append(Window(folder, **options))
        return windows[-1]

    yield make
    for window in windows:
        window.end()


@pytest.fixture(scope="module")
def window(make_window: Callable[..., Window]) -> Iterator[Window]:
    """One window for the tests of a module; each leaves it usable."""
    shared = make_window()
    shared.wait_for("shell.model.frame is not None", "the first picture")
    yield shared
    assert shared.close() == 0
