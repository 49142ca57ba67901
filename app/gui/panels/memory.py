"""Memory by part (M03), so that a growing scene shows what grows."""

from __future__ import annotations

from app.gui import formatting
from app.gui.toolkit import dpg
from app.gui.widgets import Rows, Ui, heading

PARTS = (("rss", "Process", "Resident memory of the whole process"),
         ("timeline", "Timeline", "Moments of the run's past that are kept in memory, within a budget; start with "
          "--timeline_megabytes and a smaller number to lower it"),
         ("parameters", "Parameters", "The raw parameters of all Gaussians"),
         ("adam", "Optimiser", "Adam's two moments of every parameter, and the momentum of SGD where it is used"),
         ("statistics", "Statistics", "What densification has gathered since the last time"),
         ("gradients", "Gradients", "Of the last step, kept to be looked at"),
         ("images", "Images", "Decoded photographs, 8 bit"),
         ("intersections", "Intersections", "Tile lists of the last picture"),
         ("buffers", "Scratch", "Memory that the kernels use again; gradients and intersections may lie in it"))


class MemoryPanel:
    title = "Memory"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui

    def build(self, parent: int) -> None:
        with dpg.group(parent=parent):
            heading(self.ui, "Memory")
            self._rows = Rows(self.ui, 104)
            for name, text, tip in PARTS:
                self._rows.add(name, text, tip)

    def update(self) -> None:
        for name, _, _ in PARTS:
            value = self.ui.model.snapshot.memory.get(name)
            self._rows.put(name, formatting.NONE if value is None else formatting.size(value))
