"""The viewport's camera: pure mathematics, no Dear PyGui.

A Rig looks along +z of an OpenCV camera (+x right, +y down). Its attitude is yaw about the up direction, pitch towards
it and roll around the line of sight, kept apart so that orbiting never drifts into a tilt. Angles in radians, world
lengths in scene units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from app.messages import ViewInfo
from render.types import Camera

MAX_PITCH = math.radians(89.0)      # short of the pole, where yaw loses its meaning
ORBIT_RADIANS = 0.006               # per pixel dragged
LOOK_RADIANS = 0.003
DOLLY_FACTOR = 0.88                 # distance left after one wheel notch
CLOSEST_EXTENTS = 0.02              # the focus comes no nearer than this; what is nearer still is not drawn
FLY_EXTENTS_PER_SECOND = 0.4
DEFAULT_FOV_Y = math.radians(50.0)


@dataclass(frozen=True)
class Rig:
    """Where the free camera stands and what it turns around."""

    eye: np.ndarray          # [3] world
    distance: float          # from the eye to the focus along the line of sight
    yaw: float
    pitch: float             # positive looks up
    up: np.ndarray           # [3] unit, world
    roll: float = 0.0
    fov_y: float = DEFAULT_FOV_Y
    extent: float = 1.0      # world radius of the cameras: sets speeds and the closest distance

    @property
    def rotation(self) -> np.ndarray:
        """[3,3] world to camera: rows are right, down, forward."""
        return _attitude(self.up, self.yaw, self.pitch, self.roll)

    @property
    def forward(self) -> np.ndarray:
        return self.rotation[2]

    @property
    def focus(self) -> np.ndarray:
        """[3] the point that an orbit turns around."""
        return self.eye + self.distance * self.forward

    def camera(self, width: int, height: int) -> Camera:
        """The pinhole camera of a width x height picture; square pixels, centred."""
        rotation = self.rotation
        viewmat = np.eye(4)
        viewmat[:3, :3] = rotation
        viewmat[:3, 3] = -rotation @ self.eye
        focal = 0.5 * height / math.tan(0.5 * self.fov_y)
        K = np.array([[focal, 0.0, 0.5 * width], [0.0, focal, 0.5 * height], [0.0, 0.0, 1.0]])
        # A Gaussian beside the eye has a footprint as large as the picture and no photograph to correct it: it would lie
        # over a free view as fog. Scene views keep their own near plane, so that they show what training sees.
        return Camera(viewmat, K, int(width), int(height), near=max(0.01, CLOSEST_EXTENTS * self.extent))


def _frame(up: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two horizontal axes for yaw: any fixed choice does, as long as it depends on `up` alone."""
    seed = np.eye(3)[int(np.argmin(np.abs(up)))]
    first = np.cross(up, seed)
    first /= np.linalg.norm(first)
    return first, np.cross(up, first)


def _attitude(up: np.ndarray, yaw: float, pitch: float, roll: float) -> np.ndarray:
    first, second = _frame(up)
    level = math.cos(yaw) * first + math.sin(yaw) * second
    forward = math.cos(pitch) * level + math.sin(pitch) * up
    right = np.cross(forward, up)
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    c, s = math.cos(roll), math.sin(roll)
    return np.stack([c * right + s * down, c * down - s * right, forward])


def _angles(rotation: np.ndarray, up: np.ndarray) -> tuple[float, float, float]:
    """(yaw, pitch, roll) of a world-to-camera rotation; the inverse of _attitude away from the poles."""
    first, second = _frame(up)
    forward = rotation[2]
    pitch = math.asin(float(np.clip(forward @ up, -1.0, 1.0)))
    yaw = math.atan2(float(forward @ second), float(forward @ first))
    level = _attitude(up, yaw, float(np.clip(pitch, -MAX_PITCH, MAX_PITCH)), 0.0)
    roll = math.atan2(float(rotation[0] @ level[1]), float(rotation[0] @ level[0]))
    return yaw, pitch, roll


def rig_from_camera(camera: Camera, up: np.ndarray, center: np.ndarray, extent: float) -> Rig:
    """The free camera that stands where `camera` stands. U01, U02: `up` is the caller's, not the camera's."""
    up = np.asarray(up, dtype=np.float64) / np.linalg.norm(up)
    yaw, pitch, roll = _angles(camera.viewmat[:3, :3], up)
    eye = camera.center
    forward = camera.viewmat[2, :3]
    extent = max(float(extent), 1e-6)
    distance = float((np.asarray(center) - eye) @ forward)
    if not distance > 0.05 * extent:  # the centre is behind this camera, or not finite
        distance = extent
    fov_y = 2.0 * math.atan(0.5 * camera.height / float(camera.K[1, 1]))
    return Rig(eye, distance, yaw, float(np.clip(pitch, -MAX_PITCH, MAX_PITCH)), up, roll, fov_y, extent)


def orbit(rig: Rig, dx: float, dy: float) -> Rig:
    """Drag by (dx, dy) px: the scene follows the hand, the focus stays where it is."""
    focus = rig.focus
    turned = _turned(rig, dx * ORBIT_RADIANS, -dy * ORBIT_RADIANS)
    return replace(turned, eye=focus - turned.distance * turned.forward)


def look(rig: Rig, dx: float, dy: float) -> Rig:
    """Drag by (dx, dy) px: the eye stays, the head turns with the hand."""
    return _turned(rig, dx * LOOK_RADIANS, -dy * LOOK_RADIANS)


def pan(rig: Rig, dx: float, dy: float, height: float) -> Rig:
    """Drag by (dx, dy) px of a picture `height` px high: a point at the focus distance stays under the pointer."""
    per_pixel = 2.0 * rig.distance * math.tan(0.5 * rig.fov_y) / max(height, 1.0)
    rotation = rig.rotation
    return replace(rig, eye=rig.eye - per_pixel * (dx * rotation[0] + dy * rotation[1]))


def dolly(rig: Rig, notches: float) -> Rig:
    """Wheel up comes nearer. At the closest distance the focus moves along, so the wheel never stops working."""
    closest = CLOSEST_EXTENTS * rig.extent
    wanted = rig.distance * DOLLY_FACTOR**notches
    step = rig.distance - wanted
    return replace(rig, eye=rig.eye + step * rig.forward, distance=max(wanted, closest))


def fly(rig: Rig, right: float, down: float, forward: float, seconds: float, fast: bool = False) -> Rig:
    """WASD/QE: each of right, down, forward in -1..1; eye and focus move together."""
    speed = FLY_EXTENTS_PER_SECOND * rig.extent * (4.0 if fast else 1.0)
    rotation = rig.rotation
    return replace(rig, eye=rig.eye + speed * seconds * (
        right * rotation[0] - down * rig.up + forward * rotation[2]))


def focus_on(rig: Rig, point: np.ndarray, distance: float | None = None) -> Rig:
    """F: the point moves to the middle of the picture; the direction of view stays."""
    distance = rig.distance if distance is None else max(distance, CLOSEST_EXTENTS * rig.extent)
    return replace(rig, eye=np.asarray(point, dtype=np.float64) - distance * rig.forward, distance=distance)


def up_from_view(rig: Rig) -> Rig:
    """U02: what is up in the picture becomes up in the world; the picture does not change."""
    rotation = rig.rotation
    up = -rotation[1] / np.linalg.norm(rotation[1])
    yaw, pitch, roll = _angles(rotation, up)
    return replace(rig, up=up, yaw=yaw, pitch=pitch, roll=roll)


def level(rig: Rig) -> Rig:
    """Takes the tilt out."""
    return replace(rig, roll=0.0)


def _turned(rig: Rig, yaw: float, pitch: float) -> Rig:
    # Turning the head right about `up` is a negative yaw in the right-handed frame of _frame().
    return replace(rig, yaw=rig.yaw - yaw, pitch=float(np.clip(rig.pitch + pitch, -MAX_PITCH, MAX_PITCH)))


# ------------------------------------------------------------------------------------------- scene views
def nearest_view(views: tuple[ViewInfo, ...], rig: Rig) -> int | None:
    """Index of the scene view closest in place and direction; None without views."""
    if not views:
        return None
    forward = rig.forward

    def cost(view: ViewInfo) -> float:
        away = float(np.linalg.norm(view.camera.center - rig.eye)) / rig.extent
        return away + 1.0 - float(view.camera.viewmat[2, :3] @ forward)

    return min(range(len(views)), key=lambda i: cost(views[i]))


def stepped_view(index: int | None, step: int, total: int) -> int | None:
    """`[` and `]`: the previous or next view, around the end; the first one when none is chosen."""
    if total == 0:
        return None
    return (0 if step > 0 else total - 1) if index is None else (index + step) % total


# ------------------------------------------------------------------------------------------- picture <-> screen
@dataclass(frozen=True)
class Fit:
    """A picture of `width` x `height` px shown, aspect kept, in the middle of an area. Origin: the area's top left."""

    x: float
    y: float
    shown_width: float
    shown_height: float
    width: int
    height: int

    def to_picture(self, x: float, y: float) -> tuple[float, float] | None:
        """Picture coordinates (px, pixel centres at +0.5) of a point of the area; None beside the picture. G28"""
        u = (x - self.x) / self.shown_width
        v = (y - self.y) / self.shown_height
        if not (0.0 <= u < 1.0 and 0.0 <= v < 1.0):
            return None
        return u * self.width, v * self.height

    def to_area(self, points: np.ndarray) -> np.ndarray:
        """Where picture coordinates [...,2] stand in the area."""
        scale = np.array([self.shown_width / self.width, self.shown_height / self.height])
        return np.array([self.x, self.y]) + points * scale


def fit(width: int, height: int, area_width: float, area_height: float) -> Fit:
    """The largest centred placement of the picture that keeps its aspect."""
    if width < 1 or height < 1 or area_width < 1 or area_height < 1:
        raise ValueError(f"fit: a picture of {width}x{height} in an area of {area_width}x{area_height} has no placement")
    scale = min(area_width / width, area_height / height)
    shown_width, shown_height = width * scale, height * scale
    # A picture made for the area differs from it by rounding only: let it fill the area rather than leave a hairline.
    if abs(shown_width - area_width) < 2.0:
        shown_width = area_width
    if abs(shown_height - area_height) < 2.0:
        shown_height = area_height
    return Fit((area_width - shown_width) / 2, (area_height - shown_height) / 2, shown_width, shown_height, width, height)
