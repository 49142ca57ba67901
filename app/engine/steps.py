"""Training steps of the run: taken, told to everybody who follows it, and what happens when one goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.data.scene import SceneError
from app.engine import work
from app.engine.full import out_of_memory
from render import interrupt

if TYPE_CHECKING:
    from app.engine.loop import Engine


class Steps:
    """Lives in the engine's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def step(self) -> None:
        """One training step; whatever goes wrong in it pauses the run."""
        engine = self._engine
        assert engine.model is not None and engine.model.trainer is not None
        trainer = engine.model.trainer
        self.attempt("Keeping a moment", engine.timeline.before_step)
        if not engine.running:
            return
        begun = engine.clock()
        report = self.attempt(f"Training step {trainer.iteration + 1}", trainer.step)
        engine.timeline.after_step()
        if report is not None:
            engine.model.moved()
            self.stepped(report, engine.clock() - begun)

    def attempt(self, doing: str, action: Callable[[], Any]) -> Any:
        """What `action` of the trainer returns; None where it went wrong, which pauses the run and is said."""
        engine = self._engine
        from app.training.verdict import TrainingStopped

        assert engine.model is not None
        try:
            return action()
        except interrupt.Interrupted:   # nothing has changed; if training goes on, the step is taken again
            pass
        except (TrainingStopped, SceneError, OSError) as error:   # the latter: a photograph that cannot be decoded
            self.stopped(error)
            engine.checkpoints.save("stop")
        except Exception as error:  # noqa: BLE001 - shown to the user
            if not out_of_memory(engine, error):
                engine.fail(doing, error)
            engine.model.moved()
        finally:
            self.say_notices()
        return None

    def stopped(self, error: BaseException) -> None:
        """Training stopped by itself, as at a NaN: the run is whole, as it was before that step, and pauses."""
        engine = self._engine
        engine.running, engine.steps_left = False, None
        engine.control.drop()
        engine.notice(str(error), "error", aloud=True)

    def owed(self, error: BaseException) -> bool:
        """Whether a GPU said only now, to whoever waited for it, that the last step failed; that is then told as the step's."""
        if self._engine.model is None:
            return False
        from app.training.verdict import TrainingStopped

        if not isinstance(error, TrainingStopped):
            return False
        self._engine.model.moved()
        self.stopped(error)
        return True

    def stepped(self, report: Any, seconds: float) -> None:
        engine = self._engine
        engine.pace.stepped(seconds)
        engine.seconds += seconds
        if any(report.stage_ms.values()):   # a GPU's first step has none yet
            engine.stage_ms.add(**report.stage_ms)
        engine.view_name = report.view_name
        engine.history.add(report.iteration, count=report.gaussians)
        self.measured(report.measured, report.loss, report.psnr)
        engine.publisher.stepped()
        engine.recorder.stepped(report)
        if report.densified is not None:
            engine.emit(report.densified)
        if engine.steps_left is not None:
            engine.steps_left -= 1
            if engine.steps_left <= 0:
                engine.running, engine.steps_left = False, None
                engine.publisher.dirty = True
        if not engine.training and engine.running:
            engine.running, engine.steps_left = False, None
            engine.notice(f"Training has reached iteration {report.iteration:,}.")
            engine.recorder.note("finished")
            engine.checkpoints.save("end")
            engine.control.finished()
            engine.jobs.add(work.evaluate(engine))
            return
        engine.control.stepped(report)
        if engine.running and engine.steps_left is None and work.evaluation_due(engine):
            engine.jobs.add(work.evaluate(engine))

    def measured(self, iteration: int, loss: float, psnr: float) -> None:
        """Take in what a step measured, once; on a GPU that is known a step later."""
        engine = self._engine
        if iteration > engine.last_measured:
            engine.last_measured, engine.last_loss, engine.last_psnr = iteration, loss, psnr
            engine.history.add(iteration, loss=loss, train_psnr=psnr)
            engine.control.measured(loss, psnr)

    def settle(self) -> None:
        """Nothing goes on: a GPU is asked for what the last step measured."""
        engine = self._engine
        trainer = engine.model.trainer if engine.model is not None else None
        if trainer is None or trainer.measured.iteration >= trainer.iteration:   # more in the middle of a step
            return
        self.attempt("Reading the last step", trainer.settle)
        found = trainer.measured
        if found.iteration > engine.last_measured:
            self.measured(found.iteration, found.loss, found.psnr)
            engine.publisher.curves_changed()

    def say_notices(self) -> None:
        """Pass on what the trainer wants the user to know."""
        engine = self._engine
        trainer = engine.model.trainer if engine.model is not None else None
        while trainer is not None and trainer.notices:
            engine.notice(trainer.notices.popleft())
