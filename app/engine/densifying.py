"""Densification at the user's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.engine.selecting import OF_ONE_MODEL
from app.messages import Densified, DensifyNow

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.trainer import Trainer


def densify_now(engine: Engine, command: DensifyNow) -> None:
    """One event between two steps."""
    model = engine.model
    if model is None or model.trainer is None:
        engine.notice("There is no run to densify; open a scene folder first.", "warning")
        return
    if model.trainer.phase == "backward":
        engine.notice("The step under way has its gradients but not its update; let the optimiser go first.", "warning")
        return
    engine.jobs.cancel_named(*OF_ONE_MODEL)
    at_once(engine, model.trainer)


def at_once(engine: Engine, trainer: Trainer) -> None:
    """Do it, and say what came of it."""
    trainer.strategy.refused = ""   # of another time; what fails before it is asked has said why
    record = engine.steps.attempt("Densification", trainer.densify_now)
    if record is None:
        if trainer.strategy.refused:
            engine.notice(f"Nothing was densified: {trainer.strategy.refused}")
        return
    engine.timeline.edited()
    engine.history.add(trainer.iteration, count=record.event.count)
    engine.emit(record.event)
    assert engine.model is not None
    engine.model.moved()
    engine.publisher.curves_changed()


def in_words(event: Densified) -> str:
    """A densification in a few words."""
    parts = [f"{count:,} {word}" for count, word in (
        (event.cloned, "cloned"), (event.split, "split"), (event.pruned, "pruned"), (event.relocated, "moved"),
        (event.added, "added"), (event.reset, "opacities lowered")) if count]
    return f"densification: {', '.join(parts) or 'nobody was concerned'}; {event.count:,} Gaussians"
