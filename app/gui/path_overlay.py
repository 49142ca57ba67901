"""The camera path in the picture, while its tab is open: the line, a small frustum at each key, and where the slider is."""

from __future__ import annotations

import numpy as np

from app.gui import overlay
from app.gui.camera_controls import Fit
from app.gui.theme import Color, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui
from app.messages import Frame
from render.types import Camera

FRUSTUM_EXTENTS = 0.05    # depth of a key's frustum
MARK_SHAPE = (160, 90)    # of the frusta's pictures
SHADOW: Color = (0, 0, 0, 150)
FAR = 1e5                 # px; what lies farther out is not drawn


class PathOverlay:
    def __init__(self, ui: Ui, canvas: int) -> None:
        self._ui, self._key = ui, None
        self._layer = int(dpg.add_draw_layer(parent=canvas))

    def update(self, frame: Frame | None, fit: Fit | None) -> None:
        view = self._ui.view
        editor, wanted = view.editor, view.editor.asked
        editor.asked = False   # the panel asks again in each frame in which it can be seen
        key = None
        if (wanted and not editor.playing and editor.path.keys and frame is not None and fit is not None
                and view.rig is not None):
            key = (editor.version, editor.selected, round(editor.time, 2), id(frame.camera), fit)
        if key == self._key:
            return
        self._key = key
        dpg.delete_item(self._layer, children_only=True)
        if key is not None and frame is not None and fit is not None and view.rig is not None:
            self._draw(frame.camera, fit, FRUSTUM_EXTENTS * view.rig.extent)

    def _draw(self, camera: Camera, fit: Fit, depth: float) -> None:
        editor, scale = self._ui.view.editor, self._ui.theme.scale
        for stroke in pieces(editor.line(), camera):
            points = fit.to_area(stroke).tolist()
            dpg.draw_polyline(points, color=SHADOW, thickness=3.5 * scale, parent=self._layer)
            dpg.draw_polyline(points, color=Palette.accent, thickness=1.6 * scale, parent=self._layer)
        marks = tuple(key.camera(*MARK_SHAPE) for key in editor.path.keys)
        for k, mark in enumerate(marks):
            color = Palette.second if k == editor.selected else Palette.text
            for _, stroke in overlay.frusta((mark,), camera, depth):
                dpg.draw_polyline(fit.to_area(stroke).tolist(), color=color, thickness=1.2 * scale, parent=self._layer)
            pixel, z = overlay.project(mark.center[None], camera)
            if z[0] > overlay.NEAR and np.abs(pixel).max() < FAR:
                self._number(fit.to_area(pixel[0]).tolist(), str(k + 1), color)
        here = editor.camera(editor.time)
        if here is not None and len(marks) > 1:
            pixel, z = overlay.project(here.center[None], camera)
            if z[0] > overlay.NEAR and np.abs(pixel).max() < FAR:
                dpg.draw_circle(fit.to_area(pixel[0]).tolist(), 3.5 * scale, color=SHADOW, fill=Palette.accent,
                                parent=self._layer)

    def _number(self, at: list[float], text: str, color: Color) -> None:
        px = self._ui.px
        x, y = at[0] + px(5), at[1] - px(18)
        dpg.draw_text((x + 1, y + 1), text, color=(0, 0, 0, 200), size=px(13), parent=self._layer)
        dpg.draw_text((x, y), text, color=color, size=px(13), parent=self._layer)


def pieces(line: np.ndarray, camera: Camera) -> list[np.ndarray]:
    """[P,2] px: the parts of a line [N,3] that lie in front of the camera."""
    if len(line) < 2:
        return []
    pixels, z = overlay.project(line, camera)
    good = (z > overlay.NEAR) & (np.abs(pixels).max(axis=1) < FAR)
    edges = [0, *(np.flatnonzero(np.diff(good.astype(int))) + 1).tolist(), len(line)]
    return [pixels[a:b] for a, b in zip(edges[:-1], edges[1:]) if good[a] and b - a > 1]
