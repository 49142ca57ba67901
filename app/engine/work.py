"""The long jobs: preparing the renderer, opening, resetting, evaluating, saving, switching the backend."""

from __future__ import annotations

import math
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.engine.background import Report
from app.engine.jobs import Job, Refused, Work
from app.engine.pacing import Pace
from app.messages import ConfigChanged, Evaluated, OpenScene
from app.options import flatten
from app.training.backend import Ready, ready_backend
from app.training.memory import is_out_of_memory

if TYPE_CHECKING:
    from app.engine.loop import Engine

PREPARING = "prepare"
OPENING = "open"
RESETTING = "reset"
EVALUATING = "evaluate"
SAVING = "save"
SWITCHING = "backend"

EVALUATION_SECONDS = 2.0
"""Training seconds between two evaluations that nobody asked for, at least."""
EVALUATION_SHARE = 20.0
"""Training gets this many times what such evaluations cost."""


@dataclass
class LastEvaluation:
    at: float = 0.0       # engine.seconds when it ended
    cost: float = 0.0     # seconds it took
    psnr: float = math.nan


# ---------------------------------------------------------------- the renderer


def load_backend(name: str, report: Report) -> Ready:
    """Import what is heavy and compile what is missing for a backend or "auto". Runs in a helper thread.

    The compiler works while PyTorch is imported. Raises ValueError, one sentence, when a backend asked for by name cannot
    run here.
    """
    from render.backends import compile

    def compiling(text: str) -> None:
        report(0.4 + 0.6 * _share_said(text), text)

    report(0.0, "loading PyTorch")
    with compile.ahead(False, compiling) if name in ("auto", "cpu") else nullcontext():
        import torch  # noqa: F401

        import app.engine.selection
        import app.engine.view_modes
        import app.training.evaluate
        import app.training.probes  # noqa: F401

        report(0.4, "loading the kernels")
        ready = ready_backend(name, compiling)
        if ready.name == "reference":   # its first step would load these in the engine's thread, a second long
            import torch.fx.experimental.symbolic_shapes
            import torch.utils.checkpoint  # noqa: F401
        return ready


def _share_said(text: str) -> float:
    """The share in "1 of 2 parts"; 0 where a text says none."""
    found = re.search(r"(\d+) of (\d+)", text)
    return int(found[1]) / max(int(found[2]), 1) if found else 0.0


def prepare(engine: Engine) -> Job:
    """The first job: PyTorch and the kernels. Nothing else can run before."""

    def run() -> Work:
        wanted = engine.settings.backend
        helper = engine.background(lambda report: engine.settings.load_backend(wanted, report), "prepare")
        try:
            ready = yield from helper.wait()
        except ValueError as error:   # the backend asked for cannot run here: the fastest that can does
            helper = engine.background(lambda report: engine.settings.load_backend("auto", report), "prepare")
            ready = replace((yield from helper.wait()), instead=str(error))
        from render.pipeline import usable_backends

        engine.backend, engine.usable_backends = ready.name, usable_backends()
        say_fallback(engine, ready)
        engine.emit(ConfigChanged(flatten(engine.config)))

    return Job(PREPARING, run())


def say_fallback(engine: Engine, ready: Ready) -> None:
    """A backend that nobody asked for is said aloud, in the window and on stderr."""
    if ready.instead:
        engine.notice(ready.sentence, "warning", aloud=True)


def switch_backend(engine: Engine, name: str) -> Job:
    """Go on with another backend from the next step on."""

    def run() -> Work:
        helper = engine.background(lambda report: engine.settings.load_backend(name, report), "backend")
        try:
            ready = yield from helper.wait()
        except ValueError as error:
            raise Refused(str(error)) from error
        engine.steps.settle()   # what the last step on a GPU left unsaid is said before the parameters move
        resolved = ready.name
        if engine.model is not None:
            try:
                engine.model.use_backend(resolved)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise Refused(f"The backend stays {engine.backend}: its {len(engine.model.params):,} Gaussians do not fit "
                              f"into the memory that {resolved} works in.") from error
        engine.backend = resolved
        engine.stage_ms.clear()
        engine.pace = Pace.for_backend(resolved).follow(engine.control.pace)
        say_fallback(engine, ready)
        engine.notice(f"The backend is now {resolved}.")
        engine.recorder.note("backend", name=resolved)

    return Job(SWITCHING, run())


# ---------------------------------------------------------------- the scene


def open_path(engine: Engine, command: OpenScene) -> Job:
    from app.engine.opening import open_work

    return Job(OPENING, open_work(engine, command))


def reset(engine: Engine) -> Job:
    """A new trainer on the same scene, with the options as they are now."""

    def run() -> Work:
        from app.engine.opening import build_trainer
        from app.engine.timeline.jobs import restart

        model = engine.model
        assert model is not None and model.scene is not None
        if engine.state == "finished":   # a run that has ended waits for the user; Play meanwhile counts
            engine.running, engine.steps_left = False, None
        trainer = yield from build_trainer(engine, model.scene, (0.0, 1.0))
        restart(engine, trainer)
        engine.publisher.start_over()
        engine.failed = False
        engine.steps.say_notices()

    return Job(RESETTING, run())


def evaluate(engine: Engine, *, asked: bool = False) -> Job:
    """PSNR and SSIM of the held-out views at this iteration."""

    def run() -> Work:
        model = engine.model
        if model is None or model.scene is None or model.trainer is None:
            return
        views = model.scene.test
        if not views:
            if asked:
                engine.notice("No views are held out, so there is nothing to evaluate on.", "warning")
            yield from engine.recorder.pictures()
            return
        from app.training.evaluate import evaluation_job

        engine.steps.settle()
        begun = engine.clock()
        result = yield from evaluation_job(model.trainer, views, seen=engine.recorder.seen(views, asked=asked))
        engine.last_evaluation = LastEvaluation(engine.seconds, engine.clock() - begun, result.psnr)
        engine.history.add(result.iteration, test_psnr=result.psnr)
        engine.publisher.curves_changed()
        engine.emit(Evaluated(result.iteration, result.psnr, result.ssim,
                              tuple((view.name, view.psnr, view.ssim) for view in result.views)))
        engine.control.evaluated(result.psnr, result.iteration)
        if asked:
            engine.notice(f"PSNR {result.psnr:.2f} dB, SSIM {result.ssim:.4f} over {len(views)} held-out "
                          f"view{'s' if len(views) > 1 else ''} at iteration {result.iteration}.")

    return Job(EVALUATING, run())


def evaluation_due(engine: Engine) -> bool:
    """Whether the test curve gets its next point now: often enough to be seen, seldom enough to cost little."""
    model = engine.model
    if model is None or model.scene is None or not model.scene.test or not engine.jobs.free:
        return False
    last = engine.last_evaluation
    cost = last.cost or 0.5 * engine.pace.step_seconds * len(model.scene.test)
    return engine.seconds - last.at >= max(EVALUATION_SECONDS, EVALUATION_SHARE * cost)


def save_ply(engine: Engine, path: str) -> Job:
    """Write the Gaussians as they are when the job begins; training goes on meanwhile."""

    def run() -> Work:
        from app.engine.opening import write_arrays
        from app.training.arrays import to_arrays

        assert engine.model is not None
        arrays = to_arrays(engine.model.params)
        helper = engine.background(lambda report: write_arrays(path, arrays), "save")
        said: Any = yield from helper.wait()
        engine.recorder.note("saved", path=os.path.abspath(path), gaussians=len(arrays))
        engine.notice(f"Saved {os.path.abspath(path)}.{f' {said}' if said else ''}")

    return Job(SAVING, run(), exclusive=False)
