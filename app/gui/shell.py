"""The window itself: context, layout, the loop. Everything that touches Dear PyGui runs in here, on one thread."""

from __future__ import annotations

import copy
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from app.data.scene import SceneError
from app.gui import layout as layouts
from app.gui import preferences as stored
from app.gui.actions import Actions
from app.gui.callbacks import run_jobs
from app.gui.display import icons
from app.gui.headless import Headless
from app.gui.heartbeat import Heartbeat
from app.gui.keyboard import Keyboard
from app.gui.layout import Rect
from app.gui.mouse import Mouse
from app.gui.pacing import HEADLESS_SECONDS, Pacing
from app.gui.panels.alpha_rule import AlphaRulePanel
from app.gui.panels.audit import AuditPanel
from app.gui.panels.base import Asking, Leaving, Panel
from app.gui.panels.branches import BranchesDialog
from app.gui.panels.camera_path import CameraPathPanel
from app.gui.panels.control import ControlPanel
from app.gui.panels.densification import DensificationPanel
from app.gui.panels.gaussian import GaussianPanel
from app.gui.panels.gradient_check import GradientCheckPanel
from app.gui.panels.help import HelpOverlay
from app.gui.panels.hyperparameters import HyperparameterPanel
from app.gui.panels.laboratory import LaboratoryPanel
from app.gui.panels.memory import MemoryPanel
from app.gui.panels.notices import Notices
from app.gui.panels.open_scene import OpenDialog
from app.gui.panels.optimiser import OptimiserPanel
from app.gui.panels.plots import PlotsPanel
from app.gui.panels.quantities import QuantitiesPanel
from app.gui.panels.save import SaveDialog
from app.gui.panels.selection import SelectionPanel
from app.gui.panels.status import StatusLine
from app.gui.panels.timeline import TimelineBar
from app.gui.panels.toolbar import Toolbar
from app.gui.panels.training import TrainingPanel
from app.gui.panels.view import ViewPanel
from app.gui.panels.views import ViewsPanel
from app.gui.panels.xray import XRayPanel
from app.gui.tabs import Tabs
from app.gui.theme import Palette, Theme
from app.gui.tips import Tips
from app.gui.toolkit import dpg
from app.gui.trace import Recorder, Trace
from app.gui.view_model import ViewModel
from app.gui.view_state import ViewState, request_key
from app.gui.viewport import Viewport
from app.gui.widgets import Dialog, Ui
from app.mailbox import Fifo, Latest
from app.messages import Command, Event, InspectRequest, SetOption, Snapshot, ViewRequest

AWAKE_SECONDS = 0.5           # full rate for this long after the last sign of the user
INSPECTOR: tuple[tuple[str, type], ...] = (
    ("control", ControlPanel), ("densify", DensificationPanel), ("numbers", QuantitiesPanel), ("select", SelectionPanel),
    ("gaussian", GaussianPanel), ("xray", XRayPanel), ("alpha", AlphaRulePanel),
    ("lab", LaboratoryPanel), ("check", GradientCheckPanel), ("audit", AuditPanel),
    ("views", ViewsPanel), ("camera", CameraPathPanel), ("options", HyperparameterPanel), ("optimiser", OptimiserPanel))
"""The tabs of the inspector. A new panel is one file and one entry here."""


class Shell:
    """One per process: a second Dear PyGui context is unsafe (G13)."""

    def __init__(self, commands: Fifo[Command], view_requests: Latest[ViewRequest], events: Fifo[Event],
                 snapshots: Latest[Snapshot], inspect_requests: Latest[InspectRequest], *, trace: Trace | None,
                 title: str, preferences_path: Path | None,
                 on_frame: Callable[[Shell], None] | None) -> None:
        self._events, self._snapshots, self._requests = events, snapshots, view_requests
        self._inspect_requests, self._asked = inspect_requests, InspectRequest()
        self._title, self._on_frame = title, on_frame
        self._preferences_path = preferences_path or stored.default_path()
        self.preferences, complaint = stored.load(self._preferences_path)
        self._loaded = copy.deepcopy(self.preferences)
        scale, scale_complaint = stored.scale_from(os.environ, self.preferences)
        self.clock = time.monotonic
        self.model = ViewModel()
        self.view = ViewState(quantity=self.preferences.quantity)
        self.actions = Actions(self.model, self.view, self.preferences, commands.put, self.clock)
        self._trace = Recorder(trace, self.actions.notify)
        self.theme = Theme(scale)
        self.ui = Ui(self.theme, self.preferences, self.model, self.view, self.actions, commands.put, self._set_option,
                     folder=self._preferences_path.parent)
        self._commands = commands
        self._options: dict[str, Any] = {}
        self._seen = self._scene = 0
        self._front = ""             # tab that was seen in the frame before
        self._sent: object = None
        self._touched_at = -1e9
        self._size_read = self._size = (0, 0)
        self._complained: set[str] = set()
        self._heartbeat = Heartbeat(view_requests)
        self.frame_ms = 0.0
        self.frames = 0
        self._pacing = Pacing(self.preferences)
        for text in (complaint, scale_complaint):
            if text:
                self.actions.notify(text, "warning")

    # ------------------------------------------------------------------------------------------ life
    def run(self, on_close: Callable[[], Any]) -> int:
        """Build, loop until closed, take down in the only safe order: engine first, then the context (G14)."""
        try:
            self._open()
            self._loop()
        finally:
            self._heartbeat.stop()
            on_close()
            self._save()
            self._trace.end()
            dpg.destroy_context()
        return 0

    def _open(self) -> None:
        dpg.create_context()
        dpg.configure_app(manual_callback_management=True)
        self.theme.build()
        p = self.preferences
        corner = 0 if sys.platform.startswith("linux") else 60  # there a window manager places it anyway
        dpg.create_viewport(title=self._title, width=max(640, p.width), height=max(480, p.height), min_width=640,
                            min_height=480, vsync=True, x_pos=corner, y_pos=corner, **icons())
        dpg.setup_dearpygui()
        self._build()
        dpg.show_viewport()
        self._heartbeat.start()

    def _loop(self) -> None:
        while dpg.is_dearpygui_running():
            begin = self.clock()
            self._frame(begin)
            work = self.clock() - begin
            self.frame_ms = 1e3 * work
            self.frames += 1
            self._trace.record(begin, self.frame_ms, self.model.snapshot, self.view.mode, moving=self.view.moving(begin),
                               shown_size=self.viewport.picture.size)
            if self._on_frame is not None:
                self._on_frame(self)
            period = HEADLESS_SECONDS if self.headless.on else self._pacing.period(work, self.awake(begin))
            time.sleep(max(0.0, period - (self.clock() - begin)))

    def _frame(self, now: float) -> None:
        if self._heartbeat.beat():
            self._sent = None
        run_jobs(dpg.get_callback_queue(), self._failed)
        self.keyboard.update()
        self._read(now)
        if self.headless.on:
            self._guard(self.headless.update)
            dpg.render_dearpygui_frame()
            return
        self._mouse.follow(now)
        self._apply_size()
        self._send(now)
        panels = self._visible()
        for panel in panels:
            self._guard(panel.update)
        self._guard(self._ask, panels)
        self._guard(self.viewport.update, now)
        self._guard(self.tips.update, now, self.layout)
        dpg.render_dearpygui_frame()
        self.viewport.after_frame()

    def awake(self, now: float) -> bool:
        """Whether someone uses the window right now."""
        return now - self._touched_at < AWAKE_SECONDS or self.view.moving(now)

    def touch(self) -> None:
        self._touched_at = self.clock()

    def _save(self) -> None:
        try:
            said = stored.save(self.preferences, self._preferences_path, self._loaded)
        except SceneError as error:
            said = f"the preferences were not saved: {error}"
        if said:
            print(f"splatscope: {said}", file=sys.stderr)

    # ------------------------------------------------------------------------------------------ engine
    def _read(self, now: float) -> None:
        for event in self._events.drain():
            self.model.apply(event, now)
        self._seen, snapshot = self._snapshots.newer_than(self._seen)
        if snapshot is not None:
            self.model.observe(snapshot)
        if self.model.scene_version != self._scene and self.model.scene is not None:
            self._scene = self.model.scene_version
            scene = self.model.scene
            self.view.open_scene(scene, _direction(self.preferences.scene_up.get(scene.path)))
            if scene.kind != "demo":
                self.preferences.remember_scene(scene.run or scene.path)
            self.arrange()
            dpg.set_viewport_title(f"{Path(scene.path).name} - {self._title}")

    def _set_option(self, path: str, value: Any) -> None:
        self._options[path] = value

    def _send(self, now: float) -> None:
        """The newest value of each option that changed in this frame (G18), and the view if it differs."""
        for path, value in self._options.items():
            self._commands.put(SetOption(path, value))
        self._options.clear()
        request = self.view.request(now, training=self.model.playing, hidden=False, histogram=self._tab() == "densify")
        if request is not None and (key := request_key(request)) != self._sent:
            self._sent = key
            self._requests.put(request)

    def _ask(self, panels: list[Panel]) -> None:
        """What the panels that can be seen want to know, where it is not what they wanted before."""
        questions: dict[str, Any] = {}
        for panel in panels:
            if isinstance(panel, Asking):
                questions |= panel.questions()
        if questions != self._asked.questions:
            self._asked = InspectRequest(questions)
            self._inspect_requests.put(self._asked)

    # ------------------------------------------------------------------------------------------ floating windows
    def dialogs(self) -> tuple[Dialog, ...]:
        return self.open_dialog, self.save_dialog, self.branches, self.help, *self.ui.dialogs

    def _escape(self) -> bool:
        for window in self.dialogs():
            if window.shown:
                window.close()
                return True
        return self.toolbar.escape() or self.notices.escape()

    # ------------------------------------------------------------------------------------------ building
    def _build(self) -> None:
        ui = self.ui
        with dpg.window(no_scrollbar=True, no_scroll_with_mouse=True) as primary:
            pass
        with dpg.theme() as bare, dpg.theme_component(dpg.mvWindowAppItem):
            dpg.add_theme_style(dpg.mvStyleVar_WindowPadding, 0, 0, category=dpg.mvThemeCat_Core)
            # The frame is cleared to the primary window's colour, whatever its alpha, and alpha 0 draws no layer: the
            # background of all panels is free. Under software GL each full-window layer costs milliseconds.
            dpg.add_theme_color(dpg.mvThemeCol_WindowBg, (*Palette.panel[:3], 0), category=dpg.mvThemeCat_Core)
        dpg.bind_item_theme(primary, bare)
        parts = ("top", "left", "strip", "bottom", "right", "status")
        self._children = {name: self._child(int(primary), name) for name in parts}
        self.toolbar = Toolbar(ui)
        self._left: tuple[Panel, ...] = (TrainingPanel(ui), ViewPanel(ui), MemoryPanel(ui))
        self.plots, self.status, self.viewport = PlotsPanel(ui), StatusLine(ui), Viewport(ui)
        self.timeline, self.branches = TimelineBar(ui), BranchesDialog(ui)
        self.timeline.build(self._children["strip"])
        self.timeline.on_branches = self.branches.open
        self.toolbar.build(self._children["top"])
        for panel in self._left:
            panel.build(self._children["left"])
        self.plots.build(self._children["bottom"])
        self.status.build(self._children["status"])
        self.viewport.build(int(primary))
        self._build_inspector()
        self.open_dialog, self.save_dialog = OpenDialog(ui), SaveDialog(ui)
        self.help, self.notices = HelpOverlay(ui), Notices(ui)
        for floating in (self.open_dialog, self.save_dialog, self.branches, self.help, self.notices):
            floating.build(0)
        self.actions.on_save = self.save_dialog.open
        self.actions.on_open, self.actions.on_help = self.open_dialog.open, self.help.toggle
        self.actions.on_escape, self.actions.on_layout, self.actions.on_tab = self._escape, self.arrange, self._show_tab
        self.headless = Headless(ui, int(primary))
        self.headless.build()
        self._gaps = int(dpg.add_draw_layer(parent=primary))
        self._mouse = Mouse(self)
        self.tips = Tips(self.theme, int(primary), lambda: any(window.shown for window in self.dialogs()))
        self.keyboard = Keyboard(ui, self.touch, self.headless.end)
        self.keyboard.build(self._mouse.registry)
        dpg.set_primary_window(primary, True)
        self._size = (self.preferences.width, self.preferences.height)
        self.arrange()

    def _child(self, parent: int, name: str) -> int:
        bar = name in ("top", "status", "strip", "bottom")
        item = int(dpg.add_child_window(parent=parent, border=False, no_scrollbar=bar, no_scroll_with_mouse=bar,
                                        always_use_window_padding=True))
        with dpg.theme() as theme, dpg.theme_component(dpg.mvChildWindow):
            px, pad = self.theme.px, {"top": (8, 8), "status": (8, 4), "bottom": (6, 4), "strip": (6, 5)}.get(name, (10, 8))
            dpg.add_theme_style(dpg.mvStyleVar_WindowPadding, px(pad[0]), px(pad[1]), category=dpg.mvThemeCat_Core)
        dpg.bind_item_theme(item, theme)
        return item

    def _build_inspector(self) -> None:
        self._tabs: dict[int, tuple[str, Panel]] = {}
        self._strip = Tabs(self.ui, self._children["right"])
        self._tab_bar = self._strip.value
        for name, make in INSPECTOR:
            panel: Panel = make(self.ui)
            tab, body = self._strip.add(panel.title)
            panel.build(body)
            self._tabs[tab] = (name, panel)
            if name == self.preferences.inspector_tab:
                dpg.set_value(self._tab_bar, tab)

    # ------------------------------------------------------------------------------------------ layout
    def _apply_size(self) -> None:
        """G23: the size is polled, and applied once two readings agree."""
        size = (dpg.get_viewport_client_width(), dpg.get_viewport_client_height())
        if size != self._size and size == self._size_read and min(size) > 0:
            self._size = size
            self.preferences.width, self.preferences.height = dpg.get_viewport_width(), dpg.get_viewport_height()
            self.arrange()
        self._size_read = size

    def arrange(self) -> None:
        trainable = self.model.scene is not None and self.model.scene.trainable
        self.layout = layout = layouts.compute(*self._size, self.theme.scale, self.preferences, timeline=trainable)
        for name, item in self._children.items():
            rect: Rect = getattr(layout, name)
            shown = rect.width > 0 and rect.height > 0
            dpg.configure_item(item, show=shown, pos=(rect.x, rect.y), width=max(rect.width, 1), height=max(rect.height, 1))
        dpg.delete_item(self._gaps, children_only=True)
        for rect in layout.gaps():
            dpg.draw_rectangle((rect.x, rect.y), (rect.x + rect.width, rect.y + rect.height), fill=Palette.void,
                               color=Palette.clear, thickness=0, parent=self._gaps)
        self.toolbar.layout(layout.top.width)
        self.status.layout(layout.status)
        self.timeline.layout(layout.strip)
        self.plots.layout(layout.bottom.width, layout.bottom.height)
        self.viewport.layout(layout.view)
        self.notices.layout(layout.view)

    def _tab(self) -> str:
        """Name of the inspector tab that can be seen; empty when the inspector is hidden."""
        if not self.preferences.show_inspector:
            return ""
        front = self._strip.update(self.layout.right.width - 2 * self.theme.px(10))
        self.preferences.inspector_tab, _ = self._tabs[front]
        return self.preferences.inspector_tab

    def _show_tab(self, name: str) -> None:
        if not self.preferences.show_inspector:
            self.actions.toggle_inspector()
        dpg.set_value(self._tab_bar, next(tab for tab, (known, _) in self._tabs.items() if known == name))

    def _visible(self) -> list[Panel]:
        """Hidden panels cost nothing."""
        panels: list[Panel] = [self.toolbar, self.status, self.notices]
        if self.layout.left.width:
            panels += self._left
        if self.preferences.show_plots:
            panels += [self.plots, self.timeline] if self.layout.strip.height else [self.plots]
        if self.branches.shown:
            panels.append(self.branches)
        current = self._tab()
        if current != self._front:
            for name, panel in self._tabs.values():
                if name == self._front and isinstance(panel, Leaving):
                    panel.leave()
            self._front = current
        panels += [panel for name, panel in self._tabs.values() if name == current]
        self.status.frame_ms += 0.1 * (self.frame_ms - self.status.frame_ms)
        return panels

    # ------------------------------------------------------------------------------------------ failures
    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - shown to the user
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """A defect of the window itself: said once in the window and with its traceback on stderr; the run goes on."""
        text = f"The window failed at something: {type(error).__name__}: {error}"
        if text not in self._complained:
            self._complained.add(text)
            traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
            self.actions.notify(text, "error")


def _direction(values: list[float] | None) -> np.ndarray | None:
    return None if values is None else np.asarray(values, dtype=np.float64)
