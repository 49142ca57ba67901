"""Tooltips: beside what they explain, only of what can be seen, and of greyed controls, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.gui import formatting, layout
from app.gui.layout import Rect
from app.gui.preferences import Preferences
from app.gui.tips import placed, wrapped
from tests.gui.conftest import Window
from tests.gui.test_laboratory import open_tab

TALL = 60


def overlap(a: Rect, b: Rect) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


@pytest.mark.parametrize("window, scale", [((1280, 720), 1.0), ((1280, 720), 1.5), ((1920, 1080), 2.0), ((700, 500), 1.0)])
def test_a_tooltip_never_covers_what_it_explains(window: tuple[int, int], scale: float) -> None:
    columns = layout.compute(*window, scale, Preferences())
    for of in (Rect(window[0] - 90, 100, 80, 22), Rect(window[0] - 200, window[1] - 50, 190, 22), Rect(10, 200, 150, 20),
               Rect(10, 8, 90, 28), Rect(window[0] - 40, 8, 28, 28), Rect(window[0] // 2, window[1] - 24, 60, 20)):
        for of_the_window in (columns, None):
            r = placed(of, round(320 * scale), TALL, window, of_the_window, 8)
            assert not overlap(r, of), (of, r)
            assert r.x >= 0 and r.x + r.width <= window[0] and r.y >= 0 and r.y + r.height <= window[1]


def test_a_tooltip_of_the_inspector_stands_left_of_it() -> None:
    columns = layout.compute(1280, 720, 1.0, Preferences())
    r = placed(Rect(columns.right.x + 40, 300, 80, 22), 320, TALL, (1280, 720), columns, 8)
    assert r.x + r.width <= columns.right.x


def test_lines_break_between_words() -> None:
    assert wrapped("one two three\nfour", 7, len) == ["one two", "three", "four"]
    assert wrapped("unbreakable", 4, len) == ["unbreakable"]
    assert wrapped("at 0.001784.", 5, len) == ["at", "0.001784."]
    assert wrapped("all 1 234 567 of 12 views", 5, len) == ["all", "1 234 567", "of 12", "views"]
    assert wrapped("Depth   a view", 9, len) == ["Depth   a", "view"]


def test_numbers_of_the_engine_are_written_as_the_window_writes_them() -> None:
    said = "All 3,000 iterations of 12,345,678 are done, 1,000; loss 0,123."
    assert formatting.spaced(said) == "All 3 000 iterations of 12 345 678 are done, 1 000; loss 0,123."
    for kept in ("Saved /data/run_1,234/a.ply.", "branch 'at 1,500' goes", "3,14 and 1,2345", "x1,234"):
        assert formatting.spaced(kept) == kept


@pytest.mark.thorough
def test_only_what_is_seen_has_a_tooltip(make_window: Callable[..., Window]) -> None:
    """Beside a hidden button one tooltip shows, and a greyed button has its own."""
    window = make_window()
    window.wait_for("shell.model.frame is not None")
    open_tab(window, "options")
    window.run("options = next(p for n, p in shell._tabs.values() if n == 'options')")
    window.point(*window.middle("options._presets.apply"))
    assert "what would change" in window.wait_for("shell.tips.text")
    window.point(640, 300)
    window.wait_for("shell.tips.text == ''")
    open_tab(window, "control")
    window.run("control = next(p for n, p in shell._tabs.values() if n == 'control'); "
               "dpg.configure_item(control._parts['optimiser'], enabled=False)")
    window.point(*window.middle("control._parts['optimiser']"))
    assert "gradients that are known" in window.wait_for("shell.tips.text")
    r = window.get("[shell.tips.rect.x, shell.tips.rect.width, shell.layout.right.x]")
    assert r[0] + r[1] <= r[2]
    assert window.close() == 0
