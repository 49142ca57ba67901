"""The window and the engine put together, and taken apart in the order that Dear PyGui survives."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from app import messages as m
from app.config import EVAL_EVERY, TrainConfig
from app.engine.loop import Engine
from app.engine.settings import EngineSettings, usable_cores
from app.records.place import Place
from app.signals import terminated_politely
from app.training.autosave import AutosaveConfig

SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that holds Python's lock gives it up: the window's frame waits for the engine's Python
code at most this long a time, instead of the default 5 ms."""
UNSAVED = 2
"""The exit code where what was to be written at the close could not be."""


def launch(path: str | None, *, backend: str = "auto", trace: str | None = None, play: bool = True,
           config: TrainConfig | None = None, resolution: int = -1, long_side: int = 0, eval_every: int = EVAL_EVERY,
           threads: int = 0, debug: bool = False, record: Place | None = None, autosave: AutosaveConfig | None = None,
           resume: bool = True, changes: Mapping[str, Any] | None = None, timeline_bytes: int = 0) -> int:
    """Open the window on a scene folder, a run or a PLY (None = nothing yet) and return its exit code.

    `record` says where runs are recorded; None = nowhere. A run goes on from its newest checkpoint with the options that it
    had but for `changes`, unless it is only to be looked at. The engine loads and compiles while the window comes up. On the
    way out: the engine stops and is joined, then the window's context is destroyed, then helper threads are waited for (G14).
    The exit code is 2 where the run could not be saved as it was left, as without a window; stderr says why.
    Raises SceneError or another one-sentence error when there is no display or a file cannot be written.
    """
    from app.gui.window import run_window  # Dear PyGui: only for those who open a window

    settings = EngineSettings(backend=backend, threads=threads or usable_cores(), resolution=resolution,
                              long_side=long_side, eval_every=eval_every, debug=debug, record=record,
                              autosave=autosave or AutosaveConfig(), timeline_bytes=timeline_bytes)
    engine = Engine(config, settings)
    sys.setswitchinterval(SWITCH_INTERVAL)
    if path is not None:
        engine.commands.put(m.OpenScene(path, play, resume, dict(changes or {})))
    engine.start()
    try:
        with terminated_politely():
            code = run_window(engine.commands, engine.view_requests, engine.events, engine.snapshots,
                              inspect_requests=engine.inspect_requests, trace=trace, on_close=engine.close,
                              title="Splatscope")
    finally:
        ended = engine.close()
        engine.join_helpers()
    if not ended and engine.recorder.holds_folder:
        engine.unsaved.add("the end")
        print(f"splatscope: the engine was still at work and was not waited for longer: {engine.run_folder} has the run as its "
              "newest checkpoint says, and nothing after it.", file=sys.stderr)
    return code or (UNSAVED if engine.unsaved else 0)
