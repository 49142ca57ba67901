"""Commands of the timeline: replays, branches, and going from one to another."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from app import messages as m
from app.data.checkpoints import FOLDER, SUFFIX
from app.engine.background import Report
from app.engine.holding import SAVING_SECONDS, writers
from app.engine.jobs import Job, Refused, Work
from app.engine.timeline.branches import Branch
from app.engine.timeline.ring import Kept
from app.history import History

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.training.trainer import Trainer

REPLAYING = "replay"
BRANCHING = "branch"


def _ready(engine: Engine, moment: m.Moment | None = None) -> bool:
    """Whether there is a run with a past, and this moment in it; says why not."""
    timeline = engine.timeline
    if timeline.follow():
        timeline.notice_edits()
    if not timeline.current:
        engine.notice("There is no run to go back in; open a scene folder first.", "warning")
    elif moment is not None and moment.branch not in timeline.branches:
        engine.notice(f"There is no branch {moment.branch}.", "warning")
    elif moment is not None and not 0 <= moment.iteration <= last_of(engine, moment.branch):
        engine.notice(f"Branch {timeline.branches[moment.branch].label} has the iterations 0 to "
                      f"{last_of(engine, moment.branch):,}; {moment.iteration:,} is none of them.", "warning")
    else:
        return True
    return False


def last_of(engine: Engine, branch: str) -> int:
    """The last iteration of a branch."""
    timeline = engine.timeline
    assert engine.model is not None
    return engine.model.iteration if branch == timeline.current else timeline.branches[branch].tip


def replay(engine: Engine, command: m.Replay) -> None:
    """Answers by keeping the moment, which whoever looks near it then sees."""
    if _ready(engine, command.moment):
        engine.jobs.cancel_named(REPLAYING)
        engine.jobs.add(Job(REPLAYING, _replay(engine, command.moment)))


def _replay(engine: Engine, moment: m.Moment) -> Work:
    from app.engine.timeline.replay import reach
    from app.training.state import capture

    timeline = engine.timeline
    if any(kept.iteration == moment.iteration for kept in timeline.kept(moment.branch)):
        return
    twin = yield from reach(engine, moment)
    timeline.put(Kept(_owner(engine, moment), moment.iteration, capture(twin),
                      timeline.branches[moment.branch].mark(moment.iteration), how="replayed"))


def _owner(engine: Engine, moment: m.Moment) -> str:
    """The branch that an iteration of another's past belongs to; where one begins it may have been changed already."""
    owners = [of.name for of, last in engine.timeline.branches.past(moment.branch) if moment.iteration <= last
              and (moment.iteration >= of.fork or not of.parent)]
    return owners[0] if owners else moment.branch


# ---------------------------------------------------------------- branches


def branch_from(engine: Engine, command: m.BranchFrom) -> None:
    moment, timeline = command.moment, engine.timeline
    if not _ready(engine, moment):
        return
    origin = timeline.branches[_owner(engine, moment)]
    folder = origin.folder or engine.run_folder   # that of the run before a reset
    name = command.name.strip() or timeline.branches.free_name(folder)
    refusal = timeline.branches.refusal(name, folder)
    if refusal:
        engine.notice(refusal, "warning")
    elif engine.jobs.has(BRANCHING):
        engine.notice("The run is on its way to another branch already; wait for it, or stop it first.", "warning")
    else:
        _move(engine, moment, lambda: origin.grow(name, name, moment.iteration, folder))


def switch_branch(engine: Engine, command: m.SwitchBranch) -> None:
    timeline = engine.timeline
    if not _ready(engine):
        return
    if command.name not in timeline.branches:
        engine.notice(f"There is no branch {command.name}.", "warning")
    elif engine.jobs.has(BRANCHING):
        engine.notice("The run is on its way to another branch already; wait for it, or stop it first.", "warning")
    elif command.name != timeline.current:
        _move(engine, m.Moment(command.name, timeline.branches[command.name].tip), lambda: timeline.branches[command.name])


def _move(engine: Engine, moment: m.Moment, branch: Callable[[], Branch]) -> None:
    from app.engine.commands import OF_A_RUN
    from app.engine.work import EVALUATING

    engine.jobs.cancel_named(EVALUATING, REPLAYING, *OF_A_RUN)
    engine.jobs.add(Job(BRANCHING, _go(engine, moment, branch)))


def _go(engine: Engine, moment: m.Moment, branch: Callable[[], Branch]) -> Work:
    """The run goes on at a moment, on a branch that is made when it is reached."""
    from app.engine.timeline.replay import reach

    timeline, model = engine.timeline, engine.model
    if model is None or not timeline.follow():
        raise Refused("The run is gone, so there is nothing to go back to")
    if moment.branch == timeline.current and moment.iteration == model.iteration:
        trainer = model.trainer
        yield 0.0, ""
    else:
        trainer = yield from reach(engine, moment)
    assert trainer is not None
    if engine.model is not model:
        raise Refused("Another scene was opened meanwhile")
    was_finished = engine.state == "finished"
    leave(engine)
    changed = _enter(engine, branch(), trainer, moment)
    if was_finished:
        engine.running = False
    label = timeline.now.label
    options = f", with the options of then: {', '.join(changed[:4])}{' ...' if len(changed) > 4 else ''}" if changed else ""
    engine.notice(f"Branch {label} goes on from iteration {moment.iteration:,}{options}.")


def leave(engine: Engine) -> None:
    """Keep the end of the branch that trained, and what is to be seen of it."""
    timeline = engine.timeline
    if not timeline.follow():
        return
    engine.steps.settle()
    timeline.notice_edits()
    branch, model = timeline.now, engine.model
    assert model is not None
    branch.history, branch.curves = engine.history, None
    branch.tip, branch.seconds = model.iteration, engine.seconds
    engine.recorder.complete()
    engine.checkpoints.leave()
    saved = engine.run_folder is not None and engine.run_folder.is_dir()
    if timeline.keep(rank=2) is None and not saved and timeline.base(m.Moment(branch.name, branch.tip)) is None:
        engine.notice(f"The end of branch {branch.label} at iteration {branch.tip:,} is kept nowhere: it does not fit into the "
                      "timeline's budget, and the run has no folder.", "warning", aloud=True)


def _enter(engine: Engine, branch: Branch, trainer: Trainer, moment: m.Moment) -> list[str]:
    """The run is a branch, at a moment, from now on. The camera stays; the history of selections begins anew. The options
    that are other ones by that, in words."""
    from app.engine.selecting import Selection
    from app.engine.selection import index_of
    from app.engine.timeline.replay import live_options
    from app.engine.work import LastEvaluation
    from app.options import flatten

    model, timeline = engine.model, engine.timeline
    assert model is not None
    model.trainer = trainer
    engine.history = branch.history
    engine.steps_left, engine.failed = None, False
    engine.stage_ms.clear()
    engine.seconds = branch.seconds if branch.seconds and branch.tip == moment.iteration else timeline.seconds_at(moment)
    found = trainer.measured
    engine.last_measured, engine.last_loss, engine.last_psnr = found.iteration, found.loss, found.psnr
    engine.view_name = trainer.views[trainer.last_view_index].name if trainer.last_view_index is not None else ""
    engine.selection = Selection(engine)
    engine.control.start_over()
    if engine.selected_uid is not None and index_of(model, engine.selected_uid) is None:
        engine.selected_uid = None
    engine.last_evaluation = LastEvaluation(engine.seconds, engine.last_evaluation.cost)
    options = flatten(engine.config)
    engine.config = model.fixed_config = live_options(trainer.config, engine.config)
    changed = [f"{path} {value}" for path, value in flatten(engine.config).items() if value != options[path]]
    timeline.take(branch, trainer)
    same = next((kept for kept in timeline.kept(branch.name) if kept.iteration == moment.iteration
                 and kept.certain and kept.log == branch.mark()), None)
    if same is not None:
        same.rank = max(same.rank, 1)
    else:
        timeline.keep(rank=1)
    model.moved()
    engine.inspector.forget()
    engine.publisher.start_over()
    if branch.folder is not None and branch.folder != engine.run_folder:   # of a run before a reset
        engine.recorder.resume_in(branch.folder)
    engine.recorder.went_on()
    engine.checkpoints.branched([*branch.densified, *branch.evaluated, *branch.changed])
    engine.emit(m.ConfigChanged(flatten(engine.config)))
    tell(engine)
    return changed


def tell(engine: Engine) -> None:
    """The window hears which branch it is, and what had happened on it."""
    branch = engine.timeline.now
    assert engine.model is not None
    engine.emit(m.BranchChanged(branch.name, engine.model.iteration, tuple(branch.densified),
                                branch.evaluated[-1] if branch.evaluated else None, tuple(branch.changed)))
    engine.timeline.changed()


def restart(engine: Engine, trainer: Trainer) -> None:
    """A reset: what was trained stays a branch of its own, and the run begins anew on another."""
    timeline, model = engine.timeline, engine.model
    assert model is not None
    fresh = True
    if timeline.follow():
        fresh = model.iteration == 0 and not timeline.now.log
        if not fresh:
            leave(engine)
    model.trainer = trainer
    model.moved()
    engine.start_over()
    if fresh or not timeline.current:
        timeline.follow()
    else:
        name = timeline.branches.free_name(engine.run_folder, "run")
        engine.history = History()
        timeline.take(Branch(name, name), trainer)
    tell(engine)


def rename_branch(engine: Engine, command: m.RenameBranch) -> None:
    timeline, label = engine.timeline, command.label.strip()
    if not _ready(engine):
        return
    if command.name not in timeline.branches:
        engine.notice(f"There is no branch {command.name}.", "warning")
    elif not label or len(label) > 40 or not label.isprintable():   # as a line break, or what colours a terminal
        engine.notice("A branch is called by 1 to 40 printable characters.", "warning")
    elif any(branch.label == label and branch.name != command.name for branch in timeline.branches):
        engine.notice(f"There is a branch {label} already; choose another name.", "warning")
    else:
        timeline.branches[command.name].label = label
        timeline.changed()


def delete_branch(engine: Engine, command: m.DeleteBranch) -> None:
    timeline = engine.timeline
    if not _ready(engine):
        return
    if command.name not in timeline.branches:
        engine.notice(f"There is no branch {command.name}.", "warning")
        return
    if command.name == timeline.current:
        engine.notice("The branch that trains cannot be deleted; go to another one first.", "warning")
        return
    if engine.jobs.has(BRANCHING):
        engine.notice("The run is on its way to another branch; delete branches when it is there.", "warning")
        return
    engine.jobs.cancel_named(REPLAYING)
    branch = timeline.remove(command.name)
    if not command.files:
        timeline.branches.left[branch.name] = branch.label   # they are found when the run is opened again
    if command.files and branch.folder is not None:
        folders = {branch.folder / FOLDER / branch.name, *(path.parent for path in branch.inherited.values())}
        needed = {path for other in timeline.branches for path in other.inherited.values()}
        folders -= {other.folder / FOLDER / other.name for other in timeline.branches if other.folder is not None}
        engine.jobs.add(Job("delete", _delete_files(engine, folders, needed, branch.label), exclusive=False))


def _delete_files(engine: Engine, folders: Collection[Path], needed: Collection[Path], label: str) -> Work:
    saving = writers(engine)

    def work(report: Report) -> int:
        for helper in saving:   # one of its files may still be to come
            helper.join(SAVING_SECONDS)
        return sum(delete_files(folder, needed) for folder in folders)

    count = yield from engine.background(work, "delete").wait()
    engine.notice(f"{count} checkpoint{'s' if count != 1 else ''} of branch {label} deleted.")


def delete_files(folder: Path, needed: Collection[Path] = ()) -> int:
    """Checkpoints of one branch but for those that others need, and its folder where nothing else is in it; how many. Runs in
    a helper thread."""
    count = 0
    for path in folder.glob(f"iteration_*{SUFFIX}"):
        if path not in needed:
            path.unlink(missing_ok=True)
            count += 1
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return count
