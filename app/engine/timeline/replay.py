"""Moments brought back: as Gaussians to look at, and as a trainer that goes on from there."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from app.config import TrainConfig
from app.engine.background import Report
from app.engine.jobs import Refused
from app.engine.model import Model
from app.engine.timeline.ring import Kept
from app.messages import Moment
from app.options import config_from
from app.training import checkpoint, schedule
from app.training.probes import PROBES
from app.training.quantities.registry import Unreadable
from app.training.state import KEPT, LINEAGE, ROWS, RunState, restore
from app.training.trainer import Trainer
from app.training.verdict import TrainingStopped
from render import interrupt
from render.pipeline import device_of
from render.types import GaussianParams

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.quantities.registry import Reading
    from render.types import Camera

Progress = tuple[float, str]
MARK = f"{ROWS}mark."


@dataclass
class MomentModel(Model):
    """What is drawn of a moment: its Gaussians, options and marks. It never changes."""

    moment: Moment = Moment("", 0)
    degree: int = 0

    @staticmethod
    def of(kept: Kept, live: Model) -> MomentModel:
        """Arrays are shared with the moment; nobody writes into them."""
        arrays, device = kept.state.arrays, device_of(live.backend)
        params = GaussianParams(**{name: torch.from_numpy(arrays[ROWS + name]) for name in KEPT}).to(device)
        config, _ = config_from(kept.state.meta["config"])
        highest = round((params.shN.shape[1] + 1) ** 0.5) - 1
        degree = schedule.resolve(config).sh_degree(kept.iteration, min(highest, config.sh_degree))
        marks = {name.removeprefix(ROWS): torch.from_numpy(array).to(device) for name, array in arrays.items()
                 if name.startswith(MARK)}
        return MomentModel(live.path, None, live.scene, params, config, live.backend, kept.serial, marks=marks,
                           moment=Moment(kept.branch, kept.iteration), degree=degree)

    @property
    def iteration(self) -> int:
        return self.moment.iteration

    @property
    def sh_degree(self) -> int:
        return self.degree

    def reading(self, name: str, camera: Camera | None = None) -> Reading:
        if name in PROBES and PROBES[name].needs == "trainer":
            raise Unreadable(f"{PROBES[name].label} belongs to the run as it trains; a moment of the past has none.")
        return super().reading(name, camera)


def read_file(path: Path) -> RunState:
    """The trainer's part of a checkpoint. Raises CheckpointError. Runs in a helper thread."""
    state = checkpoint.read(path).state
    return RunState({name: array for name, array in state.arrays.items() if name.startswith((ROWS, LINEAGE))}, state.meta)


def reach(engine: Engine, moment: Moment) -> Generator[Progress | None, None, Trainer]:
    """Part of a job: a trainer of its own that stands at a moment, replayed from the one kept before it.

    Raises Refused, one sentence, where it cannot be reached.
    """
    kept = yield from _start(engine, moment)
    branch = engine.timeline.branches[moment.branch]
    yield 0.0, f"going back to iteration {kept.iteration:,}"
    twin = yield from engine.background(lambda report: rebuild(engine, kept, report), "replay").wait((0.0, 0.0))
    _know_records(engine, kept, twin)
    changes = [entry for entry in branch.log[kept.log[0]:] if entry.options] if kept.certain else []
    steps, first = max(1, moment.iteration - kept.iteration), kept.iteration
    while True:
        while changes and changes[0].iteration <= min(twin.iteration, moment.iteration):
            twin.set_options(dict(changes.pop(0).options))
        if twin.iteration >= moment.iteration:
            break
        try:
            twin.step()
            if twin.deferred:
                twin.settle()
        except interrupt.Interrupted:   # somebody waits for the thread; this goes on in the next turn
            yield None
            continue
        except TrainingStopped as error:
            raise Refused(f"The replay ended: {error}") from error
        yield (twin.iteration - first) / steps, f"iteration {twin.iteration:,} of {moment.iteration:,}"
    twin.notices.clear()   # the user has read them when it happened
    return twin


def _start(engine: Engine, moment: Moment) -> Generator[Progress | None, None, Kept]:
    """The moment to begin from: in memory, or a file where that is nearer."""
    timeline = engine.timeline
    if moment.branch not in timeline.branches:
        raise Refused(f"There is no branch {moment.branch}")
    kept, problem = timeline.base(moment), ""
    while (file := timeline.base_file(moment)) is not None and (kept is None or file[1] > kept.iteration):
        of, iteration = file
        path = of.on_disk[iteration]
        yield 0.0, f"reading {path.name}"
        try:
            state = yield from engine.background(lambda report, path=path: read_file(path), "moment").wait((0.0, 0.0))
        except (checkpoint.CheckpointError, OSError) as error:
            of.on_disk.pop(iteration, None)   # and on to the one before it
            problem = str(error)
        else:
            kept = timeline.from_file(of, iteration, state)
            timeline.put(kept)
            break
    if kept is None and problem:
        raise Refused(problem)
    if kept is None:
        raise Refused(f"Iteration {moment.iteration:,} cannot be reached: {_why_not(engine, moment)}; choose a kept moment")
    return kept


def _why_not(engine: Engine, moment: Moment) -> str:
    """Why a moment cannot be replayed from any other."""
    timeline, goal = engine.timeline, moment.iteration
    branch = timeline.branches[moment.branch]
    kept = [one.iteration for one in timeline.kept(branch.name)] + [iteration for _, iteration in timeline.files(branch.name)]
    if not any(iteration < goal for iteration in kept):
        return "no moment before it is kept, and a replay only goes forward"
    if any(not entry.options and branch.known <= entry.iteration <= goal for entry in branch.log):
        return "nothing is kept between it and the last change made by hand before it"
    if branch.known:
        between = ", and nothing is kept between the two" if branch.known < goal else ""
        return (f"what was done before iteration {branch.known:,} is not known, since the run was taken up from a file"
                f"{between}")
    return "of no moment that is kept before it is it known what had been done to the run by then"


def rebuild(engine: Engine, kept: Kept, report: Report) -> Trainer:
    """A trainer that stands where a moment was. Runs in a helper thread."""
    model = engine.model
    if model is None or model.scene is None:
        raise Refused("The run is gone, so there is nothing to go back to")
    state = kept.state
    config, _ = config_from(state.meta["config"])
    twin = engine.settings.make_trainer(model.scene, config, backend=engine.backend, params=state.params())
    report(0.5, "")
    restore(twin, state)
    if state.meta.get("memory_cap") is not None:   # the same process has the memory that it had
        twin.memory_cap = int(state.meta["memory_cap"])
        twin.state.cap = twin.cap
    twin.notices.clear()
    return twin


def _know_records(engine: Engine, kept: Kept, twin: Trainer) -> None:
    """Records of densifications before the moment, for the panels; no state has them."""
    live = engine.model.trainer if engine.model is not None else None
    if live is not None and any(of.name == kept.branch and kept.iteration <= last
                                for of, last in engine.timeline.branches.past(engine.timeline.current)):
        twin.records.extend(r for r in live.records if r.event.iteration <= kept.iteration)


def live_options(old: TrainConfig, now: TrainConfig) -> TrainConfig:
    """The options of a run that was taken up, with those that wait for the next reset."""
    from app.options import flatten, is_live, with_option

    waiting = flatten(now)
    for path, value in flatten(old).items():
        if waiting[path] != value and not is_live(path):
            old = with_option(old, path, waiting[path])
    return old
