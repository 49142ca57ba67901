"""When a run is saved by itself."""

from __future__ import annotations

from dataclasses import dataclass

from render.config import NOT_NEGATIVE, POSITIVE, check_settings, setting

GIB = 1 << 30


@dataclass(frozen=True)
class AutosaveConfig:
    """How much a killed run loses at most, and how much disk its checkpoints take."""

    seconds: float = setting(60.0, "Save a checkpoint after so many seconds of training; 0 = not by time.", unit="s", lo=0.0,
                             hi=3600.0, valid=NOT_NEGATIVE)
    iterations: int = setting(0, "Save a checkpoint every so many iterations; 0 = not by iteration.", unit="it", lo=0, hi=30000,
                              valid=NOT_NEGATIVE)
    gigabytes: float = setting(2.0, "Disk space that the checkpoints of a run may take; older ones are thinned out, the newest "
                               "two always stay.", unit="GiB", lo=0.1, hi=1000.0, valid=POSITIVE)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def budget(self) -> int:
        """Bytes."""
        return int(self.gigabytes * GIB)


class Autosave:
    """Says when the next checkpoint is due; times are seconds of any clock."""

    def __init__(self, config: AutosaveConfig, now: float, iteration: int = 0) -> None:
        self.config = config
        self.saved(now, iteration)

    def saved(self, now: float, iteration: int) -> None:
        self._at, self._iteration = now, iteration

    def due_at_all(self, iteration: int) -> bool:
        """Whether anything has changed since the last one."""
        return iteration != self._iteration

    def missed(self) -> None:
        """The last one could not be written: it is due again at its time, and when the run is left."""
        self._iteration = -1

    def due(self, now: float, iteration: int) -> str:
        """The reason, as a checkpoint's header names it; empty when it is not time, or nothing has changed."""
        config = self.config
        if not self.due_at_all(iteration):
            return ""
        if config.iterations and iteration // config.iterations > self._iteration // config.iterations:
            return "iterations"
        return "time" if config.seconds and now - self._at >= config.seconds else ""
