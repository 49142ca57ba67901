"""The pinned pixel in the picture: a cross that leaves the pixel itself free, or from elsewhere its ray and who is on it."""

from __future__ import annotations

import numpy as np

from app.gui import overlay
from app.gui.camera_controls import Fit
from app.gui.pixel_probe import along_ray, place, same_pose
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui
from app.inspection.results import XRay
from app.messages import Frame

INNER, OUTER = 4, 13        # px from the pixel, at 100 %
LEAST_WEIGHT, DOTS = 2e-3, 150   # lighter contributors have no dot, and no more have one
SHADOW = (0, 0, 0, 190)     # a dark line underneath keeps it legible on any picture


class Crosshair:
    def __init__(self, ui: Ui, canvas: int) -> None:
        self._ui, self._key = ui, None
        self._layer = int(dpg.add_draw_layer(parent=canvas))

    def update(self, frame: Frame | None, fit: Fit | None) -> None:
        pinned, answer = self._ui.view.probe.pinned, self._ui.model.snapshot.answers.get("xray")
        found = answer.value if answer is not None and answer.question == pinned and isinstance(answer.value, XRay) else None
        key = None if pinned is None or frame is None or fit is None else (pinned, id(frame.camera), id(found), fit)
        if key == self._key:
            return
        self._key = key
        dpg.delete_item(self._layer, children_only=True)
        if pinned is None or frame is None or fit is None:
            return
        at = place(pinned, frame.camera)
        if at is not None:
            self._cross(*fit.to_area(np.array(at)).tolist())
        elif found is not None and len(found.uids) and not same_pose(pinned, frame.camera):
            points, z = overlay.project(along_ray(pinned, np.append(0.0, found.depths)), frame.camera)
            self._ray(fit.to_area(points), z > overlay.NEAR, found)

    def _cross(self, x: float, y: float) -> None:
        inner, outer = self._ui.px(INNER), self._ui.px(OUTER)
        for color, thickness in ((SHADOW, 4.0), (Palette.second, 1.6)):
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                dpg.draw_line((x + dx * inner, y + dy * inner), (x + dx * outer, y + dy * outer), color=color,
                              thickness=thickness * self._ui.theme.scale, parent=self._layer)

    def _ray(self, points: np.ndarray, visible: np.ndarray, found: XRay) -> None:
        """From the eye (the first point) to the last contributor, each a dot of its colour whose area is its weight."""
        line = points[visible]
        if len(line) < 2 or np.abs(line).max() > 1e5:
            return
        scale = self._ui.theme.scale
        for color, thickness in ((SHADOW, 3.0), (Palette.second, 1.2)):
            dpg.draw_line(line[0].tolist(), line[-1].tolist(), color=color, thickness=thickness * scale, parent=self._layer)
        heavy = np.argsort(-found.weights)[:DOTS]
        for k in heavy[::-1]:   # the heaviest on top
            if found.weights[k] >= LEAST_WEIGHT and visible[k + 1]:
                fill = (*(255 * np.clip(found.colors[k], 0, 1)).astype(int).tolist(), 255)
                dpg.draw_circle(points[k + 1].tolist(), scale * (1.5 + 14 * float(found.weights[k]) ** 0.5), color=SHADOW,
                                fill=fill, parent=self._layer)
