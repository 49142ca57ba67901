"""Checkpoints of a run while it trains: when, where, and what is said when the disk is full."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.data.checkpoints import Saved, place, thin_out
from app.data.scene import SceneError
from app.training import checkpoint
from app.training.autosave import Autosave, AutosaveConfig
from app.training.checkpoint import Checkpoint
from app.training.state import StateError, capture, restore
from app.training.trainer import Trainer


class Saver:
    """Writes the checkpoints of one run folder, and keeps them within their budget.

    `extra` gives what is kept beside the state; `say` takes sentences. An autosave that fails is said once until one
    succeeds again: training goes on.
    """

    def __init__(self, run: Path, config: AutosaveConfig, extra: Callable[[], Mapping[str, Any]], say: Callable[[str], None],
                 iteration: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self.config = run, config
        self._extra, self._say, self._clock = extra, say, clock
        self._autosave = Autosave(config, clock(), iteration)
        self._failing = False

    def save_if_due(self, trainer: Trainer) -> Saved | None:
        reason = self._autosave.due(self._clock(), trainer.iteration)
        if not reason:
            return None
        try:
            saved = self.save(trainer, reason)
        except SceneError as error:
            self._autosave.saved(self._clock(), trainer.iteration)   # not again at the next step
            if not self._failing:
                self._say(f"{error}; training goes on without checkpoints until one can be written")
            self._failing = True
            return None
        self._failing = False
        return saved

    def save(self, trainer: Trainer, reason: str) -> Saved:
        """One now. Raises SceneError when it cannot be written."""
        state = capture(trainer)
        saved = checkpoint.write(place(self.run, state.iteration), state, self._extra(), reason=reason)
        self._autosave.saved(self._clock(), state.iteration)
        thin_out(self.run, self.config.budget)
        return saved


def resume(trainer: Trainer, found: Checkpoint, changes: Mapping[str, Any]) -> list[str]:
    """Put a trainer where a checkpoint was, then change the options `changes`; returns sentences for the user.

    Raises SceneError when the checkpoint is of another scene.
    """
    try:
        notices = [*found.notices, *restore(trainer, found.state)]
    except (StateError, KeyError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, StateError) else f"it is damaged ({type(error).__name__}: {error})"
        raise SceneError(f"{found.path or 'the checkpoint'} cannot be resumed: {what}") from error
    for path, value in changes.items():
        if not trainer.set_option(path, value):
            notices.append(f"{path} acts only at the start of a run, so it stays as it was when the run began.")
    return notices
