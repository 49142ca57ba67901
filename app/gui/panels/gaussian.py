"""The card of the selected Gaussian: the chain from the loss to its parameters, and these raw and activated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gui import formatting
from app.gui.panels.chain import ChainView
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, forget, heading, label, put, show
from app.inspection.questions import ChainQuestion, Sight
from app.inspection.results import Chain
from app.messages import GaussianReport

LONG = 12  # values; longer arrays (higher SH bands) show their norm per row


class GaussianPanel:
    title = "Gaussian"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._shape: object = None
        self._report: GaussianReport | None = None
        self._alone = True   # without what the instrument found
        self._values: dict[tuple[str, str], int] = {}
        self._chain = ChainView(ui)

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent) as self._empty:
            heading(ui, "No Gaussian is selected", first=True)
            label(ui, "Click on the picture: the Gaussian with the largest weight at that pixel is shown here, with its "
                      "parameters and their gradients, and stays selected while training goes on.",
                  Palette.muted, wrap=0)
        with dpg.group(parent=parent, show=False) as self._card:
            self._title = heading(ui, "", first=True)
            self._lineage = label(ui, "", Palette.muted, small=True)
            with dpg.group(horizontal=True):
                button(ui, "Focus", ui.actions.focus, "Bring it to the middle of the picture  (F)", width=70)
                button(ui, "Clear", ui.actions.clear_selection, "Select nothing  (Esc)", width=70)
            self._chain.build()
            self._body = int(dpg.add_group())

    def questions(self) -> Mapping[str, Any]:
        """Before the first step, and where nobody trains, values depend on the camera: it is asked along."""
        report, frame, model = self.ui.model.snapshot.selected, self.ui.model.frame, self.ui.model
        if report is None:
            return {}
        still = frame is not None and (not model.can_train or model.snapshot.iteration == 0)
        return {"chain": ChainQuestion(report.uid, Sight.of(frame.camera) if still and frame is not None else None)}

    def update(self) -> None:
        report, answer = self.ui.model.snapshot.selected, self.ui.model.snapshot.answers.get("chain")
        show(self._empty, report is None)
        show(self._card, report is not None)
        if report is None:
            return
        chain = answer.value if answer is not None and isinstance(answer.value, Chain) else None
        chain = chain if chain is not None and chain.uid == report.uid else None
        self._chain.show(chain)
        if report is self._report and (chain is None) is self._alone:
            return
        self._report, self._alone = report, chain is None
        put(self._title, f"Gaussian {report.uid}")
        parent = f"born from Gaussian {report.parent}" if report.parent is not None else "an initial point"
        put(self._lineage, f"row {formatting.count(report.index)} now, {parent}")
        sections = self._sections(report, self._alone)
        shape = tuple((title, tuple(rows)) for title, rows in sections.items())
        if shape != self._shape:
            self._shape = shape
            self._rebuild(sections)
        for title, rows in sections.items():
            for name, text in rows.items():
                put(self._values[title, name], text)

    @staticmethod
    def _sections(report: GaussianReport, alone: bool) -> dict[str, dict[str, str]]:
        """With the chain above, gradients are not said twice."""
        return {
            "Activated, now": {k: _written(v) for k, v in report.activated.items()},
            "Raw parameters, now": {k: _written(v) for k, v in report.parameters.items()},
            "Gradients of the last step": {f"∂L/∂{k.removeprefix('v_')}": _written(v)
                                           for k, v in report.gradients.items() if alone},
            "Statistics": {k.replace("_", " "): formatting.number(float(v), 4) for k, v in report.statistics.items()},
        }

    def _rebuild(self, sections: dict[str, dict[str, str]]) -> None:
        """Items exist per row; they are made again only when the set of rows changes. G22: integer ids, no tags."""
        ui = self.ui
        dpg.delete_item(self._body, children_only=True)
        forget(*self._values.values())
        self._values = {}
        for title, rows in sections.items():
            if not rows:
                continue
            with dpg.group(parent=self._body):
                heading(ui, title)
                for name in rows:
                    with dpg.group(horizontal=True, xoffset=ui.px(150 if title == "Statistics" else 116)):
                        item = int(dpg.add_text(name, color=Palette.muted))
                        dpg.bind_item_font(item, ui.theme.small)
                        value = int(dpg.add_text(""))
                        dpg.bind_item_font(value, ui.theme.mono)
                    self._values[title, name] = value


def _written(values: np.ndarray) -> str:
    """Short arrays value by value, four to a line; long ones as the norm of each SH band or row."""
    array = np.asarray(values, dtype=np.float64)
    flat = array.reshape(-1)
    if flat.size > LONG:
        rows = array.reshape(array.shape[-2] if array.ndim > 1 else -1, -1)
        return "\n".join(f"band {band}  |{formatting.number(float(np.linalg.norm(rows[lo:hi])))}|"
                         for band, (lo, hi) in _bands(len(rows)).items())
    texts = [f"{formatting.number(float(v)):>9}" for v in flat]
    per_line = 3 if flat.size % 3 == 0 else 2 if flat.size == 4 else 4
    return "\n".join(" ".join(texts[i:i + per_line]) for i in range(0, len(texts), per_line)) or formatting.NONE


def _bands(rows: int) -> dict[int, tuple[int, int]]:
    """Row ranges of the SH bands 1.. in shN [K-1,3]; one range where the row count fits no degree."""
    ends = {3: 1, 8: 2, 15: 3}
    if rows not in ends:
        return {0: (0, rows)}
    return {band: (band * band - 1, (band + 1) ** 2 - 1) for band in range(1, ends[rows] + 1)}
