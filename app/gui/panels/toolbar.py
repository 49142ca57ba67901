"""The bar on top: transport, progress, the figures that are always shown, and the doors to the rest."""

from __future__ import annotations

import math

from app.gui import formatting
from app.gui.panels.step_menu import StepMenu
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.view_model import MORE_TEXT
from app.gui.widgets import Ui, button, label, put, relabel, text_width, tooltip

BACKEND_TIP = "What renders and trains, and where. Click to choose."
BACKEND_HELP = {
    "auto": "The fastest that works here.", "cuda": "Kernels on the NVIDIA GPU.",
    "cpu": "Compiled SIMD kernels on the processor.", "reference": "Plain PyTorch: slow, and the definition of right."}

PLAY_TIP = "Train or pause  (Space)"
STEP_TIP = "One training step, or the rest of the one under way, then pause  (N)"
BAR_HEIGHT, MIN_BAR, SHORT_BACKEND = 28, 78, 60


class Toolbar:
    title = "Toolbar"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._width = -1
        self._can: object = None
        self._short = False          # whether the backend is shown without its device
        self._told: tuple[str, str, bool] | None = None
        self._colored = ""
        self._bar_width = 0
        self._bar_key: object = None

    def build(self, parent: int) -> None:
        ui, act = self.ui, self.ui.actions
        with dpg.group(horizontal=True, parent=parent, horizontal_spacing=ui.px(6)):
            self._play = button(ui, "▶  Train", act.play_button, PLAY_TIP, width=92, theme=ui.theme.primary)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(1)):
                self._step = button(ui, "Step", act.step, STEP_TIP, width=50)
                self._steps = StepMenu(ui)
                self._more = self._steps.build()
            self._reset = button(ui, "Reset", self._ask_reset, "Back to iteration 0 of the same scene", width=56)
            dpg.add_spacer(width=ui.px(2))
            with dpg.group() as bar:
                self._bar = int(dpg.add_drawlist(ui.px(200), ui.px(BAR_HEIGHT)))
        for item in (self._play, self._step, self._more, self._reset):
            dpg.configure_item(item, height=ui.px(28))
        tooltip(ui, int(bar), "Iteration of all iterations, and the time left at the present rate")
        self._figures(parent)
        self._doors(parent)
        self._confirm()
        self._steps.build_menu()

    def _figures(self, parent: int) -> None:
        ui = self.ui
        self._columns: list[tuple[int, int]] = []
        self._values: dict[str, int] = {}
        figures = (("rate", "Speed", "Training steps per second, smoothed", 76),
                   ("gaussians", "Gaussians", "How many Gaussians there are now; the cap is in the training panel", 80),
                   ("memory", "Memory", "Resident memory of this process; its parts are listed at the left", 74),
                   ("backend", "Backend", BACKEND_TIP, 150))
        for name, text, tip, width in figures:
            with dpg.group(parent=parent) as column:
                label(ui, text, Palette.faint, small=True)
                value = int(dpg.add_text(formatting.NONE))
            dpg.bind_item_theme(column, ui.theme.tight)
            tooltip(ui, int(column), tip)
            self._columns.append((int(column), width))
            self._values[name] = value
        with dpg.window(show=False, popup=True, no_move=True, autosize=True, no_saved_settings=True) as menu:
            pass
        self._offered: tuple[str, ...] = ()
        self._menu = int(menu)
        with dpg.item_handler_registry() as clicks:
            dpg.add_item_clicked_handler(callback=self._on_menu)
        dpg.bind_item_handler_registry(self._values["backend"], clicks)

    def _doors(self, parent: int) -> None:
        ui, act = self.ui, self.ui.actions
        with dpg.group(horizontal=True, parent=parent, horizontal_spacing=ui.px(4)) as doors:
            for text, callback, tip, width in (
                    ("Open", act.open, "Open a scene folder, a run or a PLY  (Ctrl+O)", 54),
                    ("Save", act.save, "Save the Gaussians as a PLY  (Ctrl+S)", 50),
                    ("Evaluate", act.evaluate, "Measure PSNR and SSIM on the held-out views now  (Ctrl+E)", 74),
                    ("?", act.toggle_help, "Keys, mouse and settings  (H)", 28)):
                item = button(ui, text, callback, tip, width=width)
                dpg.configure_item(item, height=ui.px(28))
        self._doors_group, self._doors_width = int(doors), 54 + 50 + 74 + 28 + 12

    def layout(self, width: int) -> None:
        """Figures and doors stand at the right, the progress bar takes the rest."""
        ui = self.ui
        self._width = width
        x = width - ui.px(self._doors_width + 10)
        dpg.configure_item(self._doors_group, pos=(x, ui.px(8)))
        left = ui.px(92 + 50 + 1 + StepMenu.WIDTH + 56 + 2 + 8 + 5 * 6)
        room = x - left - ui.px(12 + MIN_BAR)
        for index, (column, column_width) in reversed(list(enumerate(self._columns))):
            if index == len(self._columns) - 1:   # the backend goes last and says less before; the others are in panels, too
                self._short = room < ui.px(column_width)
                column_width = SHORT_BACKEND if self._short else column_width
            fits = room >= ui.px(column_width)
            dpg.configure_item(column, show=fits)
            if fits:
                x -= ui.px(column_width)
                room -= ui.px(column_width)
                dpg.configure_item(column, pos=(x, ui.px(4)))
        self._bar_width = max(ui.px(MIN_BAR), x - left - ui.px(14))
        dpg.configure_item(self._bar, width=self._bar_width)
        self._bar_key = None

    def update(self) -> None:
        model, snapshot = self.ui.model, self.ui.model.snapshot
        relabel(self._play, "❚❚  Pause" if model.playing else f"▶  +{MORE_TEXT}" if model.at_end else "▶  Train")
        if (model.can_train, model.at_end) != self._can:
            self._can = model.can_train, model.at_end
            for item in (self._play, self._step, self._more, self._reset):
                able = model.can_train and not (model.at_end and item == self._step)
                dpg.configure_item(item, enabled=able)
                dpg.bind_item_theme(item, 0 if not able else self.ui.theme.primary if item == self._play else 0)
            tooltip(self.ui, self._play, f"All iterations are done: raise them by {MORE_TEXT} and train on" if model.at_end
                    else PLAY_TIP)
            tooltip(self.ui, self._step, model.end_text or STEP_TIP)
        self._steps.update()
        relabel(self._step, "Finish" if model.snapshot.steering.phase and not model.playing else "Step")
        self._draw_bar(round(model.fraction, 4), model.progress_texts or (model.state_text,))
        put(self._values["rate"], formatting.rate(snapshot.steps_per_second) if model.playing else formatting.NONE)
        put(self._values["gaussians"], formatting.count(snapshot.gaussians))
        rss = snapshot.memory.get("rss", math.nan)
        put(self._values["memory"], formatting.NONE if math.isnan(rss) else formatting.size(rss))
        if self._told != (snapshot.backend, snapshot.device, self._short):
            self._told = snapshot.backend, snapshot.device, self._short
            put(self._values["backend"], self._where(snapshot.backend, snapshot.device) or formatting.NONE)
            here = f" Now: {snapshot.device}." if snapshot.device else ""
            tooltip(self.ui, self._columns[-1][0], f"{BACKEND_TIP}{here}")
        self._offer(snapshot.backends)
        if snapshot.backend != self._colored:
            self._colored = snapshot.backend
            slow = snapshot.backend == "reference"
            dpg.configure_item(self._values["backend"], color=Palette.second if slow else Palette.text)

    def _where(self, backend: str, device: str) -> str:
        """The backend and, as far as there is room, its device."""
        full = f"{backend} · {formatting.chip(device)}" if device and device != backend else backend
        if self._short:
            return backend
        while len(full) > len(backend) and text_width(full, self.ui.px(13)) > self.ui.px(self._columns[-1][1] - 8):
            full = full.removesuffix(" …").rpartition(" ")[0].removesuffix(" ·") + " …"
            if full == f"{backend} …":
                return backend
        return full

    def _draw_bar(self, fraction: float, texts: tuple[str, ...]) -> None:
        """The bar with the longest of the texts that fits into it."""
        if self._bar_key == (fraction, texts):
            return
        self._bar_key = (fraction, texts)
        px, width = self.ui.px, self._bar_width
        text = next((t for t in texts if text_width(t, px(13)) <= width - px(8)), texts[-1])
        dpg.delete_item(self._bar, children_only=True)
        for share, color in ((1.0, Palette.raised), (fraction, Palette.accent_dim)):
            if share * width >= 1:
                dpg.draw_rectangle((0, 0), (share * width, px(BAR_HEIGHT)), fill=color, color=Palette.clear,
                                   rounding=px(3), parent=self._bar)
        size = px(13)
        dpg.draw_text(((width - text_width(text, size)) / 2, px(BAR_HEIGHT) / 2 - 0.58 * size), text, color=Palette.text,
                      size=size, parent=self._bar)

    def _offer(self, backends: tuple[str, ...]) -> None:
        """The menu holds what can run here, as the engine says."""
        if backends == self._offered:
            return
        self._offered = backends
        dpg.delete_item(self._menu, children_only=True)
        dpg.push_container_stack(self._menu)
        for backend in backends:
            entry = dpg.add_menu_item(label=backend, callback=self._on_backend, user_data=backend)
            tooltip(self.ui, int(entry), BACKEND_HELP.get(backend, ""))
        dpg.pop_container_stack()

    def _on_menu(self) -> None:
        if not self._offered:   # the renderer is still being prepared
            return
        x, y = dpg.get_item_rect_min(self._values["backend"])
        dpg.configure_item(self._menu, pos=(x, y + self.ui.px(20)), show=True)

    def _on_backend(self, sender: int, value: object, name: str) -> None:
        self.ui.actions.set_backend(name)

    # A reset ends what trains now, so it asks once.
    def _confirm(self) -> None:
        ui = self.ui
        with dpg.window(show=False, no_title_bar=True, no_resize=True, no_move=True, autosize=True, popup=True) as window:
            label(ui, "Begin anew at iteration 0, with the options of now?", Palette.text)
            label(ui, "What was trained stays as a branch; the timeline goes back to it.", Palette.muted, small=True)
            with dpg.group(horizontal=True):
                button(ui, "Reset", self._on_reset, "The run begins anew as another branch", width=80, theme=ui.theme.primary)
                button(ui, "Keep", self._on_keep, "Nothing happens", width=80)
        self._confirm_window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def _ask_reset(self) -> None:
        if self.ui.model.snapshot.iteration == 0:
            self.ui.actions.reset()
            return
        dpg.configure_item(self._confirm_window, pos=(self.ui.px(100), self.ui.px(42)), show=True)

    def _on_reset(self) -> None:
        dpg.configure_item(self._confirm_window, show=False)
        self.ui.actions.reset()

    def escape(self) -> bool:
        """Esc: an open question or menu goes, and nothing happens."""
        for popup in (self._confirm_window, self._menu, self._steps.menu):
            if dpg.is_item_shown(popup):
                dpg.configure_item(popup, show=False)
                return True
        return False

    def _on_keep(self) -> None:
        dpg.configure_item(self._confirm_window, show=False)


