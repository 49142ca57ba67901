"""The loss of every scene view, sortable; a click goes to the view, a button writes a CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.data.atomic import write_atomic
from app.data.scene import SceneError
from app.data.user_files import free_name
from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show
from app.inspection.losses import as_csv
from app.messages import MeasureViews, ViewsMeasured

COLUMNS: tuple[tuple[str, str, float], ...] = (
    ("view", "name", 2.2), ("loss", "loss", 1.0), ("PSNR", "psnr", 0.9), ("SSIM", "ssim", 0.9))
LIMIT = 2000   # rows


class ViewsPanel:
    title = "Views"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._found: ViewsMeasured | None = None
        self._sort = ("loss", True)   # largest first: the worst views are what one looks for

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Loss of every view", first=True)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                button(ui, "Measure now", self._on_measure, "Loss, PSNR and SSIM of all views, training and held-out; training "
                       "waits meanwhile")
                self._csv = button(ui, "Save as CSV", self._on_csv,
                                   "All rows and columns, into the folder that the program was started in")
            self._working = label(ui, "", Palette.accent, small=True, wrap=0)
            self._text = label(ui, "Nothing is measured yet.", Palette.muted, small=True, wrap=0)
            with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True, row_background=True,
                           sortable=True, callback=self._on_sort, scrollY=True, height=-1, freeze_rows=1, show=False,
                           clipper=True) as table:
                for text, _, share in COLUMNS:
                    dpg.add_table_column(label=text, init_width_or_weight=share, prefer_sort_descending=True,
                                         default_sort=text == "loss")
            self._table = int(table)
            dpg.bind_item_font(table, ui.theme.small)
        dpg.configure_item(self._csv, enabled=False)

    def update(self) -> None:
        working = self.ui.model.job_text("losses")
        put(self._working, working)
        show(self._working, bool(working))
        if self.ui.model.measured is not self._found:
            self._found = self.ui.model.measured
            show(self._table, self._found is not None)
            dpg.configure_item(self._csv, enabled=self._found is not None)
            self._fill()

    def _fill(self) -> None:
        dpg.delete_item(self._table, children_only=True, slot=1)
        if self._found is None:
            put(self._text, "Nothing is measured yet.")
            return
        field, largest_first = self._sort
        rows = sorted(self._found.views, key=lambda row: getattr(row, field), reverse=largest_first)
        held = sum(row.split == "test" for row in rows)
        put(self._text, f"Iteration {formatting.count(self._found.iteration)}: {len(rows)} views, {held} of them held out "
                        "(in amber).")
        for row in rows[:LIMIT]:
            with dpg.table_row(parent=self._table):
                with dpg.group(horizontal=True, horizontal_spacing=0):   # a selectable's own text stands higher than texts
                    dpg.add_selectable(span_columns=True, callback=self._on_row, user_data=row.index)
                    dpg.add_text(row.name, color=Palette.second if row.split == "test" else Palette.text)
                for text in (formatting.number(row.loss, 4), f"{row.psnr:.2f}", f"{row.ssim:.4f}"):
                    dpg.add_text(text)

    # ------------------------------------------------------------------------------------------ the user
    def _on_measure(self) -> None:
        self.ui.send(MeasureViews())

    def _on_sort(self, sender: int, specs: Any) -> None:
        if not specs:
            return
        column, direction = specs[0]
        columns = dpg.get_item_children(self._table, 0)
        place = [int(c) for c in columns].index(int(column))  # type: ignore[union-attr]
        self._sort = (COLUMNS[place][1], direction < 0)
        self._fill()

    def _on_row(self, sender: int, on: bool, index: int) -> None:
        dpg.set_value(sender, False)
        self.ui.view.go_to(index)

    def _on_csv(self) -> None:
        if self._found is None:
            return
        scene = self.ui.model.scene
        name = Path(scene.path).stem if scene is not None else "scene"
        path = free_name(Path.cwd() / f"{name}_views_{self._found.iteration}.csv")   # nobody typed it: nothing is replaced
        try:
            write_atomic(path, lambda stream: stream.write(as_csv(self._found.iteration, self._found.views)))  # type: ignore
        except SceneError as error:
            self.ui.actions.notify(str(error), "error")
        else:
            self.ui.actions.notify(f"Saved {path.name} in {path.parent}.")
