"""The gradient check by mouse, on the demo: all parameters right, the kinks named, the U-curve drawn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gui.conftest import Window
from tests.gui.test_laboratory import open_tab
from tests.gui.test_picture_tools import paused_demo

PANEL = "next(p for n, p in shell._tabs.values() if n == 'check')"


@pytest.mark.thorough
def test_gradients_of_random_gaussians_are_checked_by_mouse(make_window: Callable[..., Window]) -> None:
    window = paused_demo(make_window)
    open_tab(window, "check")
    window.click(*window.middle(f"{PANEL}.check"))
    window.peek_for("shell.model.checked is not None", 150)   # the first check builds the kernels in double precision
    window.frames(6)
    assert window.get(f"{PANEL}._report.ok") and len(window.get(f"{PANEL}._report.gaussians")) == 10
    assert window.get(f"dpg.get_value({PANEL}._verdict)") == "Every gradient is right."
    assert window.get(f"[p.parameter for p in {PANEL}._report.parameters]") == \
        ["means", "quats", "log_scales", "logit_opacities", "sh0"]   # SH bands above 0 are not in use yet
    name = window.get(f"{PANEL}._rows[1][1]")
    window.click(*window.middle(str(name)))
    window.wait_for(f"{PANEL}._curve == 'quats'")
    assert "quats[" in window.get(f"dpg.get_value({PANEL}._slopes)")
    assert not window.get("list(shell._complained)")
    assert window.close() == 0
