"""T over depth along a pixel's ray: a step down at every contributor."""

from __future__ import annotations

import numpy as np

from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, label, show
from app.inspection.results import XRay


class TransmittanceCurve:
    def __init__(self, ui: Ui) -> None:
        self._x: XRay | None = None
        with dpg.plot(height=ui.px(140), width=-1, no_menus=True, no_mouse_pos=True, no_inputs=True) as plot:
            self._depth = int(dpg.add_plot_axis(dpg.mvXAxis, label="depth [world units]", no_highlight=True))
            with dpg.plot_axis(dpg.mvYAxis, label="T", no_highlight=True) as axis:
                self._curve = int(dpg.add_line_series([], []))
                self._points = int(dpg.add_scatter_series([], []))
                self._at = int(dpg.add_inf_line_series([]))
        self._plot = int(plot)
        self._none = label(ui, "There is no curve without a contributor.", Palette.muted, small=True, wrap=0)
        dpg.bind_item_font(plot, ui.theme.small)
        dpg.bind_item_theme(self._curve, ui.theme.series(Palette.accent))
        dpg.bind_item_theme(self._points, ui.theme.series(Palette.accent))
        dpg.bind_item_theme(self._at, ui.theme.series((*Palette.second[:3], 200), 1.2))
        dpg.set_axis_limits(int(axis), -0.04, 1.04)

    def show(self, x: XRay) -> None:
        self._x = x
        show(self._plot, len(x.uids) > 0)
        show(self._none, not len(x.uids))
        if not len(x.uids):
            return
        lo, hi = float(x.depths[0]), float(x.depths[-1])
        margin = 0.06 * (hi - lo) or 0.1 * max(abs(hi), 1e-6)
        steps = np.append(x.transmittances, x.transmittance)
        depths = np.concatenate([[lo - margin], np.repeat(x.depths, 2), [hi + margin]])
        dpg.set_value(self._curve, [depths, np.repeat(steps, 2)])
        dpg.set_value(self._points, [x.depths.astype(float), steps[1:]])
        dpg.set_axis_limits(self._depth, lo - margin, hi + margin)

    def mark(self, contributor: int) -> None:
        depths = self._x.depths if self._x is not None else ()
        dpg.set_value(self._at, [[float(depths[contributor])] if 0 <= contributor < len(depths) else []])
