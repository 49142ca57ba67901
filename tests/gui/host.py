"""A real window in a process of its own, with the fake engine, taking orders on stdin.

Each line is JSON: {"run": statements} or {"get": expression}; the answer is one JSON line on stdout. Code runs on the
window's thread after a drawn frame, with `shell`, `engine`, `dpg` and `m` (app.messages) at hand.
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
from app.gui.window import run_window
from tests.gui.fake_engine import FakeEngine, scene


def main() -> int:
    options = json.loads(sys.argv[1])
    engine = FakeEngine(play=options["play"], busy=options["busy"], steps_per_second=options["speed"])
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(json.loads(line))

    def answer(value: Any) -> None:
        print(json.dumps(value, default=_plain), flush=True)

    def on_frame(shell: Any) -> None:
        from app.gui.toolkit import dpg
        names = {"shell": shell, "engine": engine, "dpg": dpg, "m": m, "np": np, "scene": scene}
        if shell.frames == 1:
            answer("ready")
        while not orders.empty():
            order = orders.get()
            try:
                if "run" in order:
                    exec(order["run"], names)  # noqa: S102 - the test's own code
                    answer(None)
                else:
                    answer(eval(order["get"], names))  # noqa: S307 - the test's own code
            except Exception as error:  # noqa: BLE001 - the test reads it
                answer({"error": f"{type(error).__name__}: {error}"})

    engine.start(scene() if options["scene"] else None)
    threading.Thread(target=read, daemon=True).start()
    return run_window(engine.commands, engine.view_requests, engine.events, engine.snapshots, trace=options["trace"],
                      on_close=engine.close, preferences_path=Path(options["preferences"]), on_frame=on_frame)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.floating, np.integer)):
        return value.item()
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
