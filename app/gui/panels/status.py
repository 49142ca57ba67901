"""The line at the bottom: milliseconds per stage of a step as a bar and in numbers, and what the picture costs."""

from __future__ import annotations

from app.gui.layout import Rect
from app.gui.theme import SMALL, STAGE_COLORS, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, label, put, show, text_width, tooltip

ORDER = tuple(STAGE_COLORS)


class StatusLine:
    title = "Status"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._key: object = None
        self._names = True
        self._width, self._right = 0, -1.0
        self.frame_ms = 0.0
        self.frames_per_second = 0.0

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(horizontal=True, parent=parent, horizontal_spacing=ui.px(10)):
            with dpg.group() as bar:
                self._bar = int(dpg.add_drawlist(ui.px(120), ui.px(16)))
            self._tip = int(bar)
            tooltip(ui, self._tip, "No step was measured yet.")
            self._idle = label(ui, "Milliseconds per stage appear here while training runs", Palette.faint, small=True)
            self._stages: dict[str, tuple[int, int]] = {}
            for name in ORDER:
                with dpg.group(horizontal=True, horizontal_spacing=ui.px(4), show=False) as group:
                    square = dpg.add_drawlist(ui.px(8), ui.px(16))
                    dpg.draw_rectangle((0, ui.px(5)), (ui.px(7), ui.px(12)), fill=STAGE_COLORS[name],
                                       color=STAGE_COLORS[name], parent=square)
                    text = label(ui, "", Palette.muted, small=True)
                self._stages[name] = (int(group), text)
            self._total = label(ui, "", Palette.text, small=True)
        with dpg.group(parent=parent) as corner:
            self._picture = label(ui, "", Palette.muted, small=True)
        self._corner = int(corner)

    def layout(self, rect: Rect) -> None:
        """In a narrow window the bar and its total stand for the names; the tooltip has them."""
        self._names = rect.width >= self.ui.px(1160)
        self._width, self._right = rect.width, -1.0
        self._key = None

    def update(self) -> None:
        model = self.ui.model
        stages = {k: float(v) for k, v in model.snapshot.stage_ms.items()}
        key = tuple((k, round(v, 2)) for k, v in stages.items())
        if key != self._key:
            self._key = key
            self._show(stages)
        frame = model.frame
        if frame is None:
            put(self._picture, "")
            return
        detail = f" at {frame.detail:.0%}" if frame.detail < 1 else ""
        text = (f"picture {frame.camera.width}×{frame.camera.height}{detail}  {frame.render_ms:.0f} ms"
                f"   window {self.frame_ms:.0f} ms")
        put(self._picture, text)
        right = text_width(text, self.ui.px(SMALL)) + self.ui.px(12)
        if abs(right - self._right) > self.ui.px(3):  # flush with the edge, without trembling at every digit
            self._right = right
            dpg.configure_item(self._corner, pos=(self._width - right, self.ui.px(5)))

    def _show(self, stages: dict[str, float]) -> None:
        show(self._idle, not stages)
        total = sum(stages.values())
        put(self._total, f"step {total:.1f} ms" if stages else "")
        for name in ORDER:
            group, text = self._stages[name]
            show(group, name in stages and self._names)
            if name in stages:
                put(text, f"{name} {stages[name]:.1f}")
        if stages:
            tooltip(self.ui, self._tip, "Milliseconds per stage\n" + "\n".join(f"{k}  {v:.2f}" for k, v in stages.items()))
        ui = self.ui
        dpg.delete_item(self._bar, children_only=True)
        width, x = ui.px(120), 0.0
        for name, value in stages.items():
            share = width * value / total if total > 0 else 0.0
            color = STAGE_COLORS.get(name, Palette.faint)
            dpg.draw_rectangle((x, ui.px(4)), (x + share, ui.px(13)), fill=color, color=color, thickness=0, parent=self._bar)
            x += share
