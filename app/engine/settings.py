"""What the engine is started with and does not change by itself. Loaders can be exchanged, e.g. by tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.config import EVAL_EVERY
from app.engine.background import Report
from app.records.place import Place
from app.training.autosave import AutosaveConfig
from app.training.backend import usable_cores


def _trainer(*args: Any, **named: Any) -> Any:
    from app.training.trainer import Trainer

    return Trainer(*args, **named)


def _open_scene(path: str, **named: Any) -> Any:
    from app.data.open import open_scene

    return open_scene(path, **named)


def _load_backend(name: str, report: Report) -> Any:
    from app.engine.work import load_backend

    return load_backend(name, report)


@dataclass(frozen=True)
class EngineSettings:
    backend: str = "auto"
    threads: int = field(default_factory=usable_cores)   # kernel threads when nobody drags
    resolution: int = -1                           # as graphdeco's -r
    long_side: int = 0                             # px; 0 = as `resolution` says
    eval_every: int = EVAL_EVERY                   # every n-th view is held out; 0 = none
    autosave: AutosaveConfig = field(default_factory=AutosaveConfig)   # of runs that are recorded
    timeline_bytes: int = 0                        # for moments of the past; 0 = a share of the free memory
    debug: bool = False                            # tracebacks on stderr
    record: Place | None = None                    # where runs are recorded; None = nowhere
    make_trainer: Callable[..., Any] = _trainer
    open_scene: Callable[..., Any] = _open_scene
    load_backend: Callable[[str, Report], Any] = _load_backend

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it must be at least 1")
