"""What the engine's tests put around it: a window without a window, and a trainer whose steps cost what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from app import messages as m
from app.config import TrainConfig
from app.data.scene import Scene
from app.engine.loop import Engine
from app.engine.settings import EngineSettings
from app.engine.work import Ready
from app.messages import Densified
from app.training.trainer import StepReport, Trainer
from app.training.verdict import Measured
from tests.training.tiny import make_scene

PATIENCE = 60.0
"""Seconds after which a test gives up waiting; far above what anything takes, for a machine under load."""


class QuickTrainer(Trainer):
    """The real trainer, but a step only moves the means and takes `step_seconds`. Tests set the class attributes."""

    step_seconds = 0.0
    raises: Callable[[int], None] = staticmethod(lambda iteration: None)
    densify_at: frozenset[int] = frozenset()

    def step(self) -> StepReport:
        type(self).raises(self.iteration + 1)
        if self.step_seconds:
            time.sleep(self.step_seconds)
        with torch.no_grad():
            self.params.means.add_(1e-4)
        self._activated = None
        self.iteration += 1
        self.measured = Measured(self.iteration, 1.0 / self.iteration, 0.1, 0.01, 0.5)
        count = len(self.params)
        event = Densified(self.iteration, cloned=1, count=count) if self.iteration in self.densify_at else None
        return StepReport(self.iteration, 1.0 / self.iteration, 20.0, 0.1, 0.5, count, self.views[0].name, event,
                          {"project": 1.0}, self.iteration)


def trainer_class(**attributes) -> type[QuickTrainer]:
    """A QuickTrainer of one's own, so that tests do not share settings."""
    return type("OwnTrainer", (QuickTrainer,), attributes)


def quick_settings(**changes) -> EngineSettings:
    """Everything quick: a tiny scene whatever the path, no imports to wait for, steps that cost nothing."""
    settings = EngineSettings(backend="reference", threads=2, make_trainer=QuickTrainer, open_scene=open_tiny,
                              load_backend=lambda name, report: Ready(name))
    return replace(settings, **changes)


def open_tiny(path: str, *, progress: Callable[[float, str], None], **_: object) -> Scene:
    progress(0.5, "half way")
    return make_scene(4, 12, size=24, points=20, test_every=2)


def gated(real: Callable[..., Any]) -> tuple[threading.Event, Callable[..., Any]]:
    """(gate, the function as it is on a slow disk): it waits until the gate is set."""
    gate = threading.Event()

    def slow(*args: Any, **named: Any) -> Any:
        gate.wait(PATIENCE)
        return real(*args, **named)

    return gate, slow


class Window:
    """Talks to an engine as the real window does, and remembers all it was told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[m.Event] = []
        self.snapshot = m.Snapshot()
        self.snapshots: list[m.Snapshot] = []
        self.sent = 0
        self._version = 0

    def send(self, *commands: m.Command) -> None:
        for command in commands:
            self.engine.commands.put(command)
            self.sent += 1

    def sync(self) -> float:
        """Wait until everything sent so far is carried out and shown; the seconds it took."""
        return self.until(lambda: self.snapshot.commands_done >= self.sent)

    def look(self, request: m.ViewRequest) -> m.ViewRequest:
        self.engine.view_requests.put(request)
        return request

    def read(self) -> None:
        self.events += self.engine.events.drain()
        self._version, newer = self.engine.snapshots.newer_than(self._version)
        if newer is not None:
            self.snapshot = newer
            self.snapshots.append(newer)

    def until(self, true: Callable[[], object], timeout: float = PATIENCE) -> float:
        """Read until `true()`, and return the seconds it took. Fails the test when it never becomes true."""
        begun = time.monotonic()
        while True:
            self.engine.news.clear()
            self.read()
            if true():
                return time.monotonic() - begun
            left = begun + timeout - time.monotonic()
            assert left > 0, f"waited {timeout:g} s in vain; {self.snapshot.state}, last events {self.events[-5:]}"
            self.engine.news.wait(min(left, 1.0))

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def opened(self) -> m.SceneOpened:
        return self.of(m.SceneOpened)[-1]

    def open(self, path: str = ".", *, play: bool = False) -> m.SceneOpened:
        before = len(self.of(m.SceneOpened))
        self.send(m.OpenScene(path, play))
        self.until(lambda: len(self.of(m.SceneOpened)) > before and self.snapshot.state not in ("loading", "empty"))
        return self.opened

    def state(self, name: str) -> Callable[[], bool]:
        return lambda: self.snapshot.state == name

    def frame_of(self, request: m.ViewRequest, *, refined: bool = False) -> m.Frame:
        """The picture that answers a request."""
        def there() -> bool:
            frame = self.snapshot.frame
            return frame is not None and frame.request is request and (not refined or frame.detail == 1.0)

        self.until(there)
        assert self.snapshot.frame is not None
        return self.snapshot.frame


def make_engine(config: TrainConfig | None = None, **changes) -> Engine:
    return Engine(config or TrainConfig(iterations=1_000_000), quick_settings(**changes))


@contextmanager
def running_engine(config: TrainConfig | None = None, **changes) -> Iterator[Window]:
    """A window on a started engine, which is closed and joined at the end."""
    engine = make_engine(config, **changes).start()
    try:
        yield Window(engine)
    finally:
        assert engine.close(), "the engine did not end"
        engine.join_helpers()


def request_for(window: Window, *, width: int = 32, height: int = 24, **named) -> m.ViewRequest:
    """What the viewport would ask for at the first photograph's camera."""
    return m.ViewRequest(window.opened.views[0].camera.resized(width, height), **named)
