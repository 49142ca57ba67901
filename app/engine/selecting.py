"""The user's selection and what is done to it, with undo. A new operation is an entry in OPERATIONS.

A selection is a mark of rows (app/training/marks.py): surgery carries it along and children inherit it. History is kept by
uid and lineage, since rows of before mean nothing after a densification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from app import messages as m
from app.data.scene import SceneError
from app.training.marks import FROZEN, HIDDEN, MARKS, SELECTED

if TYPE_CHECKING:
    from app.engine.edits import Edit, Marked
    from app.engine.loop import Engine
    from app.engine.model import Model

OF_ONE_MODEL = ("compare", "losses", "evaluate")
"""Jobs that measure the model over several turns: they end when its rows change by hand."""
HISTORY = 64
HISTORY_BYTES = 512 << 20
"""How far undo reaches: so many changes, and as long as the Gaussians that they removed take no more than this."""


@dataclass(frozen=True)
class Change:
    """One step of the history."""

    label: str
    before: dict[str, Marked]      # the marks that it changed
    after: dict[str, Marked]
    uid_before: int | None         # the Gaussian that was inspected
    uid_after: int | None
    edit: Edit | None = None

    @property
    def nbytes(self) -> int:
        marks = sum(marked.uids.nbytes for marked in (*self.before.values(), *self.after.values()))
        return marks + (self.edit.nbytes if self.edit is not None else 0)


class Selection:
    """Marks of the engine's model, and how they came about."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._done: list[Change] = []
        self._undone: list[Change] = []
        self._counted: tuple[tuple, m.SelectionState] = ((), m.SelectionState())

    @property
    def model(self) -> Model:
        assert self._engine.model is not None
        return self._engine.model

    def mask(self, name: str = SELECTED) -> np.ndarray:
        """[N] bool of a mark, a copy."""
        from app.training.arrays import host

        mark = self.model.mark(name)
        return np.zeros(len(self.model.params), bool) if mark is None else np.array(host(mark))

    def state(self) -> m.SelectionState:
        """For the snapshot; counted only when a mark has changed."""
        marks = tuple(self.model.mark(name) for name in MARKS)
        key, state = self._counted
        if len(key) != len(marks) or any(a is not b for a, b in zip(key, marks, strict=True)):
            selected, hidden, frozen = (0 if mark is None else int(mark.sum()) for mark in marks)
            state = m.SelectionState(selected, frozen, hidden)
        undo, redo = (steps[-1].label if steps else "" for steps in (self._done, self._undone))
        state = m.SelectionState(state.selected, state.frozen, state.hidden, undo, redo)
        self._counted = marks, state
        return state

    # ------------------------------------------------------------------ changing

    def choose(self, mask: np.ndarray, how: m.SelectHow, label: str, uid: int | None) -> None:
        """Make a mask [N] the selection, add it or take it away; `uid` is inspected from now on."""
        old = self.mask()
        new = mask if how == "replace" else old | mask if how == "add" else old & ~mask
        if (new != old).any() or uid != self._engine.selected_uid:
            self.change(label, {SELECTED: new}, uid)

    def change(self, label: str, masks: dict[str, np.ndarray], uid: int | None, edit: Edit | None = None) -> None:
        """Set marks, do the edit, and remember both."""
        from app.engine.edits import Marked

        engine, model = self._engine, self.model
        before = {name: Marked.of(model, self.mask(name)) for name in masks}
        after = {name: Marked.of(model, mask) for name, mask in masks.items()}
        change = Change(label, before, after, engine.selected_uid, uid, edit)
        self._turn(change, forwards=True, masks=masks if edit is None else None)
        self._done.append(change)
        self._undone.clear()
        del self._done[:-HISTORY]
        while len(self._done) > 1 and sum(c.nbytes for c in self._done) > HISTORY_BYTES:
            del self._done[0]

    def undo(self) -> str:
        """Take the last change back; its label, empty when there is none."""
        return self._travel(self._done, self._undone, forwards=False)

    def redo(self) -> str:
        return self._travel(self._undone, self._done, forwards=True)

    def _travel(self, source: list[Change], target: list[Change], *, forwards: bool) -> str:
        if not source:
            return ""
        change = source[-1]
        self._turn(change, forwards=forwards)   # it may fail, for want of memory; then nothing is forgotten
        source.pop()
        target.append(change)
        return change.label

    def _turn(self, change: Change, *, forwards: bool, masks: dict[str, np.ndarray] | None = None) -> None:
        """`masks` are the marks of afterwards where rows are still those that they were made for."""
        engine, model = self._engine, self.model
        if change.edit is not None:
            engine.jobs.cancel_named(*OF_ONE_MODEL)
            engine.steps.settle()   # a GPU's last step may still be on its way
            (change.edit.apply if forwards else change.edit.revert)(model)
        for name, marked in (change.after if forwards else change.before).items():
            model.set_mark(name, masks[name] if masks is not None else marked.living(model))
        if change.edit is not None or FROZEN in change.after:   # what is trained from now on is another model
            engine.recorder.note("edited", what=change.label, undone=not forwards, gaussians=len(model.params))
            engine.timeline.edited()
        engine.selected_uid = change.uid_after if forwards else change.uid_before
        engine.publisher.selection_changed()

    def heir(self, uid: int) -> int | None:
        """A Gaussian that descends from one that is gone and inherited its place in the selection."""
        from app.engine.edits import Marked
        from app.training.arrays import host

        found = np.flatnonzero(Marked(np.array([uid]), uid + 1).living(self.model) & self.mask())
        return int(host(self.model.params.uids)[found[0]]) if len(found) else None


# ---------------------------------------------------------------- commands


def _ready(engine: Engine) -> bool:
    if engine.model is None:
        engine.notice("There is nothing to select yet; open a scene first.", "warning")
    return engine.model is not None


def select(engine: Engine, command: m.Select) -> None:
    from app.engine.drawn import drawn
    from app.engine.picking import at_pixel
    from app.training.arrays import host

    model, uid = engine.model, command.uid
    if model is None:
        engine.selected_uid = None
        return
    if command.camera is not None and uid is None:
        if _looks_back(engine):
            return
        found = at_pixel(model, command.camera, command.x, command.y, drawn(model, engine.viewer.request)).tolist()
        uid = found[0] if found else None
        if command.cycle and engine.selected_uid in found:
            uid = found[(found.index(engine.selected_uid) + 1) % len(found)]
        if uid is None and command.how != "replace":
            return   # a click beside everything with Shift or Ctrl loses nothing
    mask = host(model.params.uids) == (-1 if uid is None else uid)
    removed = command.how == "remove"
    label = "selecting nothing" if uid is None else f"{'deselecting' if removed else 'selecting'} Gaussian {uid}"
    kept = None if uid == engine.selected_uid else engine.selected_uid
    engine.selection.choose(mask, command.how, label, kept if removed else uid)
    engine.publisher.selection_changed()


def _looks_back(engine: Engine) -> bool:
    """Whether the picture is of a moment of the past, whose Gaussians nobody can take hold of; says so."""
    request = engine.viewer.request
    if request is None or request.moment is None:
        return False
    engine.notice("The picture is of a moment of the past; go back to now to select in it.", "warning")
    return True


def select_region(engine: Engine, command: m.SelectRegion) -> None:
    if not _ready(engine) or _looks_back(engine):
        return
    from app.engine.drawn import drawn
    from app.engine.picking import in_region

    model = engine.selection.model
    mask = in_region(model, command.camera, command.path, command.radius, drawn(model, engine.viewer.request))
    _choose(engine, mask, command.how, "selecting in the picture")


def select_range(engine: Engine, command: m.SelectRange) -> None:
    if not _ready(engine):
        return
    from app.engine.drawn import within
    from app.training.arrays import host

    try:
        inside = within(engine.selection.model, command.quantity, command.lo, command.hi, command.camera)
    except SceneError as refusal:
        engine.notice(str(refusal), "warning")
        return
    _choose(engine, np.array(host(inside)), command.how, "selecting by value")


def _choose(engine: Engine, mask: np.ndarray, how: m.SelectHow, label: str) -> None:
    """As Selection.choose(); what was inspected stays so while it is selected."""
    selection = engine.selection
    selection.choose(mask, how, label, engine.selected_uid)
    _inspect_selected(engine)


def _inspect_selected(engine: Engine) -> None:
    """Whoever is inspected is selected; one alone that is selected is inspected."""
    from app.training.arrays import host

    selected = host(engine.selection.model.params.uids)[engine.selection.mask()]
    if len(selected) == 1:
        engine.selected_uid = int(selected[0])
    elif engine.selected_uid is not None and not (selected == engine.selected_uid).any():
        engine.selected_uid = None
    engine.publisher.selection_changed()


def select_more(engine: Engine, command: m.SelectMore) -> None:
    if not _ready(engine):
        return
    selection = engine.selection
    old = selection.mask()
    if command.how == "grow":
        from app.engine.picking import neighbours

        new = neighbours(selection.model, old)
    else:
        new = {"all": np.ones_like(old), "none": np.zeros_like(old), "invert": ~old}[command.how]
    words = {"all": "selecting all", "none": "selecting nothing", "invert": "inverting the selection",
             "grow": "growing the selection"}
    _choose(engine, new, "replace", words[command.how])


def undo(engine: Engine, command: m.Undo) -> None:
    label = engine.selection.undo() if engine.model is not None else ""
    engine.notice(f"Undone: {label}" if label else "There is nothing to undo.")


def redo(engine: Engine, command: m.Redo) -> None:
    label = engine.selection.redo() if engine.model is not None else ""
    engine.notice(f"Done again: {label}" if label else "There is nothing to redo.")


# ---------------------------------------------------------------- operations


def operate(engine: Engine, command: m.Operate) -> None:
    if not _ready(engine):
        return
    selection = engine.selection
    mask = selection.mask()
    count = int(mask.sum())
    if not count and command.action not in ("unfreeze_all", "show_all"):
        engine.notice("Nothing is selected: click a Gaussian, or draw around some.", "warning")
        return
    OPERATIONS[command.action](engine, mask, f"{count:,} Gaussian{'s' if count != 1 else ''}")


def _freeze(engine: Engine, mask: np.ndarray, what: str) -> None:
    if engine.selection.model.trainer is None:
        engine.notice("Nobody trains these Gaussians, so there is nothing to freeze.", "warning")
        return
    _mark(engine, FROZEN, engine.selection.mask(FROZEN) | mask, f"freezing {what}")


def _unfreeze(engine: Engine, mask: np.ndarray, what: str) -> None:
    _mark(engine, FROZEN, engine.selection.mask(FROZEN) & ~mask, f"unfreezing {what}")


def _unfreeze_all(engine: Engine, mask: np.ndarray, what: str) -> None:
    _mark(engine, FROZEN, np.zeros_like(mask), "unfreezing all")


def _hide(engine: Engine, mask: np.ndarray, what: str) -> None:
    _mark(engine, HIDDEN, engine.selection.mask(HIDDEN) | mask, f"hiding {what}")


def _isolate(engine: Engine, mask: np.ndarray, what: str) -> None:
    _mark(engine, HIDDEN, ~mask, f"hiding all but {what}")


def _show_all(engine: Engine, mask: np.ndarray, what: str) -> None:
    _mark(engine, HIDDEN, np.zeros_like(mask), "showing all")


def _mark(engine: Engine, name: str, mask: np.ndarray, label: str) -> None:
    if (mask != engine.selection.mask(name)).any():
        engine.selection.change(label, {name: mask}, engine.selected_uid)


def _delete(engine: Engine, mask: np.ndarray, what: str) -> None:
    from app.engine.edits import Removal

    if mask.all():
        engine.notice("These are all Gaussians there are; at least one has to stay.", "warning")
        return
    model = engine.selection.model
    engine.selection.change(f"deleting {what}", {SELECTED: np.zeros_like(mask)}, None, Removal(model, mask))
    engine.history.add(model.iteration, count=len(model.params))
    engine.notice(f"{what} deleted; Ctrl+Z brings them back.")


def _reset_opacity(engine: Engine, mask: np.ndarray, what: str) -> None:
    from app.engine.edits import OpacityReset

    model = engine.selection.model
    engine.selection.change(f"resetting the opacity of {what}", {}, engine.selected_uid, OpacityReset(model, mask))


OPERATIONS: dict[str, Callable[[Engine, np.ndarray, str], Any]] = {
    "freeze": _freeze, "unfreeze": _unfreeze, "unfreeze_all": _unfreeze_all, "hide": _hide, "isolate": _isolate,
    "show_all": _show_all, "delete": _delete, "reset_opacity": _reset_opacity}
