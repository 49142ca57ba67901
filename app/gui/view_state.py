"""What the viewport looks at and how: the camera, the mode and the scene view it stands at. No Dear PyGui."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from app.camera_path import framed
from app.gui import camera_controls as controls
from app.gui import looking_back
from app.gui.camera_controls import Rig
from app.gui.path_editor import PathEditor
from app.gui.pixel_probe import PixelProbe
from app.gui.resolution import AdaptiveResolution
from app.messages import MODES, Beside, Keep, Moment, SceneOpened, TimelineState, ViewInfo, ViewMode, ViewRequest
from render.types import Camera

OUTSIDE_EXTENTS = 2.5   # a model without photographs is seen from so many times the radius that holds most of it
MOVING_SECONDS = 0.18   # after the last motion the camera counts as moving, so that a slow hand does not flicker


@dataclass
class ViewState:
    """`view_index` is the scene view that the camera stands exactly at; any motion of the camera leaves it."""

    rig: Rig | None = None
    views: tuple[ViewInfo, ...] = ()
    center: np.ndarray = field(default_factory=lambda: np.zeros(3))
    mode: ViewMode = "color"
    quantity: str = "mean2d_grad"
    value_range: tuple[float, float] | None = None
    log_scale: bool | None = None
    colormap: str = ""                       # of heatmaps; empty = what suits the quantity
    keep: Keep | None = None                 # draw only the Gaussians with these values
    tool: str = "navigate"                   # what the left button does, see app/gui/select_tools.py
    brush: float = 24.0                      # its radius, px at 100 %
    beside: Beside | None = None             # another mode in the right part of the picture
    moment: Moment | None = None             # of the past that is looked at; None = now
    comparing: bool = False                  # `beside` is the same mode at another moment
    view_index: int | None = None
    area: tuple[int, int] = (0, 0)          # px that the picture may fill
    resolution: AdaptiveResolution = field(default_factory=AdaptiveResolution)
    probe: PixelProbe = field(default_factory=PixelProbe)
    editor: PathEditor = field(default_factory=PathEditor)   # of the camera path
    _mode_before: ViewMode = "color"
    _last_index: int | None = None           # where [ and ] go on from after the camera has left a view
    _moved_at: float = -1e9

    # ------------------------------------------------------------------------------------------ scene and views
    def open_scene(self, scene: SceneOpened, up: np.ndarray | None = None) -> None:
        """Stand at the first training view (U01); `up` is the one that the user set for this scene (U02)."""
        self.views, self.center = scene.views, np.asarray(scene.center, dtype=np.float64)
        self.value_range = self.keep = None
        self.look_at(None)
        if self.comparing:
            self.beside, self.comparing = None, False
        self.probe.forget()
        direction = np.asarray(scene.up if up is None else up, dtype=np.float64)
        if not np.isfinite(direction).all() or np.linalg.norm(direction) < 1e-9:
            direction = np.array([0.0, -1.0, 0.0])
        first = next((i for i, v in enumerate(self.views) if v.split == "train"), 0 if self.views else None)
        self._last_index = None
        if first is None:
            self.rig = _without_views(direction, self.center, scene.extent)
            self.view_index = None
            if MODES[self.mode].needs_photograph:
                self.mode = "color"
        else:
            self.rig = controls.rig_from_camera(self.views[first].camera, direction, self.center, scene.extent)
            self.go_to(first)
        self._where_it_was(scene)

    def _where_it_was(self, scene: SceneOpened) -> None:
        """A run that goes on is looked at from where it was looked at last."""
        index = scene.view_index
        if self.rig is None or scene.camera is None:
            return
        if index is not None and 0 <= index < len(self.views):
            self.go_to(index)
        elif index is None:
            self.rig = controls.rig_from_camera(scene.camera, self.rig.up, self.center, scene.extent)
            self.view_index = None
            if MODES[self.mode].needs_photograph:
                self.mode = "color"

    def go_to(self, index: int) -> None:
        """Stand exactly at a scene view."""
        assert self.rig is not None
        camera = self.views[index].camera
        self.rig = controls.rig_from_camera(camera, self.rig.up, self.center, self.rig.extent)
        self.view_index = self._last_index = index

    def step_view(self, step: int) -> ViewInfo | None:
        index = controls.stepped_view(self._last_index if self.view_index is None else self.view_index, step,
                                      len(self.views))
        if index is None or self.rig is None:
            return None
        self.go_to(index)
        return self.views[index]

    # ------------------------------------------------------------------------------------------ modes
    def set_mode(self, mode: ViewMode) -> str | None:
        """Switch; error and truth go to the nearest scene view. Returns a sentence when they cannot."""
        if MODES[mode].needs_photograph and self.view_index is None:
            nearest = controls.nearest_view(self.views, self.rig) if self.rig is not None else None
            if nearest is None:
                return f"{MODES[mode].label} needs a photograph, and this scene has none."
            self.go_to(nearest)
        if not MODES[self.mode].needs_photograph:
            self._mode_before = self.mode
        self.mode = mode
        self.value_range = None
        return None

    def toggle_mode(self, mode: ViewMode) -> str | None:
        """O and G: on, and off again to what was shown before."""
        return self.set_mode(self._mode_before if self.mode == mode else mode)

    # ------------------------------------------------------------------------------------------ motion
    def move(self, rig: Rig, now: float) -> None:
        """Every motion of the free camera comes through here."""
        self.rig = rig
        self._moved_at = now
        self.view_index = None
        if MODES[self.mode].needs_photograph:  # off the photograph's pose there is nothing to compare with
            self.mode = self._mode_before if not MODES[self._mode_before].needs_photograph else "color"
            self.value_range = None

    def overview_distance(self) -> float:
        """How far from its middle the scene is seen whole: as far as its photographs were taken from."""
        away = [float(np.linalg.norm(view.camera.center - self.center)) for view in self.views]
        return float(np.median(away)) if away else OUTSIDE_EXTENTS * (self.rig.extent if self.rig is not None else 1.0)

    def set_up_from_view(self, now: float) -> np.ndarray | None:
        """U02. Returns the new up direction to remember."""
        if self.rig is None:
            return None
        index = self.view_index
        self.move(controls.up_from_view(self.rig), now)
        self.view_index = index if not MODES[self.mode].needs_photograph else None
        return self.rig.up

    # ------------------------------------------------------------------------------------------ the past
    def look_at(self, moment: Moment | None) -> None:
        """A moment of the past, or None = now."""
        self.moment = moment

    def compare_with(self, moment: Moment | None) -> None:
        """The same mode at another moment in the right part of the picture; None = now."""
        share = self.beside.share if self.beside is not None else 0.5
        self.beside, self.comparing = Beside(self.mode, self.quantity, share, moment), True

    def moments(self) -> list[Moment]:
        """Those of the past that are looked at."""
        beside = self.beside.moment if self.comparing and self.beside is not None else None
        return [moment for moment in (self.moment, beside) if moment is not None]

    def stop_comparing(self) -> None:
        if self.comparing:
            self.beside, self.comparing = None, False

    def forget_gone(self, state: TimelineState, now: int) -> None:
        """What is looked at may be now, or of a branch that is gone, since a branch was taken up or deleted."""
        if self.moment is not None:
            self.moment = looking_back.place(state, now, self.moment).moment
        beside = self.beside
        if self.comparing and beside is not None and beside.moment is not None and state.branch(beside.moment.branch) is None:
            self.compare_with(None)

    def touch(self, now: float) -> None:
        """The hand moves something that pictures follow."""
        self._moved_at = now

    def moving(self, now: float) -> bool:
        return now - self._moved_at < MOVING_SECONDS

    # ------------------------------------------------------------------------------------------ the request
    def camera(self, now: float, training: bool) -> Camera | None:
        """The camera at the resolution to ask for; None while there is nothing to look at or no room."""
        width, height = self.area
        if self.rig is None or width < 16 or height < 16:
            return None
        moving = self.moving(now)
        training = training and self.mode != "truth"   # a photograph is not drawn anew for every step
        if self.view_index is None:
            return self.rig.camera(*self.resolution.choose(width, height, moving=moving, training=training))
        camera = self.views[self.view_index].camera
        shown = controls.fit(camera.width, camera.height, width, height)
        asked = self.resolution.choose(max(16, round(shown.shown_width)), max(16, round(shown.shown_height)),
                                       moving=moving, training=training)
        return camera.resized(*asked)

    def request(self, now: float, *, training: bool, hidden: bool, histogram: bool) -> ViewRequest | None:
        camera = self.camera(now, training)
        if camera is None:
            return None
        return ViewRequest(camera, self.mode, self.quantity, self.value_range, self.view_index, self.moving(now), hidden,
                           histogram, self.log_scale, colormap=self.colormap, keep=self.keep,
                           beside=self.shown_beside(), moment=self.moment)

    def shown_beside(self) -> Beside | None:
        """None where the second mode needs a photograph and the camera stands at none: then one picture is shown whole."""
        if self.comparing and self.beside is not None:
            return replace(self.beside, mode=self.mode, quantity=self.quantity)
        if self.beside is not None and MODES[self.beside.mode].needs_photograph and self.view_index is None:
            return None
        return self.beside

    def set_beside(self, mode: ViewMode | None, quantity: str = "") -> str | None:
        """Show another mode in the right part; None = one picture. Returns a sentence when there is no photograph."""
        self.comparing = False
        if mode is None:
            self.beside = None
            return None
        if MODES[mode].needs_photograph and self.view_index is None:
            nearest = controls.nearest_view(self.views, self.rig) if self.rig is not None else None
            if nearest is None:
                return f"{MODES[mode].label} needs a photograph, and this scene has none."
            self.go_to(nearest)
        share = self.beside.share if self.beside is not None else 0.5
        self.beside = Beside(mode, quantity or self.quantity, share)
        return None

    def whole_request(self, size: tuple[int, int] | None = None) -> ViewRequest | None:
        """What is shown, at the full size of its place in the window or at another, as a saved picture wants it; None
        without a scene. Another shape shows more or less to the sides and the same height."""
        width, height = self.area
        if self.rig is None or width < 16 or height < 16:
            return None
        if self.view_index is None:
            camera = self.rig.camera(width, height)
        else:
            own = self.views[self.view_index].camera
            shown = controls.fit(own.width, own.height, width, height)
            camera = own.resized(max(16, round(shown.shown_width)), max(16, round(shown.shown_height)))
        if size is not None and size != (camera.width, camera.height):   # from its own size, which is not rounded
            camera = framed(camera if self.view_index is None else self.views[self.view_index].camera, *size)
        return ViewRequest(camera, self.mode, self.quantity, self.value_range, self.view_index, log_scale=self.log_scale,
                           colormap=self.colormap, keep=self.keep, beside=self.shown_beside(), moment=self.moment)


def request_key(request: ViewRequest) -> tuple[object, ...]:
    """Equal for requests that ask for the same (arrays compare by value)."""
    camera = request.camera
    bare = replace(request, camera=None)  # type: ignore[arg-type]
    return camera.viewmat.tobytes(), camera.K.tobytes(), camera.width, camera.height, bare


def _without_views(up: np.ndarray, center: np.ndarray, extent: float) -> Rig:
    """A bare PLY has no cameras: look at its middle from outside, a little from above."""
    up = up / np.linalg.norm(up)
    extent = max(float(extent), 1e-6)
    distance = OUTSIDE_EXTENTS * extent
    return controls.focus_on(Rig(np.zeros(3), distance, 0.6, -0.35, up, extent=extent), center, distance)
