"""The camera path that is being made, and playing it: pure state, no Dear PyGui."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from app.camera_path import CameraPath, Key
from app.data.scene import SceneError
from render.types import Camera

SEGMENT_POINTS = 24     # of the line in the picture
LINE_POINTS = 900
UNDO_LIMIT = 50


class PathEditor:
    """`version` moves with every change; `asked` is set by the panel in each frame in which it can be seen."""

    def __init__(self) -> None:
        self.path = CameraPath()
        self.selected: int | None = None
        self.version = 0
        self.asked = False
        self.time = 0.0                      # s, where the slider stands
        self._undo: list[tuple[CameraPath, int | None]] = []
        self._playing: tuple[float, float] | None = None   # the clock and the path's time when it began
        self._line: tuple[int, np.ndarray] = (-1, np.zeros((0, 3)))

    # ------------------------------------------------------------------------------------------ changes
    def replace(self, path: CameraPath, selected: int | None = None) -> None:
        """Another path, as one step that undo() takes back."""
        self._undo.append((self.path, self.selected))
        del self._undo[:-UNDO_LIMIT]
        self._set(path, selected)

    def start_with(self, path: CameraPath) -> None:
        """Of another scene: nothing of the one before stays."""
        self._undo.clear()
        self._set(path, None)
        self.time = 0.0

    def undo(self) -> bool:
        if not self._undo:
            return False
        self._set(*self._undo.pop())
        return True

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def _set(self, path: CameraPath, selected: int | None) -> None:
        self.path = path
        self.selected = selected if selected is not None and 0 <= selected < len(path.keys) else None
        self.version += 1
        self.time = min(self.time, path.duration)
        if len(path.keys) < 2:
            self.stop()

    def add(self, camera: Camera, near: float) -> None:
        """A key of this view behind the selected one, or at the end."""
        keys, key = list(self.path.keys), Key.of(camera)
        place = len(keys) if self.selected is None else self.selected + 1
        if place == len(keys):
            path = self.path.with_key(key)
        else:
            keys.insert(place, key)
            path = self.path.with_keys(keys)
        self.replace(replace(path, near=near), place)

    def update(self, camera: Camera) -> None:
        """The selected key looks from here."""
        if self.selected is not None:
            keys = list(self.path.keys)
            keys[self.selected] = Key.of(camera, keys[self.selected].time)
            self.replace(replace(self.path, keys=tuple(keys)), self.selected)

    def delete(self) -> None:
        if self.selected is not None:
            keys = list(self.path.keys)
            del keys[self.selected]
            self.replace(replace(self.path, keys=tuple(keys)), min(self.selected, len(keys) - 1))

    def shift(self, by: int) -> None:
        """The selected key earlier or later among the others; the times stay in place."""
        k = self.selected
        if k is not None and 0 <= k + by < len(self.path.keys):
            keys = list(self.path.keys)
            keys[k], keys[k + by] = keys[k + by], keys[k]
            self.replace(self.path.with_keys(keys), k + by)

    def set_time(self, seconds: float) -> str | None:
        """The selected key is passed at this time, and the later ones move along. Returns a sentence where that cannot be."""
        k = self.selected
        if k is None:
            return None
        shift = seconds * self.path.speed + self.path.keys[0].time - self.path.keys[k].time
        keys = tuple(replace(key, time=key.time + shift) if j >= k else key for j, key in enumerate(self.path.keys))
        return self._try(lambda: replace(self.path, keys=keys))

    def set_speed(self, speed: float) -> str | None:
        return self._try(lambda: replace(self.path, speed=speed))

    def set_duration(self, seconds: float) -> str | None:
        if not 0.0 < seconds < 1e6:
            return f"A path of {seconds:g} s cannot be; give a time of more than 0 s."
        return self._try(lambda: self.path.lasting(seconds))

    def _try(self, change: Callable[[], CameraPath]) -> str | None:
        try:
            path = change()
        except SceneError as error:
            text = str(error)
            return f"{text[:1].upper()}{text[1:]}."
        if path is not self.path:
            self.replace(path, self.selected)
        return None

    # ------------------------------------------------------------------------------------------ playing
    def play(self, now: float) -> None:
        if len(self.path.keys) > 1:
            begin = 0.0 if self.time >= self.path.duration else self.time
            self._playing = (now, begin)

    def stop(self) -> None:
        self._playing = None

    @property
    def playing(self) -> bool:
        return self._playing is not None

    def advance(self, now: float) -> None:
        """Move on while it plays; an open path stops at its end."""
        if self._playing is None:
            return
        begun, start = self._playing
        self.time = start + now - begun
        if self.time >= self.path.duration:
            if self.path.closed:
                self.time %= self.path.duration
            else:
                self.time = self.path.duration
                self.stop()

    def camera(self, time: float) -> Camera | None:
        """Where the path is then, for the window to stand there."""
        return self.path.cameras_at([time], 160, 90)[0] if self.path.keys else None

    # ------------------------------------------------------------------------------------------ drawn
    def line(self) -> np.ndarray:
        """[P,3] points along the curve; worked out once for a version."""
        if self._line[0] != self.version:
            count = len(self.path.keys)
            points = np.array([key.position for key in self.path.keys]).reshape(-1, 3)
            if count > 1:
                times = self.path.key_times
                each = max(2, min(SEGMENT_POINTS, LINE_POINTS // len(times)))
                fine = np.concatenate([np.linspace(a, b, each, endpoint=False) for a, b in zip(times[:-1], times[1:])])
                # at() goes around: the very end of a closed path is its beginning
                points = self.path.at(np.append(fine, times[-1])).positions
            self._line = self.version, points
        return self._line[1]
