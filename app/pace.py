"""How much of the time pictures and panels may cost; ranges and help are in the fields' metadata, as of all settings."""

from __future__ import annotations

from dataclasses import dataclass

from render.config import Domain, check_settings, setting

_SHARE = Domain("between 0.01 and 0.9", lo=0.01, hi=0.9)
_RATE = Domain("between 0.5 and 60", lo=0.5, hi=60.0)


@dataclass(frozen=True)
class PaceConfig:
    """While a scene trains and nobody drags. Dragging comes first in any case."""

    view_share: float = setting(0.2, "Share of the time that pictures of a scene that trains may cost; the rest is training's.",
                                lo=0.02, hi=0.6, valid=_SHARE)
    view_rate: float = setting(15.0, "Such pictures a second, at most.", unit="1/s", lo=1.0, hi=30.0, valid=_RATE)
    panel_share: float = setting(0.14, "Share of the time that what each open panel asks may cost while it trains.",
                                 lo=0.02, hi=0.5, valid=_SHARE)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def view_wait(self) -> float:
        """Training gets this many times what a picture cost, before the next one."""
        return 1.0 / self.view_share - 1.0

    @property
    def panel_wait(self) -> float:
        """The same for an answer to a panel."""
        return 1.0 / self.panel_share - 1.0


@dataclass(frozen=True)
class WindowPace:
    """Frames that the window draws of itself; each costs a share of a core where there is no GPU."""

    window_fps: float = setting(60.0, "Frames a second while the window is used, at most.", unit="1/s", lo=10.0, hi=60.0,
                                valid=_RATE)
    idle_fps: float = setting(10.0, "Frames a second while nobody touches the window.", unit="1/s", lo=1.0, hi=30.0,
                              valid=_RATE)

    def __post_init__(self) -> None:
        check_settings(self)
