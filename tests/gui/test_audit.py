"""Auditing a rasterizer from the window: a shipped one is clean, a missing one is a sentence; training goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gui.conftest import Window
from tests.gui.test_laboratory import START, open_tab

PANEL = "next(p for n, p in shell._tabs.values() if n == 'audit')"


@pytest.mark.thorough
def test_a_rasterizer_is_audited_by_mouse_while_training_goes_on(make_window: Callable[..., Window]) -> None:
    window = make_window(demo=True)
    window.peek_for("shell.model.snapshot.iteration > 60", START)
    open_tab(window, "audit")
    window.click(*window.middle(f"{PANEL}.target"))
    window.input("type", "nowhere:render")
    window.input("key", "Return")
    window.wait_for("any('nowhere' in n.text for n in shell.model.notices)")
    window.run(f"dpg.set_value({PANEL}.target, 'plain'); dpg.set_value({PANEL}._scene, False)")
    window.click(*window.middle(f"{PANEL}.go"))
    at = window.get("shell.model.snapshot.iteration")
    window.peek_for("shell.model.audited is not None", 120)
    window.frames(4)
    assert window.get("shell.model.audited.clean") and window.get("shell.model.snapshot.iteration") > at
    assert "alpha max" in window.get(f"dpg.get_value({PANEL}._text)")
    assert window.get(f"dpg.get_value({PANEL}._verdict)") == "plain: no fault was found."
    assert not window.get("list(shell._complained)")
    assert window.close() == 0
