"""The alpha-rule laboratory as jobs of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.engine.jobs import Job, Refused, Work
from app.messages import CompareRules, LanesMoved, RulesCompared, RunLanes

if TYPE_CHECKING:
    from app.data.scene import View
    from app.engine.loop import Engine
    from app.training.trainer import Trainer

COMPARING = "compare"
LANES = "lanes"
MOST_STEPS = 5000
REPORT_SECONDS = 0.1
"""Between two reports of lanes that run."""


def may_start(engine: Engine, command: CompareRules | RunLanes) -> bool:
    """Whether there is a run to compare on and rules that make sense; says why not."""
    if engine.model is None or engine.model.trainer is None:
        engine.notice("There is no run to compare rules on; open a scene folder first.", "warning")
        return False
    for rule in (command.a, command.b):
        try:
            rule.on(engine.model.options.raster)
        except ValueError as error:
            engine.notice(str(error), "error")
            return False
    if isinstance(command, RunLanes) and not 1 <= command.steps <= MOST_STEPS:
        engine.notice(f"Lanes of {command.steps} steps cannot be run; choose 1 to {MOST_STEPS:,}.", "error")
        return False
    return not (engine.jobs.has(COMPARING) or engine.jobs.has(LANES))


def compare(engine: Engine, command: CompareRules) -> None:
    """Answers with RulesCompared. The differences become a quantity that heatmaps can show."""
    if may_start(engine, command):
        engine.jobs.add(Job(COMPARING, _compare(engine, command)))


def _compare(engine: Engine, command: CompareRules) -> Work:
    from app.inspection.laboratory import compare_rules

    trainer = _trainer(engine)
    found = yield from compare_rules(trainer, _view(engine, trainer, command.view_index), command.a, command.b)
    import torch

    rows = trainer.state.rows
    for name, (a, b) in found.values.items():
        rows.put(f"lab.{name}", torch.from_numpy(b - a).to(trainer.device))
    engine.emit(RulesCompared(found))
    assert engine.model is not None
    engine.model.moved()


def lanes(engine: Engine, command: RunLanes) -> None:
    """Answers with LanesMoved, several times."""
    if may_start(engine, command):
        engine.jobs.add(Job(LANES, _lanes(engine, command)))


def _lanes(engine: Engine, command: RunLanes) -> Work:
    from app.inspection.laboratory import train_lanes
    from app.training.verdict import TrainingStopped

    job = train_lanes(_trainer(engine), command.a, command.b, command.steps)
    reported = -1e9
    yield 0.0, "copying the run"
    while True:
        try:
            state = next(job)
        except StopIteration as end:
            engine.emit(LanesMoved(end.value))
            return
        except TrainingStopped as error:
            raise Refused(f"The lanes ended: {error}") from error
        if state is None:
            yield None
            continue
        if engine.clock() - reported >= REPORT_SECONDS:
            reported = engine.clock()
            engine.emit(LanesMoved(state))
        yield state.done / (state.steps + 1), f"step {state.done} of {state.steps}"


def _trainer(engine: Engine) -> Trainer:
    if engine.model is None or engine.model.trainer is None:
        raise Refused("The run is gone, so there is nothing to compare rules on.")
    return engine.model.trainer


def _view(engine: Engine, trainer: Trainer, index: int | None) -> View:
    assert engine.model is not None
    views = engine.model.scene.views if engine.model.scene is not None else []
    if index is not None and 0 <= index < len(views):
        return views[index]
    return trainer.views[trainer.last_view_index or 0]
