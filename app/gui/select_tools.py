"""Rectangle, lasso and brush in the viewport: what the hand draws, and what is asked of the engine with it."""

from __future__ import annotations

import numpy as np

from app.gui import overlay
from app.gui.camera_controls import Fit
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.tools import MARK, Stroke
from app.gui.widgets import Ui
from app.messages import Frame, SelectHow

FILL = (*MARK[:3], 36)
OUTLINE_SIGMAS = 2.0


def held() -> SelectHow:
    """What Shift and Ctrl make of a selection."""
    if dpg.is_key_down(dpg.mvKey_LControl) or dpg.is_key_down(dpg.mvKey_RControl):
        return "remove"
    return "add" if dpg.is_key_down(dpg.mvKey_LShift) or dpg.is_key_down(dpg.mvKey_RShift) else "replace"


def cycling() -> bool:
    return bool(dpg.is_key_down(dpg.mvKey_LAlt) or dpg.is_key_down(dpg.mvKey_RAlt))


class SelectTools:
    """Draws on layers of its own over the picture. The viewport hands on the mouse while a tool is in hand."""

    def __init__(self, ui: Ui, canvas: int) -> None:
        self.ui = ui
        self._outlines = int(dpg.add_draw_layer(parent=canvas))
        self._layer = int(dpg.add_draw_layer(parent=canvas))
        self._stroke: Stroke | None = None
        self._drawn: object = None
        self._frame: object = None

    @property
    def active(self) -> bool:
        return self._stroke is not None

    def press(self, x: float, y: float) -> bool:
        """Whether the left button is a tool's."""
        tool = self.ui.view.tool
        if tool == "navigate":
            return False
        self._stroke = Stroke(tool, [(x, y)], held())
        return True

    def follow(self, x: float, y: float) -> None:
        if self._stroke is not None:
            self._stroke.extend(x, y)

    def release(self, frame: Frame | None, fit: Fit | None) -> None:
        stroke, self._stroke = self._stroke, None
        if stroke is None or frame is None or fit is None:
            return
        scale = fit.width / fit.shown_width
        if stroke.tool == "brush":
            path, radius = _to_picture(fit, np.array(stroke.points)), self._radius() * scale
            self.ui.actions.select_region(frame.camera, path, radius, stroke.how)
        elif stroke.is_click:
            pixel = fit.to_picture(*stroke.points[0])
            if pixel is not None:
                self.ui.actions.select_at(frame.camera, *pixel, how=stroke.how, cycle=cycling())
        else:
            self.ui.actions.select_region(frame.camera, _to_picture(fit, stroke.outline()), None, stroke.how)

    def _radius(self) -> float:
        return self.ui.view.brush * self.ui.theme.scale

    # ------------------------------------------------------------------------------------------ drawn
    def update(self, frame: Frame | None, fit: Fit | None, mouse: tuple[float, float] | None) -> None:
        """`mouse` is None beside the picture's area."""
        stroke, tool = self._stroke, self.ui.view.tool
        cursor = mouse if tool == "brush" else None
        key = (stroke and (stroke.tool, len(stroke.points), stroke.points[-1]), cursor, self.ui.view.brush)
        if key != self._drawn:
            self._drawn = key
            dpg.delete_item(self._layer, children_only=True)
            if stroke is not None:
                self._draw_stroke(stroke)
            if cursor is not None:
                dpg.draw_circle(cursor, self._radius(), color=MARK, thickness=1.2, parent=self._layer)
        shown = (id(frame), fit)
        if shown != self._frame:
            self._frame = shown
            dpg.delete_item(self._outlines, children_only=True)
            if frame is not None and fit is not None and frame.outlines is not None:
                self._draw_outlines(frame.outlines, fit)

    def _draw_stroke(self, stroke: Stroke) -> None:
        px = self.ui.px
        if stroke.tool == "brush":
            points, radius = [list(p) for p in stroke.points], self._radius()
            if len(points) > 1:
                dpg.draw_polyline(points, color=(*MARK[:3], 60), thickness=2 * radius, parent=self._layer)
            for point in (points[0], points[-1]):
                dpg.draw_circle(point, radius, color=Palette.clear, fill=(*MARK[:3], 60), parent=self._layer)
            return
        points = stroke.outline().tolist()
        if stroke.tool == "rectangle":
            dpg.draw_rectangle(points[0], points[2], color=MARK, fill=FILL, thickness=px(1.6), parent=self._layer)
        elif len(points) > 1:
            dpg.draw_polyline(points, color=(0, 0, 0, 150), thickness=px(4), closed=True, parent=self._layer)
            dpg.draw_polyline(points, color=MARK, thickness=px(2), closed=True, parent=self._layer)

    def _draw_outlines(self, outlines: np.ndarray, fit: Fit) -> None:
        for points in fit.to_area(overlay.ellipses(outlines, OUTLINE_SIGMAS)).tolist():
            dpg.draw_polyline(points, color=(*MARK[:3], 170), thickness=self.ui.theme.scale, closed=True, parent=self._outlines)


def _to_picture(fit: Fit, points: np.ndarray) -> np.ndarray:
    """Picture coordinates of points of the area, beyond the picture's edge too."""
    return (points - [fit.x, fit.y]) * [fit.width / fit.shown_width, fit.height / fit.shown_height]
