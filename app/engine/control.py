"""Parts of a step, goals, many options at once and the pace: what the commands of app/protocol/control.py do."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import messages as m
from app.engine import densifying
from app.options import OptionError, flatten, is_live, with_options
from app.pace import PaceConfig

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.trainer import StepReport, Trainer

MOST_VIEWS = 100
"""The means of a goal are over the latest steps, one for each training view, so many at most."""
WORDS = {
    "densify": "until the next densification", "loss": "until the mean loss is below {:g}",
    "psnr": "until the mean training PSNR is above {:g} dB", "test_psnr": "until the held-out PSNR is above {:g} dB",
    "count": "until there are more than {:,.0f} Gaussians", "iteration": "until iteration {:,.0f}",
    "stop": "until training stops by itself"}


@dataclass
class Running:
    """What the run goes on for."""

    kind: m.Goal
    value: float
    left: int | None          # steps; None = no limit
    limit: int

    @property
    def words(self) -> str:
        return WORDS[self.kind].format(self.value)


class Control:
    """Lives in the engine's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.pace, self.headless = PaceConfig(), False
        self.start_over()

    def start_over(self) -> None:
        """Another run."""
        self.parts: deque[m.Part] = deque()
        self.goal: Running | None = None
        self._forwarded: object = None    # what the run was like when the forward pass alone measured it
        self._losses: deque[float] = deque(maxlen=MOST_VIEWS)
        self._psnrs: deque[float] = deque(maxlen=MOST_VIEWS)

    @property
    def trainer(self) -> Trainer | None:
        return self._engine.model.trainer if self._engine.model is not None else None

    @property
    def phase(self) -> str:
        """How far the step under way is."""
        return "" if self.trainer is None else self.trainer.phase

    def state(self) -> m.Steering:
        loss, psnr = self._means()
        return m.Steering(self.phase, self.goal.words if self.goal is not None else "", self.headless, loss, psnr,   # type: ignore
                          none_due(self.trainer) if self.trainer is not None else "",
                          self._forwarded is not None and self._forwarded == self._likeness())

    # ------------------------------------------------------------------ parts of a step

    def _likeness(self) -> object:
        """Differs where anything differs that the forward pass measures."""
        timeline, trainer = self._engine.timeline, self.trainer
        if trainer is None or not timeline.follow():
            return None
        return timeline.current, timeline.now.mark(), trainer.iteration, trainer.phase == "update", trainer.backend

    @property
    def pending(self) -> bool:
        """Whether a part could be taken now."""
        return bool(self.parts) and not self._engine.jobs.exclusive and self.trainer is not None

    def take_part(self) -> None:
        """Take the next part that was asked for."""
        engine, part = self._engine, self.parts[0]
        engine.timeline.notice_edits()   # such as another backend
        trainer, begun = self.trainer, self._engine.clock()
        assert trainer is not None and engine.model is not None
        iteration = trainer.iteration + 1
        parts: dict[str, tuple[str, Callable[[Trainer], Any]]] = {
            "forward": (f"The forward pass of step {iteration}", self._forward),
            "backward": (f"The backward pass of step {iteration}", self._backward),
            "optimiser": (f"The update of step {iteration}", self._update), "densify": ("Densifying", self._densify)}
        doing, action = parts[part]

        def attempted() -> bool:
            action(trainer)
            return True

        before = engine.seconds
        done = engine.steps.attempt(doing, attempted)
        if self.parts and (done or not engine.interrupt):   # given up for somebody who waits, it has changed nothing: again
            self.parts.popleft()
        engine.timeline.after_part()
        engine.seconds = before + engine.clock() - begun
        if part != "forward":
            engine.model.moved()
        elif done:
            self._forwarded = self._likeness()
        engine.publisher.dirty = True

    def _forward(self, trainer: Trainer) -> None:
        name, found = trainer.forward()
        engine = self._engine
        engine.emit(m.ViewForwarded(found.iteration, name, found.loss, found.psnr, found.l1, found.ssim))

    def _backward(self, trainer: Trainer) -> None:
        if trainer.phase == "update":
            self._end_step(trainer)
        if trainer.iteration >= trainer.config.iterations:
            return   # the step that was ended was the last
        report = trainer.backward()
        self._engine.view_name = report.view_name
        self._engine.steps.measured(report.measured, report.loss, report.psnr)
        self._engine.publisher.curves_changed()

    def _update(self, trainer: Trainer) -> None:
        trainer.update()

    def _densify(self, trainer: Trainer) -> None:
        """The end of a step is what the schedule says, so that the parts together are the whole; between steps, an event."""
        if trainer.phase != "update":
            densifying.at_once(self._engine, trainer)
        elif self._end_step(trainer).densified is None:
            self._engine.notice(f"Step {trainer.iteration:,} is done; the schedule brings no densification in it. Densify "
                                "between two steps makes one at once.")

    def _end_step(self, trainer: Trainer) -> StepReport:
        engine = self._engine
        begun = engine.clock()
        report = trainer.step()
        engine.steps.stepped(report, engine.clock() - begun)
        return report

    # ------------------------------------------------------------------ goals

    def measured(self, loss: float, psnr: float) -> None:
        """Of one more step."""
        self._losses.append(loss)
        self._psnrs.append(psnr)

    def _means(self) -> tuple[float, float]:
        """(loss, PSNR) over the latest steps; NaN before there are enough of them."""
        trainer = self.trainer
        count = min(MOST_VIEWS, len(trainer.views)) if trainer is not None else MOST_VIEWS
        if len(self._losses) < count:
            return math.nan, math.nan
        return tuple(sum(list(kept)[-count:]) / count for kept in (self._losses, self._psnrs))   # type: ignore[return-value]

    def stepped(self, report: Any) -> None:
        """After a step of a run that has a goal: whether it is met, or its steps are used up."""
        goal, engine = self.goal, self._engine
        if goal is None:
            return
        loss, psnr = self._means()
        found = ""
        if goal.kind == "densify" and report.densified is not None:
            found = densifying.in_words(report.densified)
        elif goal.kind == "loss" and loss < goal.value:
            found = f"the mean loss is {loss:.4g}, below {goal.value:g}"
        elif goal.kind == "psnr" and psnr > goal.value:
            found = f"the mean training PSNR is {psnr:.2f} dB, above {goal.value:g}"
        elif goal.kind == "count" and report.gaussians > goal.value:
            found = f"there are {report.gaussians:,} Gaussians, more than {goal.value:,.0f}"
        elif goal.kind == "iteration" and report.iteration >= goal.value:
            found = "that is the iteration asked for"
        if found:
            self._end(f"Paused at iteration {report.iteration:,}: {found}.")
            return
        if goal.left is not None:
            goal.left -= 1
            if goal.left <= 0:
                self._end(f"Paused at iteration {report.iteration:,} after {goal.limit:,} steps; the goal was to train "
                          f"{goal.words}, and {self._now(goal, report.gaussians)}.", "warning")
        elif not engine.running:
            self.goal = None

    def _now(self, goal: Running, count: int) -> str:
        loss, psnr = self._means()
        test = self._engine.last_evaluation.psnr
        return {"loss": f"it is {loss:.4g} now" if loss == loss else "there are too few steps for a mean yet",
                "psnr": f"it is {psnr:.2f} dB now" if psnr == psnr else "there are too few steps for a mean yet",
                "test_psnr": f"it is {test:.2f} dB now" if test == test else "it was not measured yet",
                "count": f"there are {count:,} now"}.get(goal.kind, "that was not reached")

    def evaluated(self, psnr: float, iteration: int) -> None:
        """Held-out views were measured."""
        goal = self.goal
        if goal is None or goal.kind != "test_psnr":
            return
        if psnr > goal.value:
            self._end(f"Paused at iteration {iteration:,}: the held-out PSNR is {psnr:.2f} dB, above {goal.value:g}.")
        elif not self._engine.training:
            self._missed(goal)

    def drop(self) -> None:
        """The run was paused, stopped or told to do something else."""
        self.goal = None
        self.parts.clear()

    def finished(self) -> None:
        """The last iteration is done."""
        goal = self.goal
        if goal is not None and goal.kind in ("iteration", "stop"):
            self.goal = None
        elif goal is not None and goal.kind != "test_psnr":   # the evaluation that ends a run may still meet that one
            self._missed(goal)

    def _missed(self, goal: Running) -> None:
        self.goal = None
        count = len(self.trainer.params) if self.trainer is not None else 0
        self._engine.notice(f"The run is over; the goal was to train {goal.words}, and {self._now(goal, count)}.", "warning")

    def _end(self, text: str, level: str = "info") -> None:
        engine = self._engine
        self.goal = None
        engine.running, engine.steps_left = False, None
        engine.notice(text, level)
        engine.publisher.dirty = True


# ---------------------------------------------------------------------------------------------- handlers

def may_train(engine: Engine) -> bool:
    """Whether there is, or soon will be, something to train; says why not."""
    from app.engine import work

    if engine.jobs.has(work.OPENING) or engine.jobs.has(work.RESETTING):
        return True
    model = engine.model
    if model is None:
        engine.notice("There is nothing to train yet; open a scene first.", "warning")
    elif model.trainer is None:
        engine.notice("A PLY has no photographs to train with; open a scene folder instead.", "warning")
    elif model.trainer.iteration >= model.trainer.config.iterations and not model.trainer.phase:
        done = model.trainer.config.iterations
        engine.notice(f"All {done:,} iterations are done; raise iterations or reset.", "warning")
    else:
        engine.failed = False
        return True
    return False


def take_part(engine: Engine, command: m.TakePart) -> None:
    control = engine.control
    if command.part not in ("forward", "backward", "optimiser", "densify"):
        engine.notice(f"There is no part {command.part!r} of a step; choose forward, backward, optimiser or densify.", "error")
        return
    if not _ready(engine):
        return
    ahead = (control.phase, *control.parts)[-1]   # what the step will be at when this part's turn has come
    problem = {
        ("optimiser", ""): "No gradients are pending; take the backward pass first.",
        ("optimiser", "optimiser"): "The optimiser has already moved the parameters in this step; take the next backward pass.",
        ("optimiser", "densify"): "No gradients are pending; take the backward pass first.",
        ("backward", "backward"): "The gradients of the next step are known already; let the optimiser use them, or take the "
                                  "whole step.",
        ("densify", "backward"): "The step under way has its gradients but not its update; let the optimiser go first.",
    }.get((command.part, "optimiser" if ahead == "update" else "" if ahead == "forward" else ahead))
    if problem is None and command.part == "densify":
        engine.failed = False
    elif problem is None and not may_train(engine):
        return
    engine.running, engine.steps_left, control.goal = False, None, None   # parts that wait are taken first
    if problem is not None:
        engine.notice(problem, "warning")
    else:
        control.parts.append(command.part)


def _ready(engine: Engine) -> bool:
    """Whether there is a run now; says why not."""
    from app.engine import work

    if engine.jobs.has(work.OPENING) or engine.jobs.has(work.RESETTING):
        engine.notice("The run is still being prepared; wait for it.", "warning")
    elif engine.control.trainer is None:
        may_train(engine)   # says why not
    else:
        return True
    return False


def run_until(engine: Engine, command: m.RunUntil) -> None:
    if not _ready(engine):
        return
    problem = _unreachable(engine, command)
    if problem is not None:
        engine.notice(problem, "warning")
    elif may_train(engine):
        limit = int(command.limit)
        engine.control.drop()
        engine.running, engine.steps_left = True, None
        engine.control.goal = Running(command.goal, float(command.value), limit or None, limit)


def _unreachable(engine: Engine, command: m.RunUntil) -> str | None:
    """Why this goal cannot be gone for, one sentence."""
    if command.goal not in m.GOALS:
        return f"There is no goal {command.goal!r}; choose one of {', '.join(m.GOALS)}."
    try:
        value, limit = float(command.value), int(command.limit)
    except (TypeError, ValueError, OverflowError):
        return f"The goal is {command.value!r} within {command.limit!r} steps; both must be numbers."
    if not math.isfinite(value) or limit < 0:
        return f"The goal is {value} within {limit} steps; it must be finite, and the steps at least 0."
    trainer = engine.control.trainer
    assert trainer is not None
    scene = engine.model.scene if engine.model is not None else None
    if command.goal == "iteration" and value <= trainer.iteration:
        return f"Iteration {value:,.0f} is not ahead; the run is at {trainer.iteration:,}."
    if command.goal == "iteration" and value > trainer.config.iterations:
        return f"The run ends at iteration {trainer.config.iterations:,}, before {value:,.0f}; raise iterations first."
    if command.goal == "test_psnr" and (scene is None or not scene.test):
        return "No views are held out, so their PSNR cannot be a goal."
    if command.goal == "count" and value >= trainer.cap:
        return f"The cap is {trainer.cap:,} Gaussians, so there will never be more than {value:,.0f}."
    return none_due(trainer) or None if command.goal == "densify" else None


def none_due(trainer: Trainer) -> str:
    """Why neither a densification nor a reset is to come, one sentence; empty where one is."""
    plan, now, end = trainer.schedule, trainer.iteration, trainer.config.iterations
    if trainer.config.densify.strategy == "none":
        return "The strategy is none: nothing densifies."
    ahead = range(now + 1, min(plan.stop, end + 1))
    due = (i for i in ahead if i % plan.every == 0 or i % plan.reset_every == 0)   # nothing is due between these
    if any(trainer.strategy.due(i, plan) for i in due):
        return ""
    return f"No densification is to come: {plan.window}."


def set_option(engine: Engine, command: m.SetOption) -> None:
    change(engine, {command.name: command.value})


def set_options(engine: Engine, command: m.SetOptions) -> None:
    if change(engine, dict(command.values), command.source) and command.source:
        engine.notice(f"{command.source} is in force.")


def change(engine: Engine, values: dict[str, Any], source: str = "") -> bool:
    """Change fields of the configuration, all or none; False, after a sentence, where that cannot be."""
    try:
        changed = with_options(engine.config, values)
    except OptionError as error:
        engine.notice(str(error), "error")
        changed = None
    if changed is not None and changed != engine.config:
        _apply(engine, changed, source)
    # In any case, so that a slider which asked for too much returns to what holds.
    engine.emit(m.ConfigChanged(flatten(engine.config)))
    return changed is not None


def _apply(engine: Engine, changed: Any, source: str) -> None:
    trainer, old, new = engine.control.trainer, flatten(engine.config), flatten(changed)
    if engine.control.phase:
        engine.steps.settle()   # what a GPU still owes of this step is said before anything changes
    engine.config = changed
    iteration = trainer.iteration if trainer is not None else 0
    now: dict[str, Any] = {}
    waiting: dict[str, Any] = {}
    for path, value in new.items():
        if value == old[path]:
            continue
        acts = is_live(path)
        if trainer is not None:
            (now if acts else waiting)[path] = value
        engine.emit(m.OptionChanged(iteration, path, old[path], value, source, time.time()))
    if trainer is not None:
        trainer.set_options(now)
        engine.timeline.options_changed(now)
    engine.steps.say_notices()
    if waiting:
        engine.notice(f"{', '.join(waiting)} act{'s' if len(waiting) == 1 else ''} when the run is reset.")
    if engine.model is not None:
        engine.model.fixed_config = changed
        engine.model.moved()


def set_pace(engine: Engine, command: m.SetPace) -> None:
    engine.control.pace, engine.control.headless = command.pace, bool(command.headless)
    engine.pace.follow(command.pace)
