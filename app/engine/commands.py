"""What each command of the window does to the engine. A new command is a function here and a line in HANDLERS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app import messages as m
from app.engine import (
    auditing,
    control,
    densifying,
    filming,
    gradient_check,
    laboratory,
    pictures,
    selecting,
    work,
)
from app.engine.timeline import jobs as timeline

if TYPE_CHECKING:
    from app.engine.loop import Engine


def handle(engine: Engine, command: m.Command) -> None:
    """Carry out one command. Raises TypeError for a command that nobody knows."""
    handler = HANDLERS.get(type(command))
    if handler is None:
        raise TypeError(f"unknown command {command!r}")
    handler(engine, command)


OF_A_RUN = (laboratory.COMPARING, laboratory.LANES, gradient_check.CHECKING, pictures.MEASURING, auditing.AUDITING)
"""Long jobs that nobody waits for any more once the run is another."""


def open_scene(engine: Engine, command: m.OpenScene) -> None:
    engine.jobs.cancel_named(work.OPENING, work.EVALUATING, work.RESETTING, filming.FILMING, *OF_A_RUN)
    engine.running, engine.steps_left = command.play, None
    engine.jobs.add(work.open_path(engine, command))


def play(engine: Engine, command: m.Play) -> None:
    if control.may_train(engine):
        engine.control.drop()
        engine.running, engine.steps_left = True, None


def pause(engine: Engine, command: m.Pause) -> None:
    if engine.training:
        engine.recorder.note("paused")
    engine.control.drop()
    engine.running, engine.steps_left = False, None


def step(engine: Engine, command: m.Step) -> None:
    if command.count < 1:
        engine.notice(f"step count is {command.count}; it must be at least 1.", "error")
    elif control.may_train(engine):
        engine.control.drop()
        engine.running, engine.steps_left = True, command.count


def reset(engine: Engine, command: m.Reset) -> None:
    if engine.model is None or engine.model.trainer is None:
        engine.notice("There is no run to reset; open a scene folder first.", "warning")
    elif not engine.jobs.has(work.RESETTING):
        engine.jobs.cancel_named(work.EVALUATING, *OF_A_RUN)
        engine.jobs.add(work.reset(engine))


def set_backend(engine: Engine, command: m.SetBackend) -> None:
    engine.jobs.add(work.switch_backend(engine, command.name))


def evaluate(engine: Engine, command: m.Evaluate) -> None:
    if engine.model is None or engine.model.scene is None:
        engine.notice("There is nothing to evaluate; open a scene folder first.", "warning")
    elif not engine.jobs.has(work.EVALUATING):
        engine.jobs.add(work.evaluate(engine, asked=True))


def save_ply(engine: Engine, command: m.SavePly) -> None:
    if engine.model is None:
        engine.notice("There is nothing to save; open a scene first.", "warning")
    else:
        engine.jobs.add(work.save_ply(engine, command.path))


def save_checkpoint(engine: Engine, command: m.SaveCheckpoint) -> None:
    if engine.model is None or engine.model.trainer is None:
        engine.notice("There is no run to save; open a scene folder first.", "warning")
    elif engine.settings.record is None:
        engine.notice("This run is not recorded, so it has no folder for checkpoints; start Splatscope with -m FOLDER and "
                      "without --no_record for one that is.", "warning")
    elif engine.run_folder is None:
        engine.notice("This run is not recorded, since its folder could not be used, so it has no place for checkpoints; "
                      "reset it or open the scene again.", "warning")
    elif not engine.checkpoints.save("user"):
        engine.notice("There is nothing to save yet; take a training step first.", "warning")


def cancel_job(engine: Engine, command: m.CancelJob) -> None:
    if engine.jobs.current is not None and engine.jobs.current.name == work.PREPARING:
        engine.notice("Nothing can run without the renderer; it goes on loading.", "warning")
    else:
        engine.jobs.cancel()


def shutdown(engine: Engine, command: m.Shutdown) -> None:
    engine.stop()


HANDLERS: dict[type[m.Command], Callable[[Engine, Any], None]] = {
    m.OpenScene: open_scene, m.Play: play, m.Pause: pause, m.Step: step, m.Reset: reset, m.SetOption: control.set_option,
    m.SetBackend: set_backend, m.Evaluate: evaluate, m.SavePly: save_ply, m.CancelJob: cancel_job, m.Select: selecting.select,
    m.SelectRegion: selecting.select_region, m.SelectRange: selecting.select_range, m.SelectMore: selecting.select_more,
    m.Operate: selecting.operate, m.Undo: selecting.undo, m.Redo: selecting.redo,
    m.CheckGradients: gradient_check.check_gradients,
    m.SaveCheckpoint: save_checkpoint,
    m.Shutdown: shutdown, m.CompareRules: laboratory.compare, m.MeasureViews: pictures.measure_views,
    m.AuditRasterizer: auditing.audit,
    m.SavePicture: pictures.save_picture, m.ExportVideo: filming.export_video, m.RunLanes: laboratory.lanes,
    m.DensifyNow: densifying.densify_now,
    m.TakePart: control.take_part, m.RunUntil: control.run_until, m.SetOptions: control.set_options,
    m.SetPace: control.set_pace,
    m.Replay: timeline.replay, m.BranchFrom: timeline.branch_from, m.SwitchBranch: timeline.switch_branch,
    m.RenameBranch: timeline.rename_branch, m.DeleteBranch: timeline.delete_branch,
}
