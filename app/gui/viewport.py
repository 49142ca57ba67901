"""The picture in the middle of the window: shown, navigated, clicked, and drawn over."""

from __future__ import annotations

import numpy as np

from app.gui import camera_controls as controls
from app.gui import formatting, legends, looking_back, overlay
from app.gui.camera_controls import Fit
from app.gui.crosshair import Crosshair
from app.gui.divider import Divider
from app.gui.layout import Rect
from app.gui.path_overlay import PathOverlay
from app.gui.pixel_probe import question_at
from app.gui.select_tools import SelectTools, cycling, held
from app.gui.textures import Picture
from app.gui.theme import Color, Palette
from app.gui.toolkit import dpg
from app.gui.tools import TOOLS
from app.gui.widgets import Ui, folded, shortened, text_width
from app.messages import MODES, Frame, GaussianReport

DRAG_THRESHOLD = 4.0      # px; a press that moves less is a click
LEFT, RIGHT, MIDDLE = 0, 1, 2
AXIS_COLORS: tuple[Color, ...] = ((224, 115, 111, 255), (127, 191, 138, 255), (110, 150, 225, 255))
OUTLINE = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Viewport:
    """Owns the drawlist. Call layout() when the area changes, update() each frame before it is drawn, after_frame() after."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.rect = Rect(0, 0, 16, 16)
        self.fit: Fit | None = None
        self._drag: tuple[int, float, float] | None = None  # button, last x, y
        self._dragged = False
        self._press = (0.0, 0.0)
        self._shown: Frame | None = None
        self._overlay_key: object = None
        self._legend_key: object = None
        self._caption_key: object = None

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.stage() as stage:
            pass
        registry = int(dpg.add_texture_registry())
        self.window = int(dpg.add_child_window(parent=parent, no_scrollbar=True, no_scroll_with_mouse=True, border=False))
        dpg.bind_item_theme(self.window, ui.theme.view)
        self.canvas = int(dpg.add_drawlist(16, 16, parent=self.window))
        # draw_image needs some texture from the start; this one is a single dark pixel and is never shown.
        blank = dpg.add_static_texture(1, 1, [0.0, 0.0, 0.0, 1.0], parent=registry)
        self._bars = int(dpg.add_draw_layer(parent=self.canvas))
        self._image = int(dpg.draw_image(blank, (0, 0), (1, 1), parent=self.canvas, show=False))
        self._frusta = int(dpg.add_draw_layer(parent=self.canvas))
        self._marks = int(dpg.add_draw_layer(parent=self.canvas))
        self._path = PathOverlay(ui, self.canvas)
        self._cross = Crosshair(ui, self.canvas)
        self.tools = SelectTools(ui, self.canvas)
        self._divider = Divider(ui, self.canvas)
        self._legend = int(dpg.add_draw_layer(parent=self.canvas))
        self._caption = int(dpg.add_draw_layer(parent=self.canvas))
        self.picture = Picture(registry, int(stage), self._image)

    # ------------------------------------------------------------------------------------------ size
    def layout(self, rect: Rect) -> None:
        self.rect = rect
        dpg.configure_item(self.window, pos=(rect.x, rect.y), width=rect.width, height=rect.height)
        dpg.configure_item(self.canvas, width=rect.width, height=rect.height)
        self.ui.view.area = (rect.width, rect.height)
        self._refit()

    def _refit(self) -> None:
        self.fit = None
        if self._shown is not None:
            camera = self._shown.camera
            self.fit = controls.fit(camera.width, camera.height, self.rect.width, self.rect.height)
            f = self.fit
            dpg.configure_item(self._image, pmin=(f.x, f.y), pmax=(f.x + f.shown_width, f.y + f.shown_height))
        self._draw_bars()
        self._overlay_key = self._legend_key = self._caption_key = None

    def _draw_bars(self) -> None:
        """The dark around the picture, and only there: filling what the picture covers would cost the frame rate."""
        dpg.delete_item(self._bars, children_only=True)
        f, width, height = self.fit, self.rect.width, self.rect.height
        if f is None:
            rects = [(0.0, 0.0, width, height)]
        else:
            right, bottom = f.x + f.shown_width, f.y + f.shown_height
            rects = [(0.0, 0.0, f.x, height), (right, 0.0, width, height), (f.x, 0.0, right, f.y), (f.x, bottom, right, height)]
        for x0, y0, x1, y1 in rects:
            if x1 - x0 > 0.5 and y1 - y0 > 0.5:
                dpg.draw_rectangle((x0, y0), (x1, y1), fill=Palette.void, color=Palette.clear, thickness=0,
                                   parent=self._bars)

    # ------------------------------------------------------------------------------------------ each frame
    def update(self, now: float) -> None:
        frame = self.ui.model.frame
        if frame is not self._shown:
            before, self._shown = self._shown, frame
            if frame is None:
                self.picture.hide()
                self._refit()
            else:
                self.picture.show(frame.rgba)
                detail = frame.detail * frame.detail
                self.ui.view.resolution.observe(frame.render_ms, int(frame.rgba.shape[0] * frame.rgba.shape[1] * detail))
                if before is None or (before.camera.width, before.camera.height) != (
                        frame.camera.width, frame.camera.height):
                    self._refit()
        self._point()
        self._path.update(frame, self.fit)
        self._cross.update(frame, self.fit)
        mouse = self.local_mouse() if self.hovered() else None
        self.tools.update(frame, self.fit, mouse)
        self._divider.update(frame, self.fit, mouse)
        self._draw_overlay()
        self._draw_legend()
        self._draw_caption()

    def after_frame(self) -> None:
        self.picture.after_frame()

    # ------------------------------------------------------------------------------------------ mouse
    def hovered(self) -> bool:
        return bool(dpg.is_item_hovered(self.canvas))

    def local_mouse(self) -> tuple[float, float]:
        """Mouse in px of the canvas. G28"""
        x, y = dpg.get_mouse_pos(local=False)
        x0, y0 = dpg.get_item_rect_min(self.canvas)
        return x - x0, y - y0

    def press(self, button: int) -> None:
        if self._drag is None and not self.tools.active and button in (LEFT, RIGHT, MIDDLE) and self.hovered():
            x, y = self.local_mouse()
            if button == LEFT and (self._divider.press(x, self.fit) or self.tools.press(x, y)):
                return
            self._drag, self._dragged, self._press = (button, x, y), False, (x, y)

    def release(self, button: int) -> None:
        if button == LEFT:
            self._divider.release()
        if button == LEFT and self.tools.active:
            self.tools.release(self._shown, self.fit)
        if self._drag is None or self._drag[0] != button:
            return
        if not self._dragged and button == LEFT:
            self._select()
        elif not self._dragged and button == MIDDLE:
            self.ui.actions.pin_pixel()
        self._drag = None

    @property
    def dragging(self) -> bool:
        return self._drag is not None or self.tools.active or self._divider.held

    def follow(self, now: float) -> None:
        """Once a frame: turn a drag into camera motion, or into a stroke of the tool in hand."""
        if self._divider.held:
            self._divider.drag(self.local_mouse()[0], self.fit)
        if self.tools.active:
            self.tools.follow(*self.local_mouse())
        if self._drag is None or self.ui.view.rig is None:
            return
        button, last_x, last_y = self._drag
        x, y = self.local_mouse()
        if not self._dragged:
            if max(abs(x - self._press[0]), abs(y - self._press[1])) < DRAG_THRESHOLD:
                return
            self._dragged = True
        dx, dy = x - last_x, y - last_y
        if dx == 0 and dy == 0:
            return
        self._drag = (button, x, y)
        rig, scale = self.ui.view.rig, 1.0 / self.ui.theme.scale
        shift = dpg.is_key_down(dpg.mvKey_LShift) or dpg.is_key_down(dpg.mvKey_RShift)
        if button == RIGHT:
            rig = controls.look(rig, dx * scale, dy * scale)
        elif button == MIDDLE or shift:
            rig = controls.pan(rig, dx, dy, self.fit.shown_height if self.fit else self.rect.height)
        else:
            rig = controls.orbit(rig, dx * scale, dy * scale)
        self.ui.view.move(rig, now)

    def wheel(self, notches: float, now: float) -> None:
        if self.ui.view.rig is not None and self.hovered():
            self.ui.view.move(controls.dolly(self.ui.view.rig, notches), now)

    def fly(self, seconds: float, now: float) -> bool:
        """WASD/QE while held. Returns whether a key moved the camera."""
        rig = self.ui.view.rig
        if rig is None:
            return False
        held = {k: float(dpg.is_key_down(getattr(dpg, "mvKey_" + k))) for k in "WASDQE"}
        right, forward, down = held["D"] - held["A"], held["W"] - held["S"], held["Q"] - held["E"]
        if not (right or forward or down):
            return False
        fast = dpg.is_key_down(dpg.mvKey_LShift) or dpg.is_key_down(dpg.mvKey_RShift)
        self.ui.view.move(controls.fly(rig, right, down, forward, min(seconds, 0.1), fast), now)
        return True

    def _select(self) -> None:
        if self._shown is None or self.fit is None:
            return
        pixel = self.fit.to_picture(*self.local_mouse())
        if pixel is not None:
            self.ui.actions.select_at(self._shown.camera, *pixel, how=held(), cycle=cycling())

    def _point(self) -> None:
        """Tell the probe what the cursor is over; nothing while the hand turns the camera."""
        turning, view = self._drag is not None and self._dragged, self.ui.view
        pixel = self.fit.to_picture(*self.local_mouse()) if self.fit and not turning and self.hovered() else None
        view.probe.point(question_at(self._shown, *pixel, view.views) if pixel is not None and self._shown else None)

    # ------------------------------------------------------------------------------------------ drawn over it
    @property
    def _edges(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of the picture, px of the canvas: what is written on it does not stand beside it."""
        f = self.fit
        return (0.0, 0.0, self.rect.width, self.rect.height) if f is None else (
            f.x, f.y, f.x + f.shown_width, f.y + f.shown_height)

    def _draw_overlay(self) -> None:
        ui, frame = self.ui, self._shown
        selected = ui.model.snapshot.selected
        key = (id(frame), ui.preferences.frusta, ui.preferences.axes, id(selected), ui.view.view_index)
        if key == self._overlay_key:
            return
        self._overlay_key = key
        dpg.delete_item(self._frusta, children_only=True)
        dpg.delete_item(self._marks, children_only=True)
        if frame is None or self.fit is None:
            return
        if ui.preferences.frusta:
            self._draw_frusta(frame, self.fit)
        if ui.preferences.axes:
            self._draw_axes(frame, self.fit)
        if selected is not None and selected.ellipse is not None:
            self._draw_selected(selected, self.fit)

    def _draw_frusta(self, frame: Frame, fit: Fit) -> None:
        view = self.ui.view
        if view.rig is None:
            return
        cameras = tuple(v.camera for v in view.views)
        for index, stroke in overlay.frusta(cameras, frame.camera, 0.09 * view.rig.extent):
            test = view.views[index].split == "test"
            color = (*(Palette.second if test else Palette.accent)[:3], 190)
            dpg.draw_polyline(fit.to_area(stroke).tolist(), color=color, thickness=1, parent=self._frusta)

    def _draw_axes(self, frame: Frame, fit: Fit) -> None:
        view = self.ui.view
        if view.rig is None:
            return
        segments = overlay.axes(view.center, 0.25 * view.rig.extent, frame.camera)
        for name, color, segment in zip("xyz", AXIS_COLORS, segments):
            if segment is None or np.abs(segment).max() > 1e5:
                continue
            start, end = fit.to_area(segment).tolist()
            dpg.draw_line(start, end, color=color, thickness=1.5 * self.ui.theme.scale, parent=self._marks)
            at = end[0] + 3, end[1] - self.ui.px(8)
            for dx, dy in OUTLINE:   # dark around it, so that it can be read on any picture
                dpg.draw_text((at[0] + dx, at[1] + dy), name, color=(0, 0, 0, 120), size=self.ui.px(13), parent=self._marks)
            dpg.draw_text(at, name, color=color, size=self.ui.px(13), parent=self._marks)

    def _draw_selected(self, report: GaussianReport, fit: Fit) -> None:
        assert report.ellipse is not None
        for sigmas, color, thickness in ((1.0, Palette.text, 1.6), (3.0, (*Palette.text[:3], 120), 1.0)):
            outline = overlay.ellipse(report.ellipse, sigmas)
            if outline is None or np.abs(outline).max() > 1e5:
                return
            points = fit.to_area(outline).tolist()
            # A dark line underneath keeps it legible on any picture.
            dpg.draw_polyline(points, color=(0, 0, 0, 150), thickness=thickness + 2, closed=True, parent=self._marks)
            dpg.draw_polyline(points, color=color, thickness=thickness, closed=True, parent=self._marks)

    def _draw_legend(self) -> None:
        frame = self._shown
        shown = [legend for legend in (frame.legend, frame.legend_beside) if legend is not None] if frame is not None else []
        key = (tuple(shown), self.rect) if shown else None
        if key == self._legend_key:
            return
        self._legend_key = key
        dpg.delete_item(self._legend, children_only=True)
        for legend in shown:
            draw = legends.draw_entries if legend.entries else legends.draw_bar
            draw(self.ui, self._legend, legend, self._edges, right=frame is not None and legend is frame.legend_beside)

    def _draw_caption(self) -> None:
        """Mode and view name in the corner, or what is missing in the middle."""
        ui, frame, empty = self.ui, self._shown, self.ui.model.empty_text
        view = ui.view
        name = view.views[view.view_index].name if view.view_index is not None and view.views else ""
        split = view.views[view.view_index].split if name and view.view_index is not None else ""
        mode = MODES[frame.mode].label if frame is not None else ""
        note = formatting.spaced(frame.note) if frame is not None else ""
        job = ui.model.job
        progress = (job.name, job.text, round(job.fraction, 2)) if job is not None else None
        hint = TOOLS[view.tool].hint
        back = ""
        if view.moment is not None and frame is not None and frame.moment is not None:
            back = looking_back.words(ui.model.snapshot.timeline, view.moment, frame, None)
        key = (empty, name, mode, note, progress, hint, self.rect, back)
        if key == self._caption_key:
            return
        self._caption_key = key
        dpg.delete_item(self._caption, children_only=True)
        if empty is not None:
            self._draw_empty(*empty, fraction=job.fraction if job is not None else None)
            return
        text = mode + (f"   {name} ({split})" if name else "")
        tool = f"{hint}   Shift adds, Ctrl takes away, Esc puts it away" if hint else ""
        past = f"Looking back: {back}.   End: now" if back else ""
        if back and self.fit is not None:
            f, half = self.fit, ui.px(2) / 2
            dpg.draw_rectangle((f.x + half, f.y + half), (f.x + f.shown_width - half, f.y + f.shown_height - half),
                               color=Palette.second, thickness=2 * half, parent=self._caption)
        colored = ((text, Palette.text), (past, Palette.second), (note, Palette.second), (tool, Palette.accent))
        left, top, _, _ = self._edges
        lines = [(line, color) for whole, color in colored if whole for line in folded(whole, ui.px(13), self._room)]
        for i, (line, color) in enumerate(lines):
            self._shadowed(left + ui.px(12), top + ui.px(10 + 20 * i), line, color, 13)

    def _draw_empty(self, headline: str, detail: str, fraction: float | None) -> None:
        px = self.ui.px
        middle, room = self.rect.height / 2, self.rect.width - px(24)
        details = [(line, 13, middle + px(20 * i), Palette.muted) for i, line in enumerate(folded(detail, px(13), room))]
        for text, size, y, color in ((headline, 18, middle - px(28), Palette.text), *details):
            shown = shortened(text, px(size), room)
            x = max(px(12), (self.rect.width - text_width(shown, px(size))) / 2)
            dpg.draw_text((x, y), shown, color=color, size=px(size), parent=self._caption)
        if fraction is not None:
            half, y = px(110), middle + px(10 + 20 * len(details))
            x = self.rect.width / 2
            dpg.draw_rectangle((x - half, y), (x + half, y + px(4)), fill=Palette.raised, color=(0, 0, 0, 0),
                               rounding=px(2), parent=self._caption)
            dpg.draw_rectangle((x - half, y), (x - half + 2 * half * min(max(fraction, 0.0), 1.0), y + px(4)),
                               fill=Palette.accent, color=(0, 0, 0, 0), rounding=px(2), parent=self._caption)

    @property
    def _room(self) -> float:
        """px that a line written on the picture may take."""
        left, _, right, _ = self._edges
        return max(right - left, self.ui.px(160)) - 2 * self.ui.px(12)

    def _shadowed(self, x: float, y: float, text: str, color: Color, size: float) -> None:
        px = self.ui.px
        text = shortened(text, px(size), self._room)
        dpg.draw_rectangle((x - px(6), y - px(3)), (x + text_width(text, px(size)) + px(6), y + px(size + 4)),
                           fill=(14, 16, 19, 175), color=(0, 0, 0, 0), rounding=px(3), parent=self._caption)
        dpg.draw_text((x, y), text, color=color, size=px(size), parent=self._caption)
