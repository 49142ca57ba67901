"""Every field of TrainConfig and DensifyConfig as a control, grouped; what differs from its default is in colour."""

from __future__ import annotations

from app.gui.fields import BY_PATH, DENSIFY_FIELDS, TRAIN_FIELDS
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import FieldControls, Ui, button, heading, label

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

    def build(self, parent: int) -> None:
        ui = self.ui
        grouped = {name for _, names in GROUPS for name in names}
        rest = tuple(f.path for f in TRAIN_FIELDS if f.path not in grouped)
        groups = (*GROUPS, ("Densification", tuple(f.path for f in DENSIFY_FIELDS)), ("Start", rest))
        with dpg.group(parent=parent):
            label(ui, "Changes act in the next step; those marked with ° after a reset.", Palette.muted, small=True, wrap=0)
            button(ui, "All to their defaults", self._on_defaults,
                   "Every option of this page back to graphdeco's default", width=-1)
            for index, (title, paths) in enumerate(groups):
                heading(ui, title, first=index == 0)
                for path in paths:
                    self._fields.add(BY_PATH[path])

    def update(self) -> None:
        self._fields.update()

    def _on_defaults(self) -> None:
        for control in self._fields.controls:
            spec = control.spec
            if self.ui.model.config.get(spec.path, spec.default) != spec.default:
                self.ui.set_option(spec.path, spec.default)
                control.show_value(spec.default)
