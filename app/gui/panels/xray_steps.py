"""The backward pass of one pixel, step by step: T rebuilt from T_N by division, and the gradient of each alpha."""

from __future__ import annotations

import numpy as np

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, label, put, relabel, tooltip
from app.inspection.results import XRay

PLAY_SECONDS = 0.15      # a step, where there are few
WALK_SECONDS = 10.0      # the whole walk, where there are many
PARTS = (("own", "own", "T c: a larger α lets more of its own colour through"),
         ("occlusion", "occlusion", "The colours behind it, of which a larger α hides a share"),
         ("backdrop", "background", "−T_N b / (1 − α): the background, of which a larger α hides a share"),
         ("sum", "∂C/∂α", "The sum of the three"))


class Stepper:
    """`contributor` is where the walk stands: n = at T_N, before the first division."""

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._x: XRay | None = None
        self._step, self._drawn, self._playing, self._at = 0, -1, False, 0.0
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._back = button(ui, "◀", lambda: self._by(-1), "One step back, to what is behind", width=30)
            self._next = button(ui, "▶", lambda: self._by(1), "One step on: divide T by 1 − α of the next in front", width=30)
            self._play = button(ui, "Play", self._toggle, "Walk to the front by itself", width=58)
            self._first = button(ui, "To T_N", lambda: self.go_to(None), "Begin again at the final transmittance", width=58)
            self._count = label(ui, "", Palette.muted, small=True)
        self._formula = label(ui, "", Palette.text, wrap=0)
        dpg.bind_item_font(self._formula, ui.theme.mono)
        self._error = label(ui, "", Palette.muted, small=True, wrap=0)
        self._build_parts()

    def _build_parts(self) -> None:
        ui = self._ui
        self._cells: dict[str, tuple[int, ...]] = {}
        with dpg.table(header_row=False, policy=dpg.mvTable_SizingFixedFit) as table:
            for width in (84, 68, 68, 68):
                dpg.add_table_column(width_fixed=True, init_width_or_weight=ui.px(width))
            for name, text, tip in PARTS:
                with dpg.table_row():
                    with dpg.group():
                        tooltip(ui, label(ui, text, Palette.muted, small=True), tip)
                    self._cells[name] = tuple(int(dpg.add_text("")) for _ in range(3))
                    for cell in self._cells[name]:
                        dpg.bind_item_font(cell, ui.theme.mono)
        dpg.bind_item_theme(table, ui.theme.tight)
        self._gradient = label(ui, "", Palette.text, small=True, wrap=0)

    # ------------------------------------------------------------------------------------------ the walk
    @property
    def contributor(self) -> int:
        return len(self._x.uids) - self._step if self._x is not None else -1

    def show(self, x: XRay, fresh: bool) -> None:
        """Another pixel begins at T_N; the same one at another iteration stays where it is."""
        self._x = x
        if fresh:
            self._step, self._playing = 0, False
        self._step = min(self._step, len(x.uids))
        self._drawn = -1

    def go_to(self, contributor: int | None) -> None:
        self._playing = False
        if self._x is not None:
            self._step = 0 if contributor is None else min(max(len(self._x.uids) - contributor, 0), len(self._x.uids))

    def _by(self, steps: int) -> None:
        self._playing = False
        if self._x is not None:
            self._step = min(max(self._step + steps, 0), len(self._x.uids))

    def _toggle(self) -> None:
        self._playing, self._at = not self._playing, self._ui.actions.clock()
        if self._x is not None and self._playing and self._step == len(self._x.uids):
            self._step = 0

    def update(self, now: float) -> bool:
        """Each frame; whether the walk stands elsewhere than when it was drawn last."""
        if self._playing and self._x is not None:
            n = len(self._x.uids)
            steps = int((now - self._at) / min(PLAY_SECONDS, WALK_SECONDS / max(n, 1)))
            if steps > 0:
                self._at, self._step = now, min(self._step + steps, n)
                self._playing = self._step < n
        relabel(self._play, "Pause" if self._playing else "Play")
        if self._x is None or self._step == self._drawn:
            return False
        self._drawn = self._step
        self._draw(self._x)
        return True

    # ------------------------------------------------------------------------------------------ drawing
    def _draw(self, x: XRay) -> None:
        n, k = len(x.uids), self.contributor
        put(self._count, f"step {self._step} of {n}")
        if k >= n:   # as many lines as at a step, so that the buttons stay where they are
            put(self._formula, f"T_N = {x.forward[-1]:.6e}\n\n")
            put(self._error, "Where forward ended. Each step divides by\n1 − α of the next Gaussian in front." if n else
                "There is nothing to walk through.\n")
            put(self._gradient, "\n\n")
            for cells in self._cells.values():
                for cell in cells:
                    put(cell, f"{formatting.NONE:>8}")
            return
        put(self._formula, f"T = {x.rebuilt[k + 1]:.6e} / (1 − {x.alphas[k]:.6f})\n  = {x.rebuilt[k]:.6e}\n"
                           f"forward {x.forward[k]:.6e}")
        error, largest = (formatting.number(float(e), 2) for e in (x.errors[k], x.errors[k:].max()))
        put(self._error, f"Gaussian {x.uids[k]}, number {k + 1} from the front\nerror {error} of T, largest so far {largest}")
        parts = {"own": x.own[k], "occlusion": x.occlusion[k], "backdrop": x.backdrop[k]}
        parts["sum"] = np.sum(list(parts.values()), axis=0)
        for name, values in parts.items():
            for cell, value in zip(self._cells[name], values):
                put(cell, f"{formatting.number(float(value)):>8}")
        slope, v_alpha, v_opacity = (formatting.number(float(v[k])) for v in (x.slopes, x.v_alphas, x.v_opacities))
        put(self._gradient, f"∂L/∂α = {v_alpha}\n∂α/∂raw = {slope}  ({x.alpha_gradient.replace('_', ' ')})\n"
                            f"so it adds {v_opacity} to ∂L/∂opacity")
