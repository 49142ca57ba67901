"""Audit: somebody else's rasterizer asked on standard scenes and on the user's own; the report as it is."""

from __future__ import annotations

from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, heading, label, put, show, tooltip
from app.messages import Audited, AuditRasterizer

SHIPPED = ("cpu", "reference", "plain", "gsplat", "diff_gaussian_rasterization")


class AuditPanel:
    title = "Audit"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._found: Audited | None = None

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Audit a rasterizer", first=True)
            label(ui, "render(means, quats, scales, opacities, sh, viewmat, K, width, height, background) → image [H,W,3], as "
                      "module:function. Its picture and gradients are held against the float64 reference; which alpha rule it "
                      "follows is measured.", Palette.muted, small=True, wrap=0)
            self.target = int(dpg.add_input_text(hint="module:function", width=-1, on_enter=True, callback=self._on_audit))
            ui.typing.append(self.target)
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                label(ui, "or", Palette.muted)
                shipped = int(dpg.add_combo(SHIPPED, default_value="", width=ui.px(150), callback=self._on_shipped))
                tooltip(ui, shipped, "Shipped ones; gsplat and diff_gaussian_rasterization where they are installed")
            self._scene = int(dpg.add_checkbox(label="on my scene too", default_value=True))
            tooltip(ui, self._scene, "Besides the standard scenes, on the Gaussians of the scene that is open")
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                self.go = button(ui, "Audit it", self._on_audit, "In a process of its own; training goes on. × beside Job "
                                 "stops it", width=100)
                self._copy = button(ui, "Copy report", self._on_copy, "The text below, to the clipboard", width=110)
            self._working = label(ui, "", Palette.accent, small=True, wrap=0)
            self._verdict = label(ui, "Nothing is audited yet.", Palette.muted, wrap=0)
            with dpg.child_window(height=-1, horizontal_scrollbar=True, border=False, show=False) as box:
                self._text = int(dpg.add_text(""))
                dpg.bind_item_font(self._text, ui.theme.mono)
            self._box = int(box)
        show(self._copy, False)

    def update(self) -> None:
        working = self.ui.model.job_text("audit")
        put(self._working, working)
        show(self._working, bool(working))
        found = self.ui.model.audited
        if found is self._found:
            return
        self._found = found
        show(self._box, found is not None)
        show(self._copy, found is not None)
        if found is None:
            put(self._verdict, "Nothing is audited yet.")
            dpg.configure_item(self._verdict, color=Palette.muted)
            return
        put(self._verdict, f"{found.target}: {'no fault was found.' if found.clean else 'faults were found.'}")
        dpg.configure_item(self._verdict, color=Palette.good if found.clean else Palette.bad)
        put(self._text, found.text.rstrip())

    def _on_shipped(self, sender: int, name: str) -> None:
        dpg.set_value(self.target, name)

    def _on_audit(self) -> None:
        self.ui.send(AuditRasterizer(dpg.get_value(self.target).strip(), own_scene=bool(dpg.get_value(self._scene))))

    def _on_copy(self) -> None:
        if self._found is not None:
            dpg.set_clipboard_text(self._found.text)
