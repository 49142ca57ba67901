"""Which run folders the window's run may write into: no other process does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.data.scene import SceneError
from app.engine.background import Background
from app.records import lock

if TYPE_CHECKING:
    from app.engine.loop import Engine

SAVING_SECONDS = 60.0


class Holding:
    """The locks of the recorder: one, and while it moves from one folder to another, two."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: list[lock.RunLock] = []

    def holds(self, folder: Path) -> bool:
        return any(held.folder == folder for held in self._locks)

    def take(self, folder: Path) -> bool:
        """Whether the folder, which exists, is the run's to write into; says why not."""
        if self.holds(folder):
            return True
        try:
            held = lock.take(folder)
        except SceneError as error:
            self._engine.notice(f"The run is not recorded: {error}.", "warning", aloud=True)
            return False
        if held.problem:
            self._engine.notice(held.problem, "warning", aloud=True)
        self._locks.append(held)
        return True

    def leave(self, folder: Path | None) -> Callable[[], None]:
        """The run is recorded in `folder` from now on: what is to be called when nothing more is written into the others.

        That waits for the checkpoints that are being written now, so a helper thread does it.
        """
        left = [held for held in self._locks if held.folder != folder]
        self._locks = [held for held in self._locks if held.folder == folder]
        saving = writers(self._engine)

        def release() -> None:
            for helper in saving if left else ():
                helper.join(SAVING_SECONDS)
            for held in left:
                held.release()

        return release


def writers(engine: Engine) -> list[Background]:
    """The checkpoints that are being written now, of whatever run. Who waits for one does so in a helper thread."""
    return [helper for helper in engine.backgrounds if helper.name == "checkpoint" and not helper.done.is_set()]
