"""A click is of what was pressed, however often its panel changes while the mouse is down: a run that trains never waits."""

from __future__ import annotations

from collections.abc import Callable

from tests.gui.conftest import Window
from tests.gui.test_laboratory import open_tab

CHANGING = """
import dataclasses
from app.inspection.results import Moments, Summary
plain = engine._snapshot
def changing():
    told = plain()
    uid = 7000 + told.iteration
    row = Moments("opacity", "opacity", "", 5, 1.0, 0.2, 0.1 + 1e-3 * told.iteration, 0.9, uid, uid)
    answer = m.Answer("", Summary(5, 0, 0, 0, 5, (row,)))
    return dataclasses.replace(told, selection=m.SelectionState(selected=5), answers={"summary": answer})
engine._snapshot = changing
"""


def held(window: Window, item: str, meanwhile: str = "") -> None:
    """A slow click, with statements while the mouse is down."""
    window.point(*window.middle(item))
    window.input("mousedown", 1)
    window.frames(3)
    if meanwhile:
        window.run(meanwhile)
    window.frames(12)
    window.input("mouseup", 1)
    window.frames(3)


def test_what_is_pressed_is_what_is_clicked(make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.wait_for("shell.model.frame is not None")
    panel = "shell._tabs[next(i for i, (n, p) in shell._tabs.items() if n == {!r})][1]"

    window.run("shell.model.notify('one', 'error', shell.actions.clock())")
    window.frames(3)
    held(window, "shell.notices._cards[0][3]", "shell.model.notify('two', 'error', shell.actions.clock())")
    window.wait_for("[n.text for n in shell.model.notices if not n.dismissed] == ['two']")
    window.run("shell.model.notices[-1].dismissed = True")

    window.run(CHANGING)
    open_tab(window, "select")
    window.wait_for("shell.model.snapshot.selection.selected == 5")
    low = panel.format("select") + "._rows['opacity'][1][2]"
    window.wait_for(f"dpg.is_item_visible({low})")
    before = window.get(f"dpg.get_item_label({low})")
    held(window, low, f"uid = {panel.format('select')}._uids[{low}]")
    window.wait_for("any(type(c).__name__ == 'Select' and c.uid for c in engine.received)")
    assert window.get("[c.uid for c in engine.received if type(c).__name__ == 'Select' and c.uid] == [uid]")
    window.wait_for(f"dpg.get_item_label({low}) != {before!r}")

    open_tab(window, "densify")
    window.run("engine.playing = False; engine.events.put(m.Densified(9000, 77, count=5000))")
    log = panel.format("densify") + ".events"
    window.wait_for(f"{log}._newest and {log}._newest[0].iteration == 9000")
    window.run(f"dpg.set_y_scroll(dpg.get_item_parent(dpg.get_item_parent({log}.table)), 1e5)")
    window.frames(6)
    held(window, f"{log}._rows[0][1]", "engine.events.put(m.Densified(9100, 78, count=5000))")
    window.wait_for(f"{log}._chosen is not None and {log}._newest[0].iteration == 9100")
    assert window.get(f"{log}._chosen.iteration") == 9000
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0
