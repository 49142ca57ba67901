"""Everything a key or a button can do, once: the table below is the keyboard, the help page and the tooltips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.gui import camera_controls as controls
from app.gui import looking_back
from app.gui.preferences import Preferences
from app.gui.tools import BRUSH, TOOLS
from app.gui.view_model import MORE, ViewModel
from app.gui.view_state import ViewState
from app.messages import (
    MODES,
    CancelJob,
    Command,
    Evaluate,
    OpenScene,
    Operate,
    Pause,
    Play,
    Redo,
    Replay,
    Reset,
    Select,
    SelectHow,
    SelectMore,
    SelectRegion,
    SetBackend,
    SetOption,
    Step,
    Undo,
    ViewMode,
)
from render.types import Camera


@dataclass(frozen=True)
class Shortcut:
    key: str          # as dpg.mvKey_<key>
    action: str       # name of a method of Actions
    shown: str
    help: str
    ctrl: bool = False
    argument: str | None = None


SHORTCUTS: tuple[Shortcut, ...] = (
    Shortcut("Spacebar", "toggle_play", "Space", "Train or pause"),
    Shortcut("N", "step", "N", "One training step"),
    Shortcut("O", "open", "Ctrl+O", "Open a scene", ctrl=True),
    Shortcut("S", "save", "Ctrl+S", "Save a PLY, or this view as a PNG", ctrl=True),
    Shortcut("E", "evaluate", "Ctrl+E", "Measure the held-out views", ctrl=True),
    Shortcut("O", "toggle_error", "O", "Error map on and off"),
    Shortcut("G", "toggle_truth", "G", "Ground truth on and off"),
    *(Shortcut(mode.key, "set_mode", mode.key, mode.label, argument=mode.name) for mode in MODES.values()),
    Shortcut("Open_Brace", "previous_view", "[", "Previous scene view"),
    Shortcut("Close_Brace", "next_view", "]", "Next scene view"),
    Shortcut("F", "focus", "F", "Focus the selection, else the scene"),
    Shortcut("K", "pin_pixel", "K", "Pin the pixel under the cursor for the X-ray, or let it go"),
    *(Shortcut(tool.key, "set_tool", tool.key, "Turn the camera, select by clicks" if tool.name == "navigate" else
               f"Select by {tool.label.lower()}",
               argument=tool.name) for tool in TOOLS.values()),
    Shortcut("Comma", "smaller_brush", ", / .", "Brush smaller, larger"),
    Shortcut("Period", "larger_brush", "", ""),
    Shortcut("A", "select_more", "Ctrl+A", "Select all", ctrl=True, argument="all"),
    Shortcut("I", "select_more", "Ctrl+I", "Invert the selection", ctrl=True, argument="invert"),
    Shortcut("Delete", "operate", "Del", "Delete the selected", argument="delete"),
    Shortcut("Z", "undo", "Ctrl+Z", "Undo", ctrl=True),
    Shortcut("Y", "redo", "Ctrl+Y", "Redo", ctrl=True),
    Shortcut("Left", "earlier_moment", "← / →", "Earlier, later moment of the run"),
    Shortcut("Right", "later_moment", "", ""),
    Shortcut("Home", "look_first", "Home", "The first moment kept"),
    Shortcut("End", "look_now", "End", "Back to now"),
    Shortcut("M", "compare_moments", "M", "Compare the moment with now"),
    Shortcut("U", "set_up", "U", "Take this view as upright"),
    Shortcut("L", "level", "L", "Take the tilt out of the camera"),
    Shortcut("C", "toggle_frusta", "C", "Camera frusta on and off"),
    Shortcut("X", "toggle_axes", "X", "World axes on and off"),
    Shortcut("I", "toggle_inspector", "I", "Inspector on and off"),
    Shortcut("P", "toggle_plots", "P", "Plots on and off"),
    Shortcut("H", "toggle_help", "H, F1", "This page"),
    Shortcut("F1", "toggle_help", "", ""),
    Shortcut("Escape", "escape", "Esc", "Close, put the tool away, clear the selection"),
)
MOUSE: tuple[tuple[str, str], ...] = (
    ("Left drag", "Orbit around the focus"),
    ("Shift + left drag, middle drag", "Pan"),
    ("Right drag", "Look around"),
    ("Wheel", "Nearer, farther"),
    ("W A S D, Q E", "Fly; with Shift faster"),
    ("Click", "Select the Gaussian of largest weight"),
    ("Alt + click", "The next one behind it"),
    ("Shift, Ctrl + click or stroke", "Add to the selection, take away"),
    ("Middle click", "Pin the pixel: X-ray"),
)


class Actions:
    """Methods named in SHORTCUTS. Windows (help, open) register what shows them; nothing here draws."""

    def __init__(self, model: ViewModel, view: ViewState, preferences: Preferences, send: Callable[[Command], None],
                 clock: Callable[[], float]) -> None:
        self.model, self.view, self.preferences, self._send, self.clock = model, view, preferences, send, clock
        self.on_open: Callable[[], None] = _nothing
        self.on_save: Callable[[], None] = _nothing
        self.on_help: Callable[[], None] = _nothing
        self.on_escape: Callable[[], bool] = _refuse   # True when something was closed
        self.on_layout: Callable[[], None] = _nothing
        self.on_headless: Callable[[], None] = _nothing
        self.on_tab: Callable[[str], None] = _ignore   # shows a tab of the inspector

    def notify(self, text: str, level: str = "info") -> None:
        self.model.notify(text, level, self.clock())

    # ------------------------------------------------------------------------------------------ training
    def toggle_play(self) -> None:
        if not self.model.can_train:
            return
        if self.model.at_end:
            self.notify(f"{self.model.end_text} The button is above, at the left.", "warning")
            return
        self._send(Pause() if self.model.playing else Play())

    def train_more(self) -> None:
        """At the end of a run: more iterations, and on."""
        if self.model.at_end:
            self._send(SetOption("iterations", self.model.snapshot.iterations + MORE))
            self._send(Play())

    def play_button(self) -> None:
        """The button, which says what it does."""
        (self.train_more if self.model.at_end else self.toggle_play)()

    def step(self) -> None:
        if self.model.at_end:
            self.notify(self.model.end_text, "warning")
        elif self.model.can_train:
            self._send(Step(1))

    def reset(self) -> None:
        if self.model.can_train:
            self._send(Reset())

    def evaluate(self) -> None:
        if self.model.can_train:
            self._send(Evaluate())

    def cancel(self) -> None:
        self._send(CancelJob())

    def set_backend(self, name: str) -> None:
        self._send(SetBackend(name))

    def open(self) -> None:
        self.on_open()

    def save(self) -> None:
        self.on_save()

    def open_path(self, path: str) -> None:
        self._send(OpenScene(path))

    # ------------------------------------------------------------------------------------------ view
    def set_mode(self, mode: ViewMode) -> None:
        self._tell(self.view.set_mode(mode))

    def toggle_error(self) -> None:
        self._tell(self.view.toggle_mode("error"))

    def toggle_truth(self) -> None:
        self._tell(self.view.toggle_mode("truth"))

    def toggle_candidates(self) -> None:
        self._tell(self.view.toggle_mode("candidates"))

    # ------------------------------------------------------------------------------------------ the past
    def earlier_moment(self) -> None:
        self._step_moment(-1)

    def later_moment(self) -> None:
        self._step_moment(1)

    def _step_moment(self, step: int) -> None:
        snapshot = self.model.snapshot
        self.view.look_at(looking_back.stepped(snapshot.timeline, snapshot.iteration, self.view.moment, step))

    def look_first(self) -> None:
        snapshot = self.model.snapshot
        here = looking_back.place(snapshot.timeline, snapshot.iteration, self.view.moment)
        found = looking_back.kept(snapshot.timeline, here.branch)
        if found:
            self.view.look_at(looking_back.at(snapshot.timeline, here.branch, found[0], snapshot.iteration))

    def look_now(self) -> None:
        self.view.look_at(None)
        if self.view.comparing and self.view.beside is not None and self.view.beside.moment is None:
            self.view.stop_comparing()   # now beside now

    def replay_moments(self) -> None:
        """Reach exactly what is looked at, where it is not kept."""
        for moment in self.view.moments():
            if looking_back.steps_to(self.model.snapshot.timeline, moment):
                self._send(Replay(moment))

    def compare_moments(self) -> None:
        """On: this moment, or the one before now, beside now; and off again."""
        snapshot = self.model.snapshot
        if self.view.comparing:
            self.view.stop_comparing()
            return
        if self.view.moment is None:
            self._step_moment(-1)
        if self.view.moment is None:
            self.notify("There is no earlier moment to compare with yet.", "warning")
        elif snapshot.timeline.branches:
            self.view.compare_with(None)

    def previous_view(self) -> None:
        self.view.step_view(-1)

    def next_view(self) -> None:
        self.view.step_view(1)

    def focus(self) -> None:
        rig, selected = self.view.rig, self.model.snapshot.selected
        if rig is None:
            return
        if selected is not None and "means" in selected.parameters:
            point = np.asarray(selected.parameters["means"], dtype=np.float64).reshape(-1)[:3]
            scales = selected.activated.get("scales")
            near = 12.0 * float(np.max(scales)) if scales is not None else rig.distance
            distance = min(rig.distance, max(near, 0.15 * rig.extent))
            self.view.move(controls.focus_on(rig, point, distance), self.clock())
        else:
            self.view.move(controls.focus_on(rig, self.view.center, self.view.overview_distance()), self.clock())

    def set_up(self) -> None:
        up = self.view.set_up_from_view(self.clock())
        if up is None or self.model.scene is None:
            return
        self.preferences.scene_up[self.model.scene.path] = [float(x) for x in up]
        self.notify("Up is now the up of this picture; it is remembered for this scene.")

    def level(self) -> None:
        if self.view.rig is not None:
            self.view.move(controls.level(self.view.rig), self.clock())

    def select_at(self, camera: object, x: float, y: float, how: SelectHow = "replace", cycle: bool = False) -> None:
        self._send(Select(camera=camera, x=x, y=y, how=how, cycle=cycle))  # type: ignore[arg-type]

    def select_uid(self, uid: int, how: SelectHow = "replace") -> None:
        self._send(Select(uid=uid, how=how))

    def select_region(self, camera: Camera, path: np.ndarray, radius: float | None, how: SelectHow) -> None:
        self._send(SelectRegion(camera, path, radius, how))

    def select_more(self, how: Any) -> None:
        self._send(SelectMore(how))

    def operate(self, action: Any) -> None:
        if self.model.scene is not None:
            self._send(Operate(action))

    def undo(self) -> None:
        self._send(Undo())

    def redo(self) -> None:
        self._send(Redo())

    def set_tool(self, name: str) -> None:
        self.view.tool = name

    def smaller_brush(self) -> None:
        self.view.brush = max(BRUSH[0], self.view.brush / 1.25)

    def larger_brush(self) -> None:
        self.view.brush = min(BRUSH[1], self.view.brush * 1.25)

    def clear_selection(self) -> None:
        self._send(Select())

    def pin_pixel(self) -> None:
        if self.view.probe.toggle():
            self.on_tab("xray")

    # ------------------------------------------------------------------------------------------ window
    def toggle_frusta(self) -> None:
        self.preferences.frusta = not self.preferences.frusta

    def toggle_axes(self) -> None:
        self.preferences.axes = not self.preferences.axes

    def toggle_inspector(self) -> None:
        self.preferences.show_inspector = not self.preferences.show_inspector
        self.on_layout()

    def headless(self) -> None:
        self.on_headless()

    def toggle_plots(self) -> None:
        self.preferences.show_plots = not self.preferences.show_plots
        self.on_layout()

    def toggle_help(self) -> None:
        self.on_help()

    def escape(self) -> None:
        snapshot = self.model.snapshot
        if self.on_escape():
            return
        if self.view.tool != "navigate":
            self.view.tool = "navigate"
        elif snapshot.selected is not None or snapshot.selection.selected:
            self.clear_selection()

    def _tell(self, sentence: str | None) -> None:
        if sentence:
            self.notify(sentence, "warning")


def _nothing() -> None:
    pass


def _ignore(name: str) -> None:
    pass


def _refuse() -> bool:
    return False
