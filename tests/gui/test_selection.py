"""Numbers per Gaussian and selecting them, by real mouse and keys in the whole program on the demo, paused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.gui.conftest import Window

pytestmark = pytest.mark.thorough

SELECTED = "shell.model.snapshot.selection.selected"
STATE = "vars(shell.model.snapshot.selection)"


def panel(name: str) -> str:
    return f"next(p for n, p in shell._tabs.values() if n == {name!r})"


def show(window: Window, name: str) -> None:
    """By a click on the tab."""
    tab = window.get(f"next(t for t, (n, _) in shell._tabs.items() if n == {name!r})")
    window.click(*window.middle(str(tab)))
    window.wait_for(f"shell._tab() == {name!r}")
    window.frames(3)


@pytest.fixture(scope="module")
def program(make_window: Callable[..., Window]) -> Iterator[Window]:
    """Trained for a few steps, paused, the camera at a photograph's place."""
    window = make_window(demo=True)
    window.wait_for("shell.model.frame is not None and shell.model.snapshot.iteration >= 20", "the first steps")
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    yield window
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


@pytest.fixture
def window(program: Window) -> Window:
    """With nothing selected, and the mouse on the picture."""
    program.run("shell.actions.set_tool('navigate'); shell.actions.clear_selection(); shell.view.keep = None")
    program.wait_for(f"not {SELECTED} and shell.model.snapshot.frame.detail == 1.0")
    program.point(*program.middle("shell.viewport.canvas"))
    return program


def uids(window: Window) -> set[int]:
    """Of the selected, as the engine has them."""
    return set(window.get("engine.model.params.uids[engine.selection.mask()].tolist()"))


def drag(window: Window, points: list[tuple[float, float]]) -> None:
    window.point(*points[0])
    words: list[object] = ["mousedown", 1, "sleep", "0.15"]
    for x, y in points[1:]:
        words += ["mousemove", round(x), round(y), "sleep", "0.02"]
    window.input(*words, "sleep", "0.15", "mouseup", 1)


def inside(window: Window, path: list[tuple[float, float]]) -> set[int]:
    """uids of the Gaussians whose mean lies within a screen polygon, by what the window knows."""
    from matplotlib.path import Path

    fit = window.get("vars(shell.viewport.fit)")
    x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    means = np.array(window.get("engine.model.params.means.detach().numpy()"))
    camera = window.get("[shell.model.frame.camera.viewmat, shell.model.frame.camera.K]")
    viewmat, K = np.array(camera[0]), np.array(camera[1])
    local = means @ viewmat[:3, :3].T + viewmat[:3, 3]
    pixels = local[:, :2] / local[:, 2:] * K[[0, 1], [0, 1]] + K[:2, 2]
    screen = np.array([x0 + fit["x"], y0 + fit["y"]]) + pixels * fit["shown_width"] / fit["width"]
    found = Path(path).contains_points(screen) & (local[:, 2] > 0.01)
    return set(np.array(window.get("engine.model.params.uids.tolist()"))[found].tolist())


def alike(a: set[int], b: set[int]) -> bool:
    """But for those on the line itself."""
    return len(a ^ b) <= 0.1 * len(a | b)


def test_a_range_dragged_in_the_histogram_selects_the_gaussians_in_it(window: Window) -> None:
    show(window, "numbers")
    window.run("shell.view.quantity = 'opacity'")
    window.wait_for("shell.model.snapshot.answers['histogram'].question.quantity == 'opacity' and "
                    f"{panel('numbers')}._answer is not None")
    window.frames(4)
    x, y = window.get(f"dpg.get_item_rect_min({panel('numbers')}.plot.item)")
    w, h = window.get(f"dpg.get_item_rect_size({panel('numbers')}.plot.item)")
    drag(window, [(x + share * w, y + 0.5 * h) for share in np.linspace(0.4, 0.7, 8)])
    window.wait_for(SELECTED, "a selection")
    lo, hi = window.get(f"{panel('numbers')}._range")
    opacity = np.array(window.get("engine.model.gaussians().opacities.tolist()"))
    who = np.array(window.get("engine.model.params.uids.tolist()"))
    assert uids(window) == set(who[(opacity >= np.float32(lo)) & (opacity <= np.float32(hi))].tolist())
    first = uids(window)
    assert 0 < len(first) < len(who)
    window.wait_for("shell.model.snapshot.answers['histogram'].value.selected.sum() > 0", "shown in the histogram")
    window.input("keydown", "ctrl")   # takes the upper part away
    drag(window, [(x + share * w, y + 0.5 * h) for share in np.linspace(0.55, 0.8, 8)])
    window.input("keyup", "ctrl")
    window.wait_for(f"{SELECTED} < {len(first)}")
    assert uids(window) < first
    window.click(*window.middle(f"{panel('numbers')}._filter"))
    window.wait_for("shell.model.frame.note.endswith('are not drawn.')")
    window.click(*window.middle(f"{panel('numbers')}._filter"))
    window.wait_for("not shell.model.frame.note")


def test_a_row_of_the_table_selects_and_shift_adds(window: Window) -> None:
    show(window, "numbers")
    window.wait_for("shell.model.snapshot.answers.get('table') is not None and "
                    "shell.model.snapshot.answers['table'].value is not None")
    table = f"{panel('numbers')}.ranking"
    leaders = window.wait_for(f"{table}._uids[:3]")

    def click(row: int) -> None:
        x, y = window.get(f"dpg.get_item_rect_min({table}._rows[{row}][2][1])")
        window.click(x + 6, y + 6)

    click(1)
    window.wait_for(f"shell.model.snapshot.selected is not None and shell.model.snapshot.selected.uid == {leaders[1]}")
    assert uids(window) == {leaders[1]}
    window.input("keydown", "shift")
    click(2)
    window.wait_for(f"{SELECTED} == 2")
    window.input("keyup", "shift")
    assert uids(window) == set(leaders[1:3])
    window.wait_for("shell.model.snapshot.answers['table'].value.selected.sum() == 2")


def test_rectangle_lasso_and_brush_select_what_is_inside(window: Window) -> None:
    x, y = window.middle("shell.viewport.canvas")
    window.input("key", "r")
    window.wait_for("shell.view.tool == 'rectangle'")
    corners = [(x - 70, y - 40), (x + 60, y - 40), (x + 60, y + 50), (x - 70, y + 50)]
    drag(window, [corners[0], (x, y), corners[2]])
    window.wait_for(SELECTED)
    rectangle = uids(window)
    assert len(rectangle) > 20 and alike(rectangle, inside(window, corners))
    window.input("key", "t")
    window.wait_for("shell.view.tool == 'lasso'")
    circle = [(x + 110 + 40 * math.cos(a), y + 40 * math.sin(a)) for a in np.linspace(0, 2 * math.pi, 24)]
    window.input("keydown", "shift")
    drag(window, circle)
    window.input("keyup", "shift")
    window.wait_for(f"{SELECTED} > {len(rectangle)}")
    both = uids(window)
    assert rectangle < both and alike(both - rectangle, inside(window, circle) - rectangle)
    eye = window.get("shell.view.rig.eye")
    window.input("key", "b")
    window.wait_for("shell.view.tool == 'brush'")
    window.input("keydown", "ctrl")
    drag(window, [(x - 60 + 10 * i, y) for i in range(10)])
    window.input("keyup", "ctrl")
    window.wait_for(f"{SELECTED} < {len(both)}")
    assert uids(window) < both
    assert window.get("shell.view.rig.eye") == eye   # no tool turned the camera
    window.input("key", "Escape")
    window.wait_for("shell.view.tool == 'navigate'")
    assert uids(window)
    window.input("key", "Escape")
    window.wait_for(f"{SELECTED} == 0")


def test_clicks_add_take_away_and_go_through_what_lies_behind(window: Window) -> None:
    x, y = window.middle("shell.viewport.canvas")
    window.click(x, y)
    window.wait_for(f"{SELECTED} == 1")
    first = uids(window)
    window.input("keydown", "alt")
    window.click(x, y)
    window.wait_for(f"{SELECTED} == 1 and shell.model.snapshot.selected.uid != {min(first)}")
    window.input("keyup", "alt")
    behind = uids(window)
    window.input("keydown", "shift")
    window.click(x, y)
    window.wait_for(f"{SELECTED} == 2")
    window.input("keyup", "shift")
    assert uids(window) == first | behind
    window.input("keydown", "ctrl")
    window.click(x, y)
    window.wait_for(f"{SELECTED} == 1")
    window.input("keyup", "ctrl")
    assert uids(window) == behind
    assert window.wait_for("shell.model.frame.outlines is not None and len(shell.model.frame.outlines)") == 1


def test_freezing_hiding_deleting_and_undo(window: Window) -> None:
    """By the buttons of the panel and by Ctrl+Z; what is frozen stands still while it trains."""
    show(window, "select")
    x, y = window.middle("shell.viewport.canvas")
    window.input("mousemove", round(x), round(y), "key", "r")
    window.wait_for("shell.view.tool == 'rectangle'")
    drag(window, [(x - 50, y - 50), (x, y), (x + 50, y + 50)])
    count = window.wait_for(SELECTED)
    window.wait_for("shell.model.snapshot.answers.get('summary') is not None and "
                    f"shell.model.snapshot.answers['summary'].value.count == {count}")

    def press(label: str) -> None:
        item = window.get(f"next(i for i in dpg.get_all_items() if dpg.get_item_label(i) == {label!r} and "
                          "dpg.get_item_type(i).endswith('mvButton') and dpg.is_item_visible(i))")
        window.click(*window.middle(str(item)))

    press("Freeze")
    window.wait_for(f"{STATE}['frozen'] == {count}")
    mask = "engine.selection.mask('mark.frozen')"
    window.run(f"shell.kept = engine.model.params.means.detach()[{mask}].clone()")
    step = window.get("shell.model.snapshot.iteration")
    window.point(x, y)
    window.input("key", "n")
    window.wait_for(f"shell.model.snapshot.iteration == {step + 1}")
    assert window.get(f"bool((engine.model.params.means.detach()[{mask}] == shell.kept).all())")
    assert window.get("float(engine.model.reading('adam_means').values.max())") > 0
    press("Hide")
    window.wait_for(f"{STATE}['hidden'] == {count}")
    window.wait_for("'are not drawn' in shell.model.frame.note")
    total = window.get("shell.model.snapshot.gaussians")
    window.point(x, y)
    window.input("key", "Delete")
    window.wait_for(f"shell.model.snapshot.gaussians == {total - count}")
    for undone in (f"shell.model.snapshot.gaussians == {total} and {SELECTED} == {count}", f"{STATE}['hidden'] == 0",
                   f"{STATE}['frozen'] == 0", f"{SELECTED} == 0"):
        window.input("key", "ctrl+z")
        window.wait_for(undone)
    window.input("key", "ctrl+y")
    window.wait_for(f"{SELECTED} == {count}")


def test_an_empty_panel_says_what_to_do(window: Window) -> None:
    show(window, "select")
    assert window.get(f"dpg.is_item_shown({panel('select')}._none)")
    assert not window.get(f"dpg.is_item_shown({panel('select')}._body)")


@pytest.mark.parametrize("scale", ["1.5", "2.0"])
def test_picking_at_the_four_corners_at_every_scale(make_window: Callable[..., Window], scale: str) -> None:
    """At 100 % it is a test of test_window.py."""
    window = make_window(environment={"SPLATSCOPE_UI_SCALE": scale})
    window.wait_for("shell.model.frame is not None")
    window.run("engine.playing = False; shell.model.notices.clear()")
    window.wait_for("not shell.view.moving(shell.clock())")
    window.frames(4)
    fit = window.get("vars(shell.viewport.fit)")
    x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    left, top = round(x0 + fit["x"]) + 6, round(y0 + fit["y"]) + 6
    right, bottom = round(x0 + fit["x"] + fit["shown_width"]) - 7, round(y0 + fit["y"] + fit["shown_height"]) - 7
    for x, y in ((left, top), (right, top), (left, bottom), (right, bottom)):
        before = window.received("Select")
        window.click(x, y)
        window.wait_for(f"sum(type(c).__name__ == 'Select' for c in engine.received) == {before + 1}")
        chosen = window.get("[engine.received[-1].x, engine.received[-1].y, engine.received[-1].camera.width, "
                            "engine.received[-1].camera.height]")
        u, v = (x - x0 - fit["x"]) / fit["shown_width"], (y - y0 - fit["y"]) / fit["shown_height"]
        tolerance = 1.0 / fit["shown_width"]
        assert abs(chosen[0] / chosen[2] - u) <= tolerance and abs(chosen[1] / chosen[3] - v) <= tolerance
    window.input("key", "r")
    window.wait_for("shell.view.tool == 'rectangle'")
    drag(window, [(left, top), (left + 50, top + 40), (left + 80, top + 60)])
    window.wait_for("type(engine.received[-1]).__name__ == 'SelectRegion'")
    path = np.array(window.get("engine.received[-1].path"))
    size = window.get("[engine.received[-1].camera.width, engine.received[-1].camera.height]")
    expected = (np.array([left, top]) - [x0 + fit["x"], y0 + fit["y"]]) / [fit["shown_width"], fit["shown_height"]]
    assert np.abs(path[0] / size - expected).max() <= 1.0 / fit["shown_width"]
    assert window.close() == 0
