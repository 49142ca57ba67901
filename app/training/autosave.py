"""When a run is saved by itself."""

from __future__ import annotations

from dataclasses import dataclass

from render.config import NOT_NEGATIVE, Domain, check_settings, setting

GIB = 1 << 30
NOTHING = object()


@dataclass(frozen=True)
class AutosaveConfig:
    """How much a killed run loses at most, and how much disk its checkpoints take."""

    seconds: float = setting(60.0, "Save a checkpoint after so many seconds of training; 0 = not by time.", unit="s", lo=0.0,
                             hi=3600.0, valid=NOT_NEGATIVE)
    iterations: int = setting(0, "Save a checkpoint every so many iterations; 0 = not by iteration.", unit="it", lo=0, hi=30000,
                              valid=NOT_NEGATIVE)
    gigabytes: float = setting(2.0, "Disk space that the checkpoints of a run may take; older ones are thinned out, but "
                               "for the two newest and the end of each branch.", unit="GiB", lo=0.1, hi=1000.0,
                               valid=Domain("greater than 0 and at most 1,000,000", lo=0.0, hi=1e6, open_lo=True))

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def budget(self) -> int:
        """Bytes."""
        return int(self.gigabytes * GIB)


class Autosave:
    """Says when the next checkpoint is due; times are seconds of any clock."""

    def __init__(self, config: AutosaveConfig, now: float, iteration: int = 0, mark: object = None) -> None:
        self.config = config
        self.saved(now, iteration, mark)

    def saved(self, now: float, iteration: int, mark: object = None) -> None:
        """`mark` tells one state of the run from another at the same iteration."""
        self._at, self._iteration, self._mark = now, iteration, mark

    def changed(self, iteration: int, mark: object = None) -> bool:
        """Whether there is anything that the last one does not have."""
        return (iteration, mark) != (self._iteration, self._mark)

    def missed(self) -> None:
        """The last one could not be written: it is due again at its time, and when the run is left."""
        self._mark = NOTHING

    def due(self, now: float, iteration: int, mark: object = None) -> str:
        """The reason, as a checkpoint's header names it; empty when it is not time, or nothing has changed."""
        config = self.config
        if not self.changed(iteration, mark):
            return ""
        if config.iterations and iteration // config.iterations > self._iteration // config.iterations:
            return "iterations"
        at = self.at
        return "time" if at is not None and now >= at else ""

    @property
    def at(self) -> float | None:
        """When the next one is due by time, if anything has changed by then."""
        return self._at + self.config.seconds if self.config.seconds else None
