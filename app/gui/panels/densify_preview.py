"""What the next densification would do, before it does it: counts, colours in the picture, and the event at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.gui import formatting
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, paint, put, show, swatch, tooltip
from app.inspection.densification_results import KINDS, CandidatesQuestion, Foreseen
from app.messages import DensifyNow

MODE = "candidates"
COMPARED_SECONDS = 4.0
"""How long after a drag of the threshold the counts are compared with those of before."""
USUAL = {"mcmc": ("dead", "sources"), **dict.fromkeys(("adc", "absgs", "taming"), ("clone", "split", "prune"))}
"""What a strategy does to Gaussians."""


class Preview:
    """Part of the densification panel. It asks only while the preview is on."""

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._before: Foreseen | None = None    # the counts when the threshold was taken hold of
        self._released = -1e9
        self._told: Foreseen | None = None

    def build(self) -> None:
        ui = self.ui
        heading(ui, "Next densification")
        with dpg.group(horizontal=True, horizontal_spacing=ui.px(10)):
            with dpg.group():
                self.toggle = int(dpg.add_checkbox(label="Preview", callback=self._on_toggle))
                tooltip(ui, self.toggle, "Colour in the picture what would happen to each Gaussian, and count it  (J)")
            self.now = button(ui, "Densify now", self._on_now, "One event at once, by the strategy in force, whatever the "
                              "schedule says; what would happen is what the preview shows")
        self._when = label(ui, "", Palette.muted, small=True, wrap=0)
        self._rows: dict[str, tuple[int, int, int]] = {}
        with dpg.group() as self._body:
            for kind in KINDS:
                with dpg.group(horizontal=True, xoffset=ui.px(112)) as row:
                    with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)) as name:
                        paint(swatch(ui), kind.color)
                        dpg.add_text(kind.label, color=Palette.muted)
                    tooltip(ui, int(name), kind.help)
                    value = int(dpg.add_text(""))
                dpg.bind_item_theme(row, ui.theme.tight)
                self._rows[kind.name] = int(row), value, int(name)
            self._after = label(ui, "", Palette.text, wrap=0)
            self._problem = label(ui, "", Palette.second, small=True, wrap=0)

    def questions(self) -> Mapping[str, Any]:
        return {"candidates": CandidatesQuestion()} if self.on else {}

    @property
    def on(self) -> bool:
        return self.ui.view.mode == MODE

    def update(self) -> None:
        model = self.ui.model
        dpg.set_value(self.toggle, self.on)
        dpg.configure_item(self.now, enabled=model.can_train)
        answer = model.snapshot.answers.get("candidates") if self.on else None
        told: Foreseen | None = answer.value if answer is not None else None
        show(self._body, self.on)
        problem = (answer.problem if answer is not None else "") or (told.problem if told is not None else "")
        put(self._problem, formatting.spaced(problem))
        show(self._problem, bool(problem))
        if told is None:
            put(self._when, "" if not self.on else "Looking at the Gaussians ...")
            show(self._when, self.on and not (answer is not None and answer.problem))
            for row, _, _ in self._rows.values():
                show(row, False)
            show(self._after, False)
            return
        self._told = told
        self._show(told, self._before if self._comparing() else None)

    def _show(self, told: Foreseen, before: Foreseen | None) -> None:
        """What a strategy may do has its rows also while they count nobody, so that what is below stays where it is."""
        nothing = told.after == told.count and not any(told.of(kind.name) for kind in KINDS)
        due = f"Due at iteration {formatting.count(told.next_event)}" if told.next_event is not None else "None is due"
        put(self._when, f"{due}. If densified now, as of {formatting.count(told.iteration)}"
            + (", nothing: no Gaussian meets a condition." if nothing else ":"))
        show(self._when, not (nothing and told.problem))   # else the problem says it all
        for kind in KINDS:
            row, value, _ = self._rows[kind.name]
            count, old = told.of(kind.name), before.of(kind.name) if before is not None else told.of(kind.name)
            show(row, bool(count or old or kind.name in USUAL.get(told.strategy, ())))
            put(value, formatting.count(count) + _change(count - old))
        parts = [f"{formatting.count(told.count)} → {formatting.count(told.after)}"
                 + _change(told.after - before.after if before is not None else 0)]
        if told.added:
            parts.append(f"{formatting.count(told.added)} added")
        if told.stillborn:
            parts.append(f"children of {formatting.count(told.stillborn)} pruned at once")
        if told.left_out:
            parts.append(f"the cap of {formatting.count(told.cap)} leaves out {formatting.count(told.left_out)}")
        put(self._after, ", ".join(parts))
        show(self._after, not (nothing and told.problem))

    def leave(self) -> None:
        """The tab is left: the picture is as before the preview."""
        if self.on:
            self.ui.actions.toggle_candidates()

    # ------------------------------------------------------------------------------------------ the threshold is dragged
    def held(self) -> None:
        """The threshold is being dragged: counts are compared with those of when it was taken hold of."""
        if not self._comparing():
            self._before = self._told
        self._released = self.ui.actions.clock()

    def _comparing(self) -> bool:
        return self._before is not None and self.ui.actions.clock() - self._released < COMPARED_SECONDS

    def _on_toggle(self, sender: int, on: bool) -> None:
        if on != self.on:
            self.ui.actions.toggle_candidates()

    def _on_now(self) -> None:
        self.ui.send(DensifyNow())


def _change(by: int) -> str:
    return f"  ({by:+,})".replace(",", " ") if by else ""
