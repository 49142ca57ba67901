"""Every field of TrainConfig and DensifyConfig as a control, grouped; what differs from its default is in colour."""

from __future__ import annotations

from app.gui.fields import BY_PATH, DENSIFY_FIELDS, OPTIMIZER_FIELDS, TRAIN_FIELDS, FieldSpec
from app.gui.panels.presets import Presets
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import FieldControls, Ui, button, heading, label, show

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Run", ("iterations", "schedule_iterations", "micro_batch", "loss", "lambda_dssim", "white_background")),
    ("Learning rates", ("means_lr", "means_lr_final", "sh0_lr", "shN_lr", "opacity_lr", "scale_lr", "quat_lr", "adam_eps",
                       "sparse_adam")),
    ("Spherical harmonics", ("sh_degree", "sh_every")),
)


class HyperparameterPanel:
    title = "Options"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._fields = FieldControls(ui)
        self._presets = Presets(ui, ui.folder / "presets.json")
        self._headings: list[tuple[int, tuple[str, ...]]] = []
        self._words: tuple[str, ...] = ()

    def build(self, parent: int) -> None:
        ui = self.ui
        grouped = {name for _, names in GROUPS for name in names}
        rest = tuple(f.path for f in TRAIN_FIELDS if f.path not in grouped)
        groups = (*GROUPS, ("Densification", tuple(f.path for f in DENSIFY_FIELDS)),
                  ("Optimiser", tuple(f.path for f in OPTIMIZER_FIELDS)), ("Start", rest))
        with dpg.group(parent=parent):
            self._presets.build()
            heading(ui, "Options")
            label(ui, "Changes act in the next step; those marked with ° after a reset.", Palette.muted, small=True, wrap=0)
            button(ui, "All to their defaults", self._on_defaults,
                   "Every option of this page back to graphdeco's default", width=-1)
            self.search = int(dpg.add_input_text(hint="Find an option by its name or help", width=-1,
                                                 callback=self._on_search))
            ui.typing.append(self.search)
            self._nothing = label(ui, "No option has these words.", Palette.muted, small=True)
            show(self._nothing, False)
            for title, paths in groups:
                with dpg.group() as top:
                    heading(ui, title)
                self._headings.append((int(top), paths))
                for path in paths:
                    self._fields.add(BY_PATH[path])
            self._rest = int(dpg.add_spacer(height=0))
        self._body = parent
        self._presets.build_question()

    def update(self) -> None:
        self._fields.update()
        self._presets.update()

    def _on_search(self, sender: int, text: str) -> None:
        """Only what has all the words; a heading with nothing below it goes too."""
        self._words = tuple(text.lower().split())
        found = {control.spec.path for control in self._fields.controls if self._has(control.spec)}
        for control in self._fields.controls:
            show(control.row, control.spec.path in found)
        for top, paths in self._headings:
            show(top, not found.isdisjoint(paths))
        show(self._nothing, not found)
        # few rows would take the scrollbar away, and the field that is typed in would change its width
        dpg.configure_item(self._rest, height=int(dpg.get_item_rect_size(self._body)[1]) if self._words else 0)

    def _has(self, spec: FieldSpec) -> bool:
        text = f"{spec.path} {spec.help}".lower()
        return all(word in text for word in self._words)

    def _on_defaults(self) -> None:
        for control in self._fields.controls:
            spec = control.spec
            if self.ui.model.config.get(spec.path, spec.default) != spec.default:
                self.ui.set_option(spec.path, spec.default)
                control.show_value(spec.default)
