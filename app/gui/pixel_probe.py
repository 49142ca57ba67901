"""Which pixel is looked into: the one under the cursor, until one is pinned. No Dear PyGui."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.inspection.questions import Sight, XRayQuestion
from app.messages import Frame, ViewInfo
from render.types import Camera

HOVER_SECONDS = 0.1      # a moving cursor asks no more often: training goes on meanwhile
SAME_PIXELS = 2.5        # px of the picture: pinning so near to the pinned pixel lets it go
POSE_TOLERANCE = 1e-6    # of a viewmat's largest entry


@dataclass
class PixelProbe:
    """Once the cursor leaves the picture the last pixel under it stays, so that its panel can be used."""

    hovered: XRayQuestion | None = None
    pinned: XRayQuestion | None = None
    under: XRayQuestion | None = None   # the pixel under the cursor now; None = the cursor is elsewhere
    _asked: XRayQuestion | None = None
    _asked_at: float = -1e9

    def point(self, question: XRayQuestion | None) -> None:
        """Each frame: what the cursor is over."""
        self.under = question
        if question is not None:
            self.hovered = question

    def toggle(self) -> bool:
        """Pin the pixel under the cursor; let go where that is the pinned one, or none. Whether one is pinned now."""
        if self.under is None or (self.pinned is not None and _near(self.under, self.pinned)):
            self.pinned = None if self.pinned is not None else self.hovered
        else:
            self.pinned = self.under
        return self.pinned is not None

    def question(self, now: float) -> XRayQuestion | None:
        """What to ask: the pinned pixel, else the one under the cursor, at a bounded rate."""
        wanted = self.pinned or self.hovered
        if wanted != self._asked and (wanted is None or wanted is self.pinned or now - self._asked_at >= HOVER_SECONDS):
            self._asked, self._asked_at = wanted, now
        return self._asked

    def forget(self) -> None:
        """Another scene."""
        self.hovered = self.pinned = self.under = self._asked = None


def _near(a: XRayQuestion, b: XRayQuestion) -> bool:
    return a.sight == b.sight and max(abs(a.x - b.x), abs(a.y - b.y)) <= SAME_PIXELS


def question_at(frame: Frame, x: float, y: float, views: tuple[ViewInfo, ...]) -> XRayQuestion:
    """About the pixel at (x, y) px of a picture; at a scene view, the photograph's own pixel there, which the loss sees."""
    camera, index = frame.camera, frame.request.view_index if frame.request is not None else None
    if index is not None and index < len(views):
        whole = views[index].camera
        x, y, camera = x * whole.width / camera.width, y * whole.height / camera.height, whole
    else:
        index = None
    column, row = min(max(int(x), 0), camera.width - 1), min(max(int(y), 0), camera.height - 1)
    return XRayQuestion(Sight.of(camera), column, row, index)


def same_pose(question: XRayQuestion, camera: Camera) -> bool:
    own = np.array(question.sight.viewmat).reshape(4, 4)
    return bool(np.allclose(own, camera.viewmat, rtol=0.0, atol=POSE_TOLERANCE * max(1.0, np.abs(own).max())))


def place(question: XRayQuestion, camera: Camera) -> tuple[float, float] | None:
    """Where the middle of the pixel is in the picture of `camera` [px]; None where it is seen from elsewhere or outside."""
    if not same_pose(question, camera):
        return None
    own = question.sight.camera
    x = (question.x + 0.5 - own.K[0, 2]) / own.K[0, 0] * camera.K[0, 0] + camera.K[0, 2]
    y = (question.y + 0.5 - own.K[1, 2]) / own.K[1, 1] * camera.K[1, 1] + camera.K[1, 2]
    return (x, y) if 0 <= x <= camera.width and 0 <= y <= camera.height else None


def along_ray(question: XRayQuestion, depths: np.ndarray) -> np.ndarray:
    """[P,3] world: the points at the depths [P] (camera z) on the ray through the middle of the pixel."""
    own = question.sight.camera
    ray = np.array([(question.x + 0.5 - own.K[0, 2]) / own.K[0, 0], (question.y + 0.5 - own.K[1, 2]) / own.K[1, 1], 1.0])
    return own.center + depths[:, None] * (ray @ own.viewmat[:3, :3])
