"""The control of a run: a step in its parts, training until something happens, who gets the time, what was changed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from app.gui import formatting
from app.gui.change_log import written
from app.gui.fields import PACE_FIELDS
from app.gui.panels.step_menu import refusal
from app.gui.preferences import pace_of
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.view_model import MORE_TEXT
from app.gui.widgets import FieldControl, Ui, button, heading, label, put, show, tooltip
from app.messages import RunUntil, SetPace, Step, TakePart
from app.pace import PaceConfig

ROWS = 40
HALF, INNER = 152, 312
PARTS = (
    ("forward", "Forward", "Render the view that comes next and measure its loss. Nothing changes."),
    ("backward", "Backward", "Find the gradients of the next step. They show in heatmaps, panels and the card of a Gaussian; "
                             "the parameters stand still."),
    ("optimiser", "Optimiser", "Move the parameters by the gradients that are known."),
    ("densify", "Densify", "End the step under way, with the densification that the schedule brings, if any. "
                           "Between two steps: make one at once."))
GOALS: dict[str, tuple[str, str, float | None]] = {   # label, unit, first value
    "densify": ("the next densification", "", None), "loss": ("the mean loss is below", "", 0.05),
    "psnr": ("the mean training PSNR is above", "dB", 25.0), "test_psnr": ("the held-out PSNR is above", "dB", 25.0),
    "count": ("there are more Gaussians than", "", 10000.0), "iteration": ("iteration", "", 1000.0),
    "stop": ("it stops, as at a NaN", "", None)}
PACE_NAMES = {"view_share": "time for pictures", "view_rate": "pictures per s", "panel_share": "time for panels",
              "window_fps": "window, in use", "idle_fps": "window, at rest"}
PHASES = {
    "": "Between two steps.",
    "backward": "In step {next}: its gradients are known, the update is pending.",
    "update": "In step {now}: the parameters have moved; what densification does then is pending."}


class ControlPanel:
    title = "Control"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._version = -1
        self._phase: object = None
        self._able: bool | None = None    # whether the goal can be gone for
        self._values = {goal: value for goal, (_, _, value) in GOALS.items() if value is not None}
        self._goal, self._limit, self._count = "densify", 0, 100

    def build(self, parent: int) -> None:
        with dpg.group(parent=parent):
            self._step()
            self._until()
            self._pace()
            self._changes()
        pace = pace_of(self.ui.preferences)
        if pace != PaceConfig():
            self.ui.send(SetPace(pace))

    # ------------------------------------------------------------------------------------------ a step in its parts
    def _step(self) -> None:
        ui = self.ui
        heading(ui, "One step, part by part", first=True)
        self._parts: dict[str, int] = {}
        for pair in (PARTS[:2], PARTS[2:]):
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                for part, text, tip in pair:
                    number = 1 + [name for name, *_ in PARTS].index(part)
                    self._parts[part] = button(ui, f"{number}  {text}", self._on_part, tip, width=HALF, user_data=part)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
            self._whole = button(ui, "Whole step", self.ui.actions.step, "All of a step, or the rest of the one under way  (N)",
                                 width=HALF)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                self._many = button(ui, "Steps:", self._on_steps, "Take so many steps, then pause", width=72)
                self._steps = self._number("100", HALF - 76, self._on_count, "How many; Enter takes them")
        self._where = label(ui, "", Palette.text, wrap=0)
        self._further = button(ui, f"Train {MORE_TEXT} more", ui.actions.train_more, "Raise iterations by so many and train "
                               "on; where schedules follow the length of the run, they move with it", theme=ui.theme.primary)
        show(self._further, False)
        self._forwarded = label(ui, "", Palette.muted, small=True, wrap=0)

    def _number(self, text: str, width: float, callback: Any, tip: str) -> int:
        item = int(dpg.add_input_text(default_value=text, width=self.ui.px(width), on_enter=True, callback=callback))
        self.ui.typing.append(item)
        tooltip(self.ui, item, tip)
        return item

    def _on_part(self, sender: int, value: None, part: Any) -> None:
        self.ui.send(TakePart(part))

    def _on_count(self, sender: int, text: str) -> None:
        self._on_steps()

    def _on_steps(self) -> None:
        count = self._read(self._steps, "Steps", whole=True)
        if count is not None:
            self.ui.send(Step(int(count)))

    def _read(self, item: int, what: str, *, whole: bool = False) -> float | None:
        """The number in a field; a sentence, and None, where there is none."""
        text = str(dpg.get_value(item)).replace(" ", "").replace(",", "").replace("_", "")
        try:
            value = float(text)
            if not abs(value) < 1e15 or (whole and (value < 1 or value != int(value))):
                raise ValueError
        except ValueError:
            kind = "a whole number of at least 1" if whole else "a number"
            self.ui.actions.notify(f"{what}: {text!r} cannot be used; type {kind}.", "warning")
            return None
        return value

    # ------------------------------------------------------------------------------------------ until
    def _until(self) -> None:
        ui = self.ui
        heading(ui, "Train until")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._combo = int(dpg.add_combo([text for text, *_ in GOALS.values()], default_value=GOALS["densify"][0],
                                            width=ui.px(INNER - 84), callback=self._on_goal))
            tooltip(ui, self._combo, "Means are over the latest steps, one for each training view (100 at most); the held-out "
                                     "PSNR is that of the evaluations on the way")
            self._value = self._number("", 52, self._on_typed, "The value to reach; Enter starts")
            self._unit = label(ui, "", Palette.muted)
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            self._go = button(ui, "Train until then", self._on_until, "Train, and pause when it is reached; a notice "
                              "says by which value", width=HALF - 20, theme=ui.theme.primary)
            label(ui, "at most", Palette.muted)
            self._most = self._number("", 62, self._on_typed, "Steps after which it pauses in any case; empty = no limit")
            label(ui, "steps", Palette.muted)
        self._refusal = label(ui, "", Palette.second, small=True, wrap=0)
        self._state = label(ui, "", Palette.muted, small=True, wrap=0)
        self._show_goal()

    def _show_goal(self) -> None:
        _, unit, value = GOALS[self._goal]
        show(self._value, value is not None)
        if value is not None:
            dpg.set_value(self._value, f"{self._values[self._goal]:g}")
        put(self._unit, unit)

    def _on_goal(self, sender: int, text: str) -> None:
        self._goal = next(goal for goal, (shown, *_) in GOALS.items() if shown == text)
        self._show_goal()

    def _on_typed(self, sender: int, text: str) -> None:
        self._on_until()

    def _on_until(self) -> None:
        value, limit = 0.0, 0.0
        if self._goal in self._values:
            read = self._read(self._value, "The value to reach")
            if read is None:
                return
            value = self._values[self._goal] = read
        if str(dpg.get_value(self._most)).strip():
            read = self._read(self._most, "At most", whole=True)
            if read is None:
                return
            limit = read
        self.ui.send(RunUntil(self._goal, value, int(limit)))   # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------ who gets the time
    def _pace(self) -> None:
        ui = self.ui
        heading(ui, "Who gets the time")
        plain = replace(ui, set_option=self._set_pace)
        self._fields = [FieldControl(plain, replace(spec, label=PACE_NAMES[spec.path])) for spec in PACE_FIELDS]
        for control in self._fields:
            control.show_value(getattr(ui.preferences, control.spec.path))
        button(ui, "Train without pictures", ui.actions.headless, "The window gives all its time to training (headless): no "
               "pictures, no panels. Any key or click brings it back.", width=-1)

    def _set_pace(self, name: str, value: Any) -> None:
        ui = self.ui
        before = pace_of(ui.preferences)
        setattr(ui.preferences, name, float(value))
        if pace_of(ui.preferences) != before:
            ui.send(SetPace(pace_of(ui.preferences)))
        for control in self._fields:   # marks and the button back to the default
            if control.spec.path == name:
                control.show_value(float(value))

    # ------------------------------------------------------------------------------------------ what was changed
    def _changes(self) -> None:
        ui = self.ui
        heading(ui, "Options changed in this run")
        self._none = label(ui, "None yet. A change is a thin green line in the plots, and one line here.", Palette.muted,
                           small=True, wrap=0)
        self._rows: list[tuple[int, tuple[int, ...]]] = []
        with dpg.table(header_row=True, policy=dpg.mvTable_SizingStretchProp, borders_innerH=True, row_background=True,
                       scrollY=True, height=ui.px(150), freeze_rows=1) as table:
            for text, weight in (("after", 0.8), ("option", 1.8), ("was", 1.0), ("is", 1.0)):
                dpg.add_table_column(label=text, init_width_or_weight=weight)
            for _ in range(ROWS):
                with dpg.table_row(show=False) as row:
                    self._rows.append((int(row), tuple(int(dpg.add_text("")) for _ in range(4))))
        self._table = int(table)
        dpg.bind_item_font(table, ui.theme.small)

    # ------------------------------------------------------------------------------------------ showing
    def update(self) -> None:
        model = self.ui.model
        steering, iteration = model.snapshot.steering, model.snapshot.iteration
        key = (steering.phase, iteration, model.can_train, model.playing, model.at_end, model.snapshot.iterations)
        if key != self._phase:
            self._phase = key
            self._show_phase(steering.phase, iteration)
        found = model.forwarded if steering.forwarded else None
        show(self._forwarded, found is not None)
        if found is not None:
            put(self._forwarded, f"Forward of step {formatting.count(found.iteration)}, {found.view}:\n"
                f"loss {formatting.number(found.loss, 4)}, {formatting.decibel(found.psnr)}, "
                f"SSIM {formatting.number(found.ssim)}")
        means = "Means are known after one step for each training view." if math.isnan(steering.mean_loss) else (
            f"Mean of the latest steps: loss {formatting.number(steering.mean_loss, 4)}, "
                 f"{formatting.decibel(steering.mean_psnr)}")
        why = refusal(model, RunUntil(self._goal)) if model.can_train else ""   # type: ignore[arg-type]
        put(self._refusal, formatting.spaced(why))
        show(self._refusal, bool(why))
        if (able := model.can_train and not why) is not self._able:
            self._able = able
            dpg.configure_item(self._go, enabled=able)
            dpg.bind_item_theme(self._go, self.ui.theme.primary if able else 0)
        put(self._state, f"Training {formatting.spaced(steering.goal)}.\n{means}" if steering.goal else means)
        if model.options.version != self._version:
            self._version = model.options.version
            self._show_changes()

    def _show_phase(self, phase: str, iteration: int) -> None:
        model, theme = self.ui.model, self.ui.theme
        count = formatting.count
        text = PHASES[phase].format(now=count(iteration), next=count(iteration + 1))
        text = "Training." if model.playing and not phase else text if model.can_train else "No scene to train."
        put(self._where, model.end_text or text)
        ready = {"forward": True, "backward": phase != "backward", "optimiser": phase == "backward",
                 "densify": phase != "backward"}
        follows = {"": "backward", "backward": "optimiser", "update": "densify"}[phase]
        for part, item in self._parts.items():
            able = model.can_train and (ready[part] or model.playing) and (part == "densify" or not model.at_end)
            dpg.configure_item(item, enabled=able)
            next_one = phase and part == follows and not model.playing
            dpg.bind_item_theme(item, theme.primary if next_one and able else 0)

        show(self._further, model.at_end)
        for item in (self._whole, self._many):
            dpg.configure_item(item, enabled=model.can_train and not model.at_end)

    def _show_changes(self) -> None:
        changes = self.ui.model.options.changes
        show(self._none, not changes)
        show(self._table, bool(changes))
        newest = changes[::-1][:ROWS]
        for index, (row, cells) in enumerate(self._rows):
            shown = index < len(newest)
            show(row, shown)
            if shown:
                change = newest[index]
                texts = (formatting.count(change.iteration), change.name + (f"\n{change.source}" if change.source else ""),
                         written(change.old), written(change.new))
                for cell, text in zip(cells, texts, strict=True):
                    put(cell, text)
