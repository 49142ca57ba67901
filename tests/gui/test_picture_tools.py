"""Split pictures, signed difference, losses of all views and saved pictures, by mouse and keys on the demo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gui.conftest import Window
from tests.gui.test_laboratory import START, open_tab, press

pytestmark = pytest.mark.thorough
VIEWS = "next(p for n, p in shell._tabs.values() if n == 'views')"


def paused_demo(make_window: Callable[..., Window], **options) -> Window:
    window = make_window(demo=True, **options)
    window.peek_for("shell.model.snapshot.iteration > 60", START)
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    return window


def line(window: Window) -> tuple[float, float]:
    """Screen px of the divider's grip."""
    x, y, width, height = window.get("[shell.viewport.fit.x, shell.viewport.fit.y, shell.viewport.fit.shown_width, "
                                     "shell.viewport.fit.shown_height]")
    left, top = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    return left + x + window.get("shell.view.beside.share") * width, top + y + height / 2


def test_split_difference_losses_and_saved_pictures(make_window: Callable[..., Window], tmp_path: Path) -> None:
    window = paused_demo(make_window)
    window.input("key", "0")   # the signed difference, at a photograph
    window.wait_for("shell.model.frame.mode == 'difference' and shell.model.frame.legend.colormap == 'coolwarm'")
    window.input("key", "1")
    window.run("shell.view.set_beside('truth')")
    window.wait_for("shell.model.frame.request.beside is not None and shell.model.frame.mode == 'color'")
    window.frames(4)
    x, y = line(window)
    window.point(x, y)
    window.input("mousedown", 1)
    window.frames(2)
    window.point(x - 120, y)
    window.frames(2)
    window.input("mouseup", 1)
    window.frames(2)
    assert 0.1 < window.get("shell.view.beside.share") < 0.45
    window.wait_for("abs(shell.model.frame.request.beside.share - shell.view.beside.share) < 1e-6")
    assert window.get("shell.view.view_index") is not None   # the drag did not turn the camera
    window.input("key", "9")
    window.run("shell.view.set_beside('heatmap', 'opacity')")
    window.wait_for("shell.model.frame.legend is not None and shell.model.frame.legend_beside is not None")

    open_tab(window, "views")
    press(window, "Measure now")
    window.wait_for(f"{VIEWS}._found is not None and len({VIEWS}._found.views) == 68")
    window.frames(6)
    first = "dpg.get_item_children(dpg.get_item_children({row}, 1)[0], 1)"   # the selectable and the name behind it
    names = f"[dpg.get_value({first.format(row='r')}[1]) for r in dpg.get_item_children({VIEWS}._table, 1)]"
    rows = window.get(names)
    worst = window.get(f"max({VIEWS}._found.views, key=lambda v: v.loss).name")
    assert len(rows) == 68 and rows[0] == worst
    second = window.get(first.format(row=f"dpg.get_item_children({VIEWS}._table, 1)[1]") + "[1]")
    window.click(*window.middle(str(second)))
    window.wait_for(f"shell.view.views[shell.view.view_index].name == {rows[1]!r}")

    path = tmp_path / "saved.png"
    window.input("key", "ctrl+s")
    window.wait_for("shell.save_dialog.shown")
    window.frames(4)
    press(window, "This view (.png)")
    window.wait_for("dpg.get_value(shell.save_dialog._path).endswith('.png')")
    window.run(f"dpg.set_value(shell.save_dialog._path, {str(path)!r})")
    window.click(*window.middle("shell.save_dialog._path"))
    window.frames(2)
    window.input("key", "Return")
    window.wait_for("any('saved.png' in n.text for n in shell.model.notices)")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not window.get("list(shell._complained)")
    assert window.close() == 0
