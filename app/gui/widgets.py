"""Small pieces that panels are made of. Every label, tooltip and number goes through here, so that all look alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from app.gui import formatting, tips
from app.gui.actions import Actions
from app.gui.fields import SLIDER_STEPS, FieldSpec
from app.gui.preferences import Preferences
from app.gui.theme import Color, Palette, Theme
from app.gui.toolkit import dpg
from app.gui.view_model import ViewModel
from app.gui.view_state import ViewState
from app.messages import Command


class Dialog(Protocol):
    """A floating window that Esc closes."""

    @property
    def shown(self) -> bool: ...

    def close(self) -> None: ...


@dataclass
class Ui:
    """What every panel may use. Panels read the model and send; they keep no state of the run."""

    theme: Theme
    preferences: Preferences
    model: ViewModel
    view: ViewState
    actions: Actions
    send: Callable[[Command], None]
    set_option: Callable[[str, Any], None]   # coalesced: at most one command per field and frame
    typing: list[int] = field(default_factory=list)  # items that take the keyboard while they are active
    folder: Path = Path()                    # of the preferences
    dialogs: list[Dialog] = field(default_factory=list)   # floating windows of panels, for Esc

    def px(self, value: float) -> int:
        return self.theme.px(value)


_texts: dict[int, str] = {}


def put(item: int, text: str) -> None:
    """set_value only when the text differs: most numbers stand still in most frames."""
    if _texts.get(item) != text:
        _texts[item] = text
        dpg.set_value(item, text)


_shown: dict[int, bool] = {}


def show(item: int, shown: bool) -> None:
    if _shown.get(item) is not shown:
        _shown[item] = shown
        dpg.configure_item(item, show=shown)


def open_centred(ui: Ui, window: int, width: float) -> None:
    """Show a floating window of that width, px at 100 %; its height is that of what it holds, known after a frame."""
    across, down = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
    dpg.configure_item(window, show=True, pos=(max(0, (across - ui.px(width)) // 2), max(0, down // 6)))


def pressed(items: Iterable[int]) -> bool:
    """Whether the mouse is down on one of them. What a row stands for and where it is wait until it is let go, so that a click
    is of what was pressed."""
    return any(dpg.is_item_active(item) for item in items)


_labels: dict[int, str] = {}


def relabel(item: int, text: str) -> None:
    if _labels.get(item) != text:
        _labels[item] = text
        dpg.configure_item(item, label=text)


def forget(*items: int) -> None:
    """Of deleted items."""
    for item in items:
        for cache in (_texts, _shown, _labels):
            cache.pop(item, None)


def heading(ui: Ui, text: str, *, first: bool = False) -> int:
    if not first:
        dpg.add_spacer(height=ui.px(6))
    item = int(dpg.add_text(text, color=Palette.muted))
    dpg.bind_item_font(item, ui.theme.title)
    return item


def label(ui: Ui, text: str, color: Color = Palette.muted, *, small: bool = False, wrap: int = -1) -> int:
    item = int(dpg.add_text(text, color=color, wrap=wrap))
    if small:
        dpg.bind_item_font(item, ui.theme.small)
    return item


def tooltip(ui: Ui, item: int, text: str) -> None:
    """What is said beside the item while the pointer rests on it, see app/gui/tips.py."""
    tips.explain(item, text)


def button(ui: Ui, text: str, callback: Callable[..., None], tip: str, *, width: float = 0, theme: int = 0,
           user_data: Any = None) -> int:
    item = int(dpg.add_button(label=text, callback=callback, width=ui.px(width) if width > 0 else int(width),
                              user_data=user_data))
    if theme:
        dpg.bind_item_theme(item, theme)
    tooltip(ui, item, tip)
    return item


def swatch(ui: Ui) -> int:
    """A square of a colour among text; paint() it."""
    item = int(dpg.add_text("■"))
    dpg.bind_item_font(item, ui.theme.body)
    return item


def paint(item: int, color: Any) -> None:
    """Give a text or swatch a colour [3] in 0..1."""
    dpg.configure_item(item, color=[*(round(255 * min(max(float(c), 0.0), 1.0)) for c in color), 255])


class Rows:
    """Label and value in two aligned columns; the value column is monospaced so that digits stay in place."""

    def __init__(self, ui: Ui, offset: float) -> None:
        self._ui, self._offset = ui, offset
        self._values: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._cells: dict[str, int] = {}
        self._colors: dict[str, Color] = {}

    def add(self, name: str, text: str, tip: str = "") -> int:
        ui = self._ui
        with dpg.group(horizontal=True, xoffset=ui.px(self._offset)) as group:
            dpg.add_text(text, color=Palette.muted)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)) as cell:   # xoffset would count the button as a column
                value = int(dpg.add_text(formatting.NONE))
        self._cells[name] = int(cell)
        dpg.bind_item_theme(group, ui.theme.tight)
        if tip:
            tooltip(ui, int(group), tip)
        self._values[name], self._groups[name] = value, int(group)
        return value

    def add_button(self, name: str, text: str, callback: Callable[..., None], tip: str) -> int:
        """A small button right behind the value of a row."""
        ui = self._ui
        item = int(dpg.add_button(label=text, callback=callback, small=True, parent=self._cells[name]))
        dpg.bind_item_theme(item, ui.theme.flat)
        tooltip(ui, item, tip)
        return item

    def put(self, name: str, text: str, color: Color = Palette.text) -> None:
        put(self._values[name], text)
        if self._colors.get(name, Palette.text) != color:
            self._colors[name] = color
            dpg.configure_item(self._values[name], color=color)

    def explain(self, name: str, tip: str) -> None:
        """Another tooltip."""
        tooltip(self._ui, self._groups[name], tip)

    def show(self, name: str, shown: bool) -> None:
        show(self._groups[name], shown)


RESET = 24   # px at 100 %, the button back to the default


class FieldControl:
    """One configuration field as a row: name, slider or choice, exact value, back to the default."""

    def __init__(self, ui: Ui, spec: FieldSpec, *, name_width: float = 132) -> None:
        self.ui, self.spec = ui, spec
        self._value: Any = spec.default
        self._slider = self._input = self._choice = 0
        if spec.kind == "int" and not spec.has_slider and len(spec.label) > 18:
            name_width += 30   # without a slider there is room for a long name
        with dpg.group(horizontal=True, xoffset=ui.px(name_width)) as row:
            self.row = int(row)
            with dpg.group():
                self._name = int(dpg.add_text(spec.label if spec.live else f"{spec.label} °", color=Palette.text))
                tooltip(ui, self._name, f"{spec.path}\n{spec.tooltip}")
            self._build()
        self.show_value(spec.default)

    def _build(self) -> None:
        ui, spec = self.ui, self.spec
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
            if spec.kind == "bool":
                self._choice = int(dpg.add_checkbox(callback=self._on_choice))
            elif spec.kind == "choice":
                self._choice = int(dpg.add_combo(spec.choices, width=-1, callback=self._on_choice))
            else:
                typed = 66
                if spec.has_slider:
                    self._slider = int(dpg.add_slider_int(
                        max_value=SLIDER_STEPS, width=-ui.px(typed + 4 + RESET + 4), callback=self._on_slide, no_input=True,
                        format=""))
                self._input = int(dpg.add_input_text(
                    width=-1, callback=self._on_typed, on_enter=True))
                ui.typing.append(self._input)
            self._reset = int(dpg.add_button(label="↺", width=ui.px(RESET), callback=self._on_reset))
            dpg.bind_item_theme(self._reset, ui.theme.flat)
            tooltip(ui, self._reset, f"Back to the default, {spec.written(spec.default)}")
        for item in (self._slider, self._input, self._choice):
            if item:
                tooltip(ui, item, spec.tooltip)

    def show_value(self, value: Any) -> None:
        """The value in force; a control that the user holds is left alone."""
        self._value = value
        spec = self.spec
        if self._choice:
            dpg.set_value(self._choice, bool(value) if spec.kind == "bool" else str(value))
        if self._slider and not dpg.is_item_active(self._slider):
            dpg.set_value(self._slider, spec.to_slider(value))
        if self._input and not dpg.is_item_active(self._input):
            put(self._input, self._written(value))
        changed = value != spec.default
        dpg.configure_item(self._name, color=Palette.accent if changed else Palette.text)
        show(self._reset, changed)
        for item in (self._input, self._choice if spec.kind == "choice" else 0):   # the row ends where buttons end
            if item:
                dpg.configure_item(item, width=-self.ui.px(RESET + 4) if changed else -1)

    def _written(self, value: Any) -> str:
        return str(value) if self.spec.kind == "int" else f"{value:.4g}"

    def _send(self, value: Any) -> None:
        self.ui.set_option(self.spec.path, value)
        self.show_value(value)

    def _on_choice(self, sender: int, value: Any) -> None:
        self._send(value)

    def _on_slide(self, sender: int, position: int) -> None:
        value = self.spec.from_slider(position)
        self.ui.set_option(self.spec.path, value)
        put(self._input, self._written(value))

    def _on_typed(self, sender: int, text: str) -> None:
        _texts.pop(self._input, None)
        try:
            value = self.spec.parse(text)
        except ValueError as error:
            self.ui.actions.notify(str(error), "warning")
            value = self._value
            put(self._input, self._written(value))
            return
        self._send(value)
        put(self._input, self._written(value))

    def _on_reset(self) -> None:
        self._send(self.spec.default)


class FieldControls:
    """The controls of a panel; they follow the configuration in force."""

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._version = -1
        self.controls: list[FieldControl] = []

    def add(self, spec: FieldSpec) -> None:
        self.controls.append(FieldControl(self._ui, spec))

    def update(self) -> bool:
        """Show what changed; whether anything did."""
        model = self._ui.model
        for control in self.controls:   # what another backend would not look at is not offered
            if control.spec.backend:
                show(control.row, control.spec.backend == model.snapshot.backend)
        if model.config_version == self._version:
            return False
        self._version = model.config_version
        for control in self.controls:
            if control.spec.path in model.config:
                control.show_value(model.config[control.spec.path])
        return True


def text_width(text: str, size: float) -> float:
    """Width in px of drawlist text, which ignores bound fonts but scales with `size`; get_text_size knows one size only."""
    measured = dpg.get_text_size(text)
    if not measured:
        return 0.55 * size * len(text)
    height = measured[1] or size
    return measured[0] * size / height


def folded(text: str, size: float, width: float) -> list[str]:
    """Lines of a sentence that find room in `width` px, broken between words only, and never within a number."""
    return tips.wrapped(text, width, lambda line: text_width(line, size))


def shortened(text: str, size: float, width: float) -> str:
    """Middle left out, so that the ends of paths and names stay readable."""
    if text_width(text, size) <= width:
        return text
    keep = max(4, int(len(text) * width / max(text_width(text, size), 1.0)) - 1)
    return text[: keep // 2] + "…" + text[-(keep - keep // 2):]


def short_path(path: Path) -> str:
    """Relative to the folder that the program was started in, where it lies in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def head(text: str, length: int) -> str:
    """The start of a text that must not grow."""
    return text if len(text) <= length else text[: length - 1] + "…"
