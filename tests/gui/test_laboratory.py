"""The alpha-rule laboratory in a real window with the real engine on the demo: compare, select, heatmap, two lanes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gui.conftest import Window

START = 120.0    # s until the first steps of the demo, compiling the kernels included
PANEL = "next(p for n, p in shell._tabs.values() if n == 'lab')"


def open_tab(window: Window, name: str) -> None:
    window.run(f"dpg.set_value(shell._tab_bar, next(i for i, (n, p) in shell._tabs.items() if n == {name!r}))")
    window.wait_for(f"shell._tab() == {name!r}")
    window.frames(4)


def press(window: Window, label: str) -> None:
    """A click on the button of this label that can be seen."""
    item = window.get(f"next(i for i in dpg.get_all_items() if dpg.get_item_label(i) == {label!r} "
                      "and dpg.is_item_visible(i))")
    window.click(*window.middle(str(item)))


@pytest.mark.thorough
def test_rules_are_compared_and_lanes_run_by_mouse(make_window: Callable[..., Window]) -> None:
    window = make_window(demo=True)
    window.peek_for("shell.model.snapshot.iteration > 60", START)
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    at = window.get("shell.model.snapshot.iteration")
    open_tab(window, "lab")
    press(window, "Compare on this view")
    window.wait_for(f"{PANEL}._shown is not None and dpg.is_item_visible({PANEL}._results)")
    same = window.get(f"{PANEL}._shown.image_difference")
    assert same == 0 and window.get(f"dpg.get_value({PANEL}._cells['loss', 0]) == dpg.get_value({PANEL}._cells['loss', 1])")
    assert window.get(f"dpg.get_value({PANEL}._cells['clamped pixels', 0])").endswith("%")
    # a smooth cutoff makes another picture, so that there are differences to show whatever the demo has clamped
    window.click(*window.middle(f"{PANEL}._inputs[1]['smooth_cutoff']"))
    press(window, "Compare on this view")
    window.wait_for(f"{PANEL}._shown.image_difference > 0")
    window.frames(4)
    row, uid, cells = window.get(f"{PANEL}._rows[0]")
    assert window.get(f"dpg.is_item_visible({row})")
    window.click(*window.middle(str(uid)))
    window.wait_for(f"shell.model.snapshot.selected is not None and shell.model.snapshot.selected.uid == "
                    f"dpg.get_item_user_data({uid})")
    press(window, "As heatmap")
    window.wait_for("shell.model.frame.mode == 'heatmap' and 'B − A' in shell.model.frame.legend.label")
    window.point(*window.middle(f"{PANEL}._title"))
    for _ in range(8):   # down to the lanes
        window.input("click", 5)
    window.wait_for("any(dpg.get_item_label(i) == 'Run both' and dpg.is_item_visible(i) for i in dpg.get_all_items())")
    window.frames(4)
    window.run(f"dpg.set_value({PANEL}._steps_item, '6')")
    press(window, "Run both")
    window.wait_for(f"{PANEL}._lanes is not None and {PANEL}._lanes.done == 6 and "
                    f"{PANEL}._lanes.b.held_out == {PANEL}._lanes.b.held_out")
    assert window.get("shell.model.snapshot.iteration") == at
    assert not window.get("list(shell._complained)")
    assert window.close() == 0
