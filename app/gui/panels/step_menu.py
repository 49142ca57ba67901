"""The small menu beside Step: the other ways to go on, each as in tab Control."""

from __future__ import annotations

from app.gui.toolkit import dpg
from app.gui.view_model import ViewModel
from app.gui.widgets import Ui, button, tooltip
from app.messages import Command, RunUntil, Step, TakePart

ENTRIES: tuple[tuple[str, Command | None, str], ...] = (
    ("Forward only", TakePart("forward"), "Measure the view that comes next; nothing changes"),
    ("Backward only", TakePart("backward"), "Find the gradients of the next step; the parameters stand still"),
    ("Optimiser only", TakePart("optimiser"), "Move the parameters by the gradients that are known"),
    ("Densify only", TakePart("densify"), "End the step under way; where nothing is due, densify at once"),
    ("10 steps", Step(10), "Then pause"),
    ("100 steps", Step(100), "Then pause"),
    ("Until the next densification", RunUntil("densify"), "Then pause"),
    ("More …", None, "The tab Control: any number of steps, until a loss, a PSNR, a count, an iteration"))


class StepMenu:
    WIDTH = 22

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._items: list[int] = []
        self._refused: list[str] = []

    def build(self) -> int:
        """The button, in the row that is being built."""
        self.button = button(self.ui, "▾", self._on_open, "Parts of a step, more steps, until something happens",
                             width=self.WIDTH)
        return self.button

    def build_menu(self) -> None:
        with dpg.window(show=False, popup=True, no_move=True, autosize=True, no_saved_settings=True) as menu:
            for index, (text, _, tip) in enumerate(ENTRIES):
                self._items.append(int(dpg.add_menu_item(label=text, callback=self._on_entry, user_data=index)))
                tooltip(self.ui, self._items[-1], tip)
        self.menu = int(menu)

    def update(self) -> None:
        """Grey what cannot act now, and say why."""
        model = self.ui.model
        refused = [refusal(model, command) for _, command, _ in ENTRIES]
        if refused == self._refused:
            return
        self._refused = refused
        for item, why, (_, _, tip) in zip(self._items, refused, ENTRIES, strict=True):
            dpg.configure_item(item, enabled=not why)
            tooltip(self.ui, item, why or tip)

    def _on_open(self) -> None:
        x, y = dpg.get_item_rect_min(self.button)
        dpg.configure_item(self.menu, pos=(x, y + self.ui.px(32)), show=True)

    def _on_entry(self, sender: int, value: object, index: int) -> None:
        command = ENTRIES[index][1]
        if command is None:
            self.ui.actions.on_tab("control")
        else:
            self.ui.send(command)


def refusal(model: ViewModel, command: Command | None) -> str:
    """Why a way to go on is not open now; empty where it is."""
    if isinstance(command, RunUntil) and command.goal == "densify" and model.snapshot.steering.none_due:
        return model.snapshot.steering.none_due
    trains = isinstance(command, (Step, RunUntil)) or (isinstance(command, TakePart) and command.part != "densify")
    return model.end_text if trains else ""
