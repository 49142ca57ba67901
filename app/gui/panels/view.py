"""How the viewport looks: mode, quantity and range, scene views, overlays."""

from __future__ import annotations

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show, tooltip
from app.messages import MODES, Beside, ViewMode

SCALES = ("automatic", "linear", "log")
ALONE = "one picture"


class ViewPanel:
    title = "View"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._scene = -1
        self._mode = self._range_key = None
        self._quantities: dict[str, str] = {}  # label -> name
        self._beside_shown: Beside | None = None
        self._quantity_shown = ""

    def build(self, parent: int) -> None:
        ui = self.ui
        self._modes: dict[str, ViewMode] = {f"{m.key}  {m.label}": m.name for m in MODES.values()}
        with dpg.group(parent=parent):
            heading(ui, "View")
            self._combo = int(dpg.add_combo(list(self._modes), width=-1, callback=self._on_mode,
                                            height_mode=dpg.mvComboHeight_Large))
            tooltip(ui, self._combo, "\n".join(f"{m.key}  {m.label}: {m.help}" for m in MODES.values()))
            with dpg.group() as self._heat:
                self._quantity = int(dpg.add_combo([], width=-1, callback=self._on_quantity))
                tooltip(ui, self._quantity, "The number that colours each Gaussian")
                self._help = label(ui, "", Palette.muted, small=True, wrap=0)
            self._build_range()
            self._build_beside()
            self._build_views()

    def _build_range(self) -> None:
        ui = self.ui
        with dpg.group() as self._range:
            with dpg.group(horizontal=True):
                self._auto = int(dpg.add_checkbox(label="Automatic range", default_value=True, callback=self._on_auto))
                tooltip(ui, self._auto, "Off: the colours keep the range below, so that pictures compare")
            with dpg.group(horizontal=True) as self._bounds:
                self._lo = int(dpg.add_input_text(width=ui.px(66), callback=self._on_bounds, on_enter=True))
                label(ui, "to")
                self._hi = int(dpg.add_input_text(width=ui.px(66), callback=self._on_bounds, on_enter=True))
            for item, tip in ((self._lo, "Value of the first colour; Enter applies"),
                              (self._hi, "Value of the last colour; Enter applies")):
                tooltip(ui, item, tip)
                ui.typing.append(item)
            with dpg.group(horizontal=True):
                label(ui, "Scale")
                self._log = int(dpg.add_combo(SCALES, default_value=SCALES[0], width=-1, callback=self._on_log))
                tooltip(ui, self._log, "Linear or logarithmic colours; automatic takes what suits the quantity")

    def _build_beside(self) -> None:
        ui = self.ui
        self._besides: dict[str, ViewMode | None] = {ALONE: None} | {f"beside {m.label}": m.name for m in MODES.values()}
        self._beside = int(dpg.add_combo(list(self._besides), default_value=ALONE, width=-1, callback=self._on_beside,
                                         height_mode=dpg.mvComboHeight_Large))
        tooltip(ui, self._beside, "A second mode in the right part of the picture, from the same camera: the photograph, a "
                "quantity ... Drag the line between them.")
        with dpg.group(show=False) as group:
            self._beside_quantity = int(dpg.add_combo([], width=-1, callback=self._on_beside_quantity))
            tooltip(ui, self._beside_quantity, "The number that colours each Gaussian on the right")
        self._beside_heat = int(group)

    def _build_views(self) -> None:
        ui, act = self.ui, self.ui.actions
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as self._steps:
            button(ui, "[", act.previous_view, "Previous scene view  ([)", width=26)
            button(ui, "]", act.next_view, "Next scene view  (])", width=26)
            self._name = int(dpg.add_text("Free camera", color=Palette.muted))
            tooltip(ui, self._name, "The scene view that the camera stands at")
        with dpg.group(horizontal=True, xoffset=ui.px(104)):
            with dpg.group():
                self._frusta = int(dpg.add_checkbox(label="Cameras", callback=act.toggle_frusta))
                tooltip(ui, self._frusta, "Frusta of the scene views: training views in teal, held-out ones in amber  (C)")
            with dpg.group():
                self._axes = int(dpg.add_checkbox(label="Axes", callback=act.toggle_axes))
                tooltip(ui, self._axes, "World axes x, y, z at the middle of the scene  (X)")
        button(ui, "Take this view as upright", act.set_up,
               "What is up in the picture becomes up in the world; orbiting turns around it. Remembered per scene.  (U)",
               width=-1)

    def update(self) -> None:
        ui, view = self.ui, self.ui.view
        if ui.model.scene_version != self._scene:
            self._scene = ui.model.scene_version
            self._fill_quantities()
        if view.mode != self._mode:
            self._mode = view.mode
            dpg.set_value(self._combo, next(k for k, m in self._modes.items() if m == view.mode))
        if view.quantity != self._quantity_shown:   # another panel asked for its own
            self._show_quantity()
        beside = view.shown_beside()
        if beside != self._beside_shown:
            self._beside_shown = beside
            self._show_beside()
        show(self._heat, view.mode == "heatmap")
        show(self._range, MODES[view.mode].ranged)
        show(self._bounds, view.value_range is not None)
        dpg.set_value(self._auto, view.value_range is None)
        dpg.set_value(self._frusta, ui.preferences.frusta)
        dpg.set_value(self._axes, ui.preferences.axes)
        show(self._steps, bool(view.views))
        if view.view_index is not None and view.views:
            put(self._name, _tail(view.views[view.view_index].name, 18))
        else:
            put(self._name, "Free camera")
        if view.value_range != self._range_key:
            self._range_key = view.value_range
            if view.value_range is not None:
                put(self._lo, formatting.number(view.value_range[0], 4))
                put(self._hi, formatting.number(view.value_range[1], 4))

    def _fill_quantities(self) -> None:
        scene, view = self.ui.model.scene, self.ui.view
        quantities = scene.quantities if scene is not None else ()
        self._quantities = {q.label: q.name for q in quantities}
        dpg.configure_item(self._quantity, items=list(self._quantities))
        dpg.configure_item(self._beside_quantity, items=list(self._quantities))
        if quantities and view.quantity not in self._quantities.values():
            view.quantity = quantities[0].name
        self._show_quantity()

    def _show_quantity(self) -> None:
        scene, view = self.ui.model.scene, self.ui.view
        self._quantity_shown = view.quantity
        for q in scene.quantities if scene is not None else ():
            if q.name == view.quantity:
                dpg.set_value(self._quantity, q.label)
                put(self._help, q.help)

    def _show_beside(self) -> None:
        beside = self._beside_shown
        mode = beside.mode if beside is not None else None
        dpg.set_value(self._beside, next(text for text, name in self._besides.items() if name == mode))
        show(self._beside_heat, mode == "heatmap")
        if beside is not None:
            dpg.set_value(self._beside_quantity, next((t for t, q in self._quantities.items() if q == beside.quantity), ""))

    def _on_beside(self, sender: int, text: str) -> None:
        sentence = self.ui.view.set_beside(self._besides[text])
        if sentence:
            self.ui.actions.notify(sentence, "warning")
        self._beside_shown = self.ui.view.shown_beside()
        self._show_beside()

    def _on_beside_quantity(self, sender: int, text: str) -> None:
        self.ui.view.set_beside("heatmap", self._quantities[text])

    def _on_mode(self, sender: int, text: str) -> None:
        self._mode = None  # so that a refused mode shows the old one again
        self.ui.actions.set_mode(self._modes[text])

    def _on_quantity(self, sender: int, text: str) -> None:
        self.ui.view.quantity = self.ui.preferences.quantity = self._quantities[text]
        self.ui.view.value_range = None
        self._show_quantity()

    def _on_auto(self, sender: int, automatic: bool) -> None:
        legend = self.ui.model.frame.legend if self.ui.model.frame is not None else None
        if automatic:
            self.ui.view.value_range = None
        elif legend is not None:
            self.ui.view.value_range = (legend.lo, legend.hi)

    def _on_bounds(self) -> None:
        try:
            lo, hi = float(dpg.get_value(self._lo)), float(dpg.get_value(self._hi))
        except ValueError:
            self.ui.actions.notify("The colour range takes two numbers, such as 0.001 and 1.", "warning")
            return
        if not lo < hi:
            self.ui.actions.notify(f"The colour range {lo:g} to {hi:g} is empty; the first number must be smaller.",
                                   "warning")
            return
        self.ui.view.value_range = (lo, hi)

    def _on_log(self, sender: int, text: str) -> None:
        self.ui.view.log_scale = {"automatic": None, "linear": False, "log": True}[text]
        self.ui.view.value_range = None


def _tail(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[-(length - 1):]
