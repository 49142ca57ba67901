"""Which strategy densifies, with the options that are its own, and how near the cap is."""

from __future__ import annotations

from typing import Any

from app.gui import formatting
from app.gui.fields import BY_PATH, DENSIFY_FIELDS
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import FieldControl, FieldControls, Ui, heading, label, put, show, tooltip

PATH = "densify.strategy"
WHEN = ("start", "stop", "every")
PRUNING = ("percent_dense", "prune_opacity", "prune_world", "prune_screen", "reset_every", "reset_opacity")
FIELDS: dict[str, tuple[str, ...]] = {
    "adc": ("grad_threshold", "absgrad", "absgrad_threshold", *PRUNING, "cap", *WHEN),
    "absgs": ("grad_threshold", "absgs_threshold", *PRUNING, "cap", *WHEN),
    "mcmc": ("cap", "mcmc_dead_opacity", "mcmc_growth", "mcmc_noise_lr", "mcmc_opacity_reg", "mcmc_scale_reg", *WHEN),
    "taming": ("taming_budget", "taming_views", "grad_threshold", *PRUNING, "cap", *WHEN),
    "none": ("absgrad",)}
"""The options that each strategy looks at, in the order of the panel."""
LABELS = {"adc": "Adaptive density control", "absgs": "AbsGS", "mcmc": "MCMC (relocation)", "taming": "Taming-3DGS (budget)",
          "none": "None"}
ABOUT = {
    "adc": "Kerbl et al. 2023: above the gradient threshold small ones are cloned and large ones split; the transparent are "
           "pruned, and opacities reset.",
    "absgs": "Ye et al. 2024: as adaptive density control, but large ones are split by the sum of absolute gradients, which "
             "does not cancel inside a blurred region.",
    "mcmc": "Kheradmand et al. 2024: dead ones move onto opaque ones, a share (mcmc_growth) is added an event up to the cap, "
            "noise explores. It never lowers the number of Gaussians: a run that starts above the cap is trimmed to it, one "
            "that goes on is not.",
    "taming": "Mallick et al. 2024: each event grows to a planned count, those of the highest score most likely, and the last "
              "one reaches the budget exactly.",
    "none": "The Gaussians there are stay as many."}


class StrategyChoice:
    """Part of the densification panel."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._fields = FieldControls(ui)
        self._shown = ""

    def build(self) -> None:
        ui = self.ui
        heading(ui, "Strategy", first=True)
        self.combo = int(dpg.add_combo([LABELS[name] for name in FIELDS], width=-1, callback=self._on_strategy))
        tooltip(ui, self.combo, BY_PATH[PATH].tooltip)
        self._about = label(ui, "", Palette.muted, small=True, wrap=0)
        self._count = label(ui, "", Palette.muted, small=True, wrap=0)
        with dpg.tree_node(label="Its options", default_open=False) as node:
            shared = ("cap", *PRUNING, *WHEN)   # behind what is a strategy's own
            own = [spec for spec in DENSIFY_FIELDS if spec.path != PATH and spec.label not in shared]
            for spec in (*own, *(BY_PATH[f"densify.{name}"] for name in shared)):
                self._fields.add(spec)
        self.node = int(node)

    def update(self) -> None:
        model = self.ui.model
        self._fields.update()
        strategy = str(model.config.get(PATH, "adc"))
        if strategy != self._shown and strategy in FIELDS:
            self._shown = strategy
            dpg.set_value(self.combo, LABELS[strategy])
            put(self._about, ABOUT[strategy])
            for control in self._fields.controls:
                show(control.row, _name(control) in FIELDS[strategy])
        snapshot = model.snapshot
        limit = f" of at most {formatting.count(snapshot.cap)}" if snapshot.cap else ""
        full = snapshot.cap and snapshot.gaussians >= snapshot.cap and strategy != "none"
        put(self._count, f"{formatting.count(snapshot.gaussians)} Gaussians{limit}" + (": the cap is reached" if full else ""))

    def _on_strategy(self, sender: int, text: str) -> None:
        self.ui.set_option(PATH, next(name for name, shown in LABELS.items() if shown == text))


def _name(control: FieldControl) -> Any:
    return control.spec.path.removeprefix("densify.")
