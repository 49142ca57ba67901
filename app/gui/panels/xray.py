"""The X-ray of a pixel: its colour taken apart, who contributes, and the backward walk through them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.gui import formatting
from app.gui.panels.xray_bar import WeightBar
from app.gui.panels.xray_curve import TransmittanceCurve
from app.gui.panels.xray_steps import Stepper
from app.gui.panels.xray_table import ContributorTable
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, paint, put, relabel, show, swatch, tooltip
from app.inspection.questions import XRayQuestion
from app.inspection.results import XRay
from app.messages import Answer

ROWS = (("rendered", "rendered", "The pixel as the renderer that trains draws it"),
        ("composed", "composed", "The same from the rows below: the sum of w c, and T_N times the background"),
        ("difference", "difference", "Rendered minus composed: what rounding in float32 leaves"),
        ("cotangent", "∂L/∂C", "Gradient of the loss with respect to this pixel's colour"))
ROUNDING = 5e-5
"""A larger difference between rendered and composed would be a defect."""


class XRayPanel:
    title = "X-ray"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._answer: Answer | None = None
        self._cells: dict[str, tuple[int, ...]] = {}
        self._swatches: dict[str, int] = {}

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent) as self._empty:
            heading(ui, "No pixel is looked into", first=True)
            self._sentence = label(ui, "", Palette.muted, wrap=0)
        with dpg.group(parent=parent, show=False) as self._body:
            self._title = heading(ui, "", first=True)
            self._where = label(ui, "", Palette.muted, small=True, wrap=0)
            with dpg.group(horizontal=True):
                self._pin = button(ui, "Pin", ui.actions.pin_pixel, "Keep this pixel, wherever the cursor goes  (K, or a "
                                   "middle click on it)", width=70)
                self._hint = label(ui, "", Palette.muted, small=True)
            self._build_values()
            heading(ui, "Weights, front to back")
            self._bar = WeightBar(ui, self._step_to)
            self._summary = label(ui, "", Palette.muted, small=True, wrap=0)
            heading(ui, "Contributors")
            self._table = ContributorTable(ui, self._choose)
            heading(ui, "Backward walk")
            self._stepper = Stepper(ui)
            heading(ui, "Transmittance over depth")
            self._curve = TransmittanceCurve(ui)

    def _build_values(self) -> None:
        ui = self.ui
        with dpg.table(header_row=False, policy=dpg.mvTable_SizingFixedFit) as table:
            for width in (74, 66, 66, 66, 16):
                dpg.add_table_column(width_fixed=True, init_width_or_weight=ui.px(width))
            for name, text, tip in ROWS:
                with dpg.table_row():
                    with dpg.group():
                        item = label(ui, text, Palette.muted, small=True)
                        tooltip(ui, item, tip)
                    cells = [int(dpg.add_text("")) for _ in range(3)]
                    for cell in cells:
                        dpg.bind_item_font(cell, ui.theme.mono)
                    self._cells[name] = tuple(cells)
                    if name in ("rendered", "composed"):
                        self._swatches[name] = swatch(ui)
        dpg.bind_item_theme(table, ui.theme.tight)
        self._loss = label(ui, "", Palette.muted, small=True, wrap=0)

    # ------------------------------------------------------------------------------------------ each frame
    def questions(self) -> Mapping[str, Any]:
        question = self.ui.view.probe.question(self.ui.actions.clock())
        return {} if question is None or self.ui.model.scene is None else {"xray": question}

    def update(self) -> None:
        probe, model = self.ui.view.probe, self.ui.model
        answer = model.snapshot.answers.get("xray")
        known = answer is not None and isinstance(answer.value, XRay)
        show(self._empty, not known)
        show(self._body, known)
        if not known:
            self._answer = None
            put(self._sentence, self._nothing(answer, model.scene is not None, probe.pinned or probe.hovered))
            return
        assert answer is not None
        relabel(self._pin, "Unpin" if probe.pinned is not None else "Pin")
        put(self._hint, "pinned; K or a middle click lets go" if probe.pinned is not None else "follows the cursor; K pins")
        if answer is not self._answer:
            fresh = self._answer is None or self._answer.question != answer.question
            self._answer = answer
            self._show(answer.value, answer.iteration, fresh)
        if self._stepper.update(self.ui.actions.clock()):
            self._mark()

    @staticmethod
    def _nothing(answer: Answer | None, opened: bool, question: XRayQuestion | None) -> str:
        if not opened:
            return "Open a scene first: Ctrl+O."
        if answer is not None and answer.problem:
            return answer.problem
        if question is not None:
            return "The pixel is being taken apart."
        return "Point at the picture: the pixel under the cursor is taken apart here, and K or a middle click pins it."

    # ------------------------------------------------------------------------------------------ showing
    def _show(self, x: XRay, iteration: int, fresh: bool) -> None:
        put(self._title, f"Pixel ({x.x}, {x.y})")
        put(self._where, f"of {x.view or 'the free view'}, {x.width} × {x.height} px, iteration {formatting.count(iteration)}")
        for name, values in (("rendered", x.rendered), ("composed", x.composed), ("cotangent", x.cotangent)):
            for cell, value in zip(self._cells[name], values):
                put(cell, f"{value:8.4f}" if name != "cotangent" else f"{formatting.number(float(value)):>8}")
        for cell, value in zip(self._cells["difference"], x.rendered - x.composed):
            put(cell, f"{formatting.number(float(value), 2):>8}")
            dpg.configure_item(cell, color=Palette.text if abs(value) < ROUNDING else Palette.bad)
        for name, item in self._swatches.items():
            paint(item, getattr(x, name))
        loss = x.loss.replace("_", " + ").upper()
        put(self._loss, f"∂L/∂C is that of the training loss ({loss}) of this photograph." if x.loss else
            "No photograph is seen from here, so ∂L/∂C is a cotangent of ones; [ and ] go to the photographs.")
        put(self._summary, self._summed(x))
        self._bar.show(x)
        self._stepper.show(x, fresh)
        self._curve.show(x)
        self._table.show(x, fresh)
        self._mark()

    @staticmethod
    def _summed(x: XRay) -> str:
        """Four lines that fit, whatever there is to say: wrapping would break numbers at their point, and what stands below
        keeps its place while the cursor moves."""
        if not len(x.uids):
            return "Nothing is blended here: the pixel is the background.\n\n\n"
        many = f"{formatting.count(len(x.uids))} contributor{'s' if len(x.uids) > 1 else ''}"
        hidden = f", {x.hidden} hidden by you" if x.hidden else ""   # the picture leaves them out, training does not
        lines = [f"{many}, {int(x.clamped.sum())} clamped at {x.alpha_max:g}{hidden}",
                 f"the background's share is T_N = {formatting.number(x.transmittance)}"]
        if x.refused is not None:
            r = x.refused
            behind = f", and {formatting.count(r.count - 1)} behind it" if r.count > 1 else ""
            lines += [f"refused: Gaussian {r.uid}{behind};",
                      f"its α {formatting.number(r.alpha)} would leave T = {formatting.number(r.transmittance)}"]
        return "\n".join(lines + [""] * (4 - len(lines)))

    # ------------------------------------------------------------------------------------------ the hand
    def _mark(self) -> None:
        """The contributor where the walk stands, in all three pictures of the pixel."""
        at = self._stepper.contributor
        self._bar.mark(at)
        self._curve.mark(at)
        self._table.mark(at)

    def _step_to(self, contributor: int) -> None:
        self._stepper.go_to(contributor)
        self._mark()

    def _choose(self, contributor: int) -> None:
        """A row is clicked: that Gaussian is selected, and the walk goes to it."""
        if self._answer is not None and contributor < len(self._answer.value.uids):
            self._step_to(contributor)
            self.ui.actions.select_uid(int(self._answer.value.uids[contributor]))
