"""What the window remembers between runs: layout, recent scenes, view choices, the up direction of each scene."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.data.user_files import Unreadable, name_aside, read_object, write_object
from app.pace import PaceConfig, WindowPace

RECENT_LIMIT = 10
SCALES = (1.0, 1.25, 1.5, 1.75, 2.0)


@dataclass
class Preferences:
    """Plain values only, so that the JSON stays readable by its owner."""

    ui_scale: float = 1.0
    width: int = 1280
    height: int = 720
    left: int = 236            # unscaled px of the left column
    right: int = 344           # unscaled px of the inspector
    bottom: int = 164          # unscaled px of the plots
    show_inspector: bool = True
    show_plots: bool = True
    branch_curves: bool = True
    frusta: bool = False
    axes: bool = True
    quantity: str = "mean2d_grad"
    inspector_tab: str = "densify"
    view_share: float = 0.2    # of the time, for pictures of a scene that trains
    view_rate: float = 15.0    # such pictures a second, at most
    panel_share: float = 0.14  # of the time, for what an open panel asks
    window_fps: float = 60.0   # M04: no more frames than a screen shows
    idle_fps: float = 10.0     # U05: of a window that nobody touches
    record: bool = True        # a record of each run in the window, unless --no_record says otherwise
    recent: list[str] = field(default_factory=list)
    scene_up: dict[str, list[float]] = field(default_factory=dict)
    camera_paths: dict[str, dict[str, Any]] = field(default_factory=dict)   # by scene, as app/data/camera_paths.py has them

    def remember_scene(self, path: str) -> None:
        """Most recent first, each once."""
        self.recent = [path, *(p for p in self.recent if p != path)][:RECENT_LIMIT]

    def remember_path(self, scene: str, path: dict[str, Any] | None) -> None:
        """The camera path of a scene; of the newest few scenes. None forgets it."""
        self.camera_paths.pop(scene, None)
        if path is not None:
            self.camera_paths[scene] = path
        for old in list(self.camera_paths)[:-RECENT_LIMIT]:
            del self.camera_paths[old]


def pace_of(preferences: Preferences) -> PaceConfig:
    """What the engine is to know of them."""
    return PaceConfig(preferences.view_share, preferences.view_rate, preferences.panel_share)


def default_path() -> Path:
    """The preferences file of this user on this system."""
    import platformdirs
    return Path(platformdirs.user_config_dir("splatscope", appauthor=False)) / "window.json"


def load(path: Path) -> tuple[Preferences, str | None]:
    """(preferences, complaint). A missing file is the defaults; an unreadable one too, with a sentence to show."""
    try:
        return _usable(read_object(path)), None
    except Unreadable as error:
        return Preferences(), (f"The preferences in {path} cannot be read ({error}), so defaults are in force; mend that file "
                               f"before the window closes, which otherwise renames it to {name_aside(path).name}.")


def save(preferences: Preferences, path: Path, loaded: Preferences | None = None) -> str:
    """Write into the file what differs from `loaded`, as they were when the window opened (None = the defaults).

    The file is read anew, and all else in it stays: what another window has written meanwhile, and what this version does not
    know or cannot use. A file that cannot be read is renamed; returns a sentence about that, or ''. Atomic. Raises SceneError.
    """
    damaged, stored = "", {}
    try:
        stored = read_object(path)
    except Unreadable as error:
        damaged = str(error)
    before, now = dataclasses.asdict(loaded or Preferences()), dataclasses.asdict(preferences)
    joined = {name: _joined(name, stored[name], before[name], now[name]) if name in stored else now[name] for name in now}
    return write_object(path, {**stored, **joined}, damaged)


def _joined(name: str, stored: Any, before: Any, now: Any) -> Any:
    """One preference of this window and of the file; what this window has not changed is the file's."""
    if isinstance(now, dict) and isinstance(stored, dict):
        joined = _joined_entries(stored, before, now)
        return dict(list(joined.items())[-RECENT_LIMIT:]) if name == "camera_paths" else joined
    if now == before:
        return stored
    if isinstance(now, list) and isinstance(stored, list) and stored != before:   # of scenes: another window opened some too
        here = [scene for scene in now if scene not in before]
        return [*here, *(scene for scene in stored if scene not in here)][:RECENT_LIMIT]
    return now


def _joined_entries(stored: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Entry by entry; what is written now comes last, and so stays longest."""
    changed = [key for key, value in now.items() if key not in before or value != before[key]]
    same = {key: stored[key] for key in now if key in stored and key not in changed}
    others = {key: value for key, value in stored.items() if key not in now and key not in before}
    return same | others | {key: now[key] for key in changed}


def scale_from(environ: dict[str, str] | os._Environ[str], preferences: Preferences) -> tuple[float, str | None]:
    """(scale, complaint): SPLATSCOPE_UI_SCALE wins over the stored preference; both stay within 1 and 2."""
    text = environ.get("SPLATSCOPE_UI_SCALE", "")
    value, complaint = preferences.ui_scale, None
    if text:
        try:
            value = float(text.rstrip("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            complaint = f"SPLATSCOPE_UI_SCALE is {text!r}; give a number between 1 and 2, such as 1.5."
    return min(max(value, SCALES[0]), SCALES[-1]), complaint


def _usable(stored: dict[str, Any]) -> Preferences:
    """Known keys of the right type win over defaults; others are not used, and save() leaves them in the file."""
    preferences = Preferences()
    for f in dataclasses.fields(Preferences):
        default = getattr(preferences, f.name)
        value = stored.get(f.name, default)
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is type(default):
            setattr(preferences, f.name, value)
    for spec in (*dataclasses.fields(PaceConfig), *dataclasses.fields(WindowPace)):   # what a slider would not give
        low, high, value = spec.metadata["lo"], spec.metadata["hi"], getattr(preferences, spec.name)
        if not low <= value <= high:
            setattr(preferences, spec.name, spec.default)
    preferences.recent = [p for p in preferences.recent if isinstance(p, str)][:RECENT_LIMIT]
    preferences.scene_up = {k: v for k, v in preferences.scene_up.items() if _is_vector(v)}
    return preferences


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(x, (int, float)) for x in value)
