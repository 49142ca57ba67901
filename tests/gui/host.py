"""A real window in a process of its own, with the fake engine or the whole program behind it, taking orders on stdin.

Each line is JSON: {"run": statements} or {"get": expression}; the answer is one JSON line on stdout. Code runs on the
window's thread after a drawn frame, with `shell`, `engine`, `dpg` and `m` (app.messages) at hand. {"peek": expression}
is answered at once by another thread, which knows `shell` and `engine` but must not call Dear PyGui: a minimised window
draws no frames.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from app import messages as m
from app.gui import window
from tests.gui.fake_engine import FakeEngine, scene


class Orders:
    """What stdin asks for, answered on stdout."""

    def __init__(self, engine: Any) -> None:
        self._names: dict[str, Any] = {"engine": engine}
        self._waiting: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()

    def _read(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            if "peek" in order:
                self._answer(order)
            else:
                self._waiting.put(order)

    def _answer(self, order: dict[str, str]) -> None:
        (kind, code), = order.items()
        try:
            if kind == "run":
                exec(code, self._names)  # noqa: S102 - the test's own code
                _say(None)
            else:
                _say(eval(code, self._names))  # noqa: S307 - the test's own code
        except Exception as error:  # noqa: BLE001 - the test reads it
            _say({"error": f"{type(error).__name__}: {error}"})

    def on_frame(self, shell: Any) -> None:
        from app.gui.toolkit import dpg
        if shell.frames == 1:
            self._names.update(shell=shell, dpg=dpg, m=m, np=np, scene=scene)
            threading.Thread(target=self._read, daemon=True).start()
            _say("ready")
        while not self._waiting.empty():
            self._answer(self._waiting.get())


def main() -> int:
    options = json.loads(sys.argv[1])
    if options["demo"]:
        return whole_program(options)
    engine = FakeEngine(play=options["play"], busy=options["busy"], steps_per_second=options["speed"])
    engine.start(scene() if options["scene"] else None)
    return window.run_window(engine.commands, engine.view_requests, engine.events, engine.snapshots, trace=options["trace"],
                             on_close=engine.close, preferences_path=Path(options["preferences"]),
                             on_frame=Orders(engine).on_frame)


def whole_program(options: dict[str, Any]) -> int:
    """As `splatscope` runs it, on the demo; the number of Gaussians stays, so that speed and memory can be compared."""
    from app.config import DensifyConfig, TrainConfig
    from app.demo import demo_folder
    from app.launch import launch
    run_window = window.run_window

    def with_orders(*mailboxes: Any, on_close: Any, **named: Any) -> int:
        engine = on_close.__self__
        named |= {"preferences_path": Path(options["preferences"]), "on_frame": Orders(engine).on_frame}
        return run_window(*mailboxes, on_close=on_close, **named)

    window.run_window = with_orders
    return launch(str(demo_folder()), trace=options["trace"],
                  config=TrainConfig(iterations=100_000, densify=DensifyConfig(strategy="none")))


def _say(value: Any) -> None:
    print(json.dumps(value, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.floating, np.integer)):
        return value.item()
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
