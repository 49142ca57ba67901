"""The row Run of the Training panel: the run's folder, whole in the tooltip, copied by a click."""

from __future__ import annotations

from tests.gui.conftest import Window

FOLDER = "/somewhere/runs/garden-20260102-030405"


def test_a_click_on_the_runs_folder_copies_its_path(window: Window) -> None:
    window.run("row = shell._left[0]._folder")
    value = "row._rows._values['run']"
    assert window.get(f"dpg.get_value({value})") == "–"   # the fake engine records nothing
    window.click(*window.middle(value))
    assert not any("copied" in text for text in window.get("[n.text for n in shell.model.notices]"))
    window.run("from dataclasses import replace; real = engine._snapshot; "
               f"engine._snapshot = lambda: replace(real(), run_folder={FOLDER!r})")
    window.wait_for(f"dpg.get_value({value}) == 'garden-…030405'")
    window.run("from app.gui.tips import explained")
    assert FOLDER in window.get("explained(row._row)")
    window.click(*window.middle(value))
    window.wait_for("any('copied' in n.text for n in shell.model.notices)")   # reading a clipboard without text ends GLFW
    assert window.get("dpg.get_clipboard_text()") == FOLDER
    right = window.get(f"dpg.get_item_rect_min({value})[0] + dpg.get_item_rect_size({value})[0]")
    assert right < window.get("shell.theme.px(shell.preferences.left)") - 6   # nothing is cut off
    window.run("engine._snapshot = real")
