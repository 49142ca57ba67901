"""What the timeline's tests share: a run that densifies and resets often, and all of its bits."""

from __future__ import annotations

import hashlib

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.training.trainer import Trainer
from tests.app.engine_doubles import Window

CONFIG = TrainConfig(iterations=1000, schedule_iterations=30_000, sh_every=7, seed=5,
                     densify=DensifyConfig(start=3, every=10, stop=45, reset_every=15, grad_threshold=1e-6, cap=150))
REAL = {"make_trainer": Trainer, "backend": "cpu"}


def bits(window: Window) -> str:
    """Of all that decides the steps to come. Only while the run stands still."""
    assert window.engine.model is not None and window.engine.model.trainer is not None
    trainer = window.engine.model.trainer
    rows, digest = trainer.state.rows, hashlib.sha256()
    for name in sorted(rows):
        if not name.startswith(("grad.", "tap.", "last.", "lab.", "mark.selected", "mark.hidden")):
            digest.update(name.encode() + rows[name].detach().numpy().tobytes())
    for value in (trainer.iteration, trainer.state.optimizer.memory(), trainer.order.memory(), trainer.config,
                  trainer.state.rng.bit_generator.state, trainer.lineage.arrays()["parents"].tolist()):
        digest.update(repr(value).encode())
    return digest.hexdigest()


def steps(window: Window, count: int) -> None:
    goal = window.snapshot.iteration + count
    window.send(m.Step(count))
    window.until(lambda: window.snapshot.iteration == goal and window.snapshot.state == "paused")


def settled(window: Window) -> None:
    """All commands done and no job left."""
    window.sync()
    window.until(lambda: window.snapshot.job is None and window.engine.jobs.current is None)
    window.sync()


def branch(window: Window, name: str = "main") -> m.BranchState:
    found = window.snapshot.timeline.branch(name)
    assert found is not None
    return found


def texts(window: Window) -> str:
    return " ".join(event.text for event in window.of(m.Notice))
