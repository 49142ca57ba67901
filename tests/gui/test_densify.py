"""The Densify panel in a real window with the real engine on the demo: preview, threshold, densify now, events, strategies."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from app.config import DensifyConfig
from app.gui.panels.densify_strategy import ABOUT, FIELDS, LABELS
from app.messages import MODES
from tests.gui.conftest import Window
from tests.gui.test_laboratory import START, open_tab

PANEL = "next(p for n, p in shell._tabs.values() if n == 'densify')"
ANSWER = "shell.model.snapshot.answers.get('candidates')"


def test_every_strategy_and_every_option_has_its_place_in_the_panel():
    names = set(DensifyConfig.__dataclass_fields__) - {"strategy"}
    choices = set(DensifyConfig.__dataclass_fields__["strategy"].metadata["choices"])
    assert set(FIELDS) == set(LABELS) == set(ABOUT) == choices
    assert set().union(*FIELDS.values()) == names and "never lowers" in ABOUT["mcmc"]   # F14
    assert MODES["candidates"].key == "J"


def wheel(window: Window, shown: str) -> None:
    """Down until `shown` can be seen whole; on the scroll bar, where no table takes the wheel."""
    window.point(window.get("shell.layout.right.x + shell.layout.right.width") - 16, 400)
    for _ in range(60):
        if window.get(f"dpg.is_item_visible({shown}) and dpg.get_item_rect_max({shown})[1] < shell._size[1] - 60"):
            return
        window.input("click", 5)
        window.frames(2)
    raise AssertionError(f"{shown} does not come into sight")


@pytest.mark.thorough
def test_preview_threshold_densify_now_and_the_record_of_an_event(make_window: Callable[..., Window]) -> None:
    window = make_window(demo=True)
    window.peek_for("shell.model.snapshot.iteration > 20", START)
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    window.run("from app.messages import SetOption; engine.commands.put(SetOption('densify.strategy', 'adc'))")
    open_tab(window, "densify")
    window.wait_for(f"dpg.get_value({PANEL}.strategy.combo) == {LABELS['adc']!r}")
    window.click(*window.middle(f"{PANEL}.preview.toggle"))
    window.wait_for("shell.model.frame.mode == 'candidates' and shell.model.frame.legend.entries")
    window.wait_for(f"{ANSWER} is not None and {ANSWER}.value is not None")
    told = window.get(f"[{ANSWER}.value.of(n) for n in ('clone', 'split', 'prune')] + [{ANSWER}.value.after]")
    assert told[0] + told[1] > 0
    assert window.get("{n: c for n, _, c in shell.model.frame.legend.entries}") == {
        name: count for name, count in zip(("clone", "split", "prune"), told[:3], strict=True) if count}

    # a lower threshold is dragged: more would grow, and the panel says how many more
    x, y = window.middle(f"{PANEL}._plot_item")
    left, width = window.get(f"dpg.get_item_rect_min({PANEL}._plot_item)[0], dpg.get_item_rect_size({PANEL}._plot_item)[0]")
    before = window.get("shell.model.config['densify.grad_threshold']")
    limits = window.get(f"dpg.get_axis_limits({PANEL}._x)")
    share = (math.log10(before) - math.log10(limits[0])) / (math.log10(limits[1]) - math.log10(limits[0]))
    inner = window.get(f"dpg.get_item_state({PANEL}._plot_item)['content_region_avail']")
    right = left + width - 10
    at = right - (1 - share) * inner[0] if inner and inner[0] < width else left + 64 + share * (width - 74)
    window.point(at, y)
    window.input("mousedown", 1)
    window.frames(3)
    for step in range(1, 5):
        window.point(at - 10 * step, y)
    window.wait_for(f"shell.model.config['densify.grad_threshold'] < {before}")
    window.wait_for(f"{ANSWER}.value.clone + {ANSWER}.value.split > {told[0] + told[1]}")
    assert window.get(f"any('(+' in dpg.get_value(v) for _, v, _ in {PANEL}.preview._rows.values())")
    window.input("mouseup", 1)
    window.frames(4)

    after = window.get(f"{ANSWER}.value.after")
    window.click(*window.middle(f"{PANEL}.preview.now"))
    window.wait_for("len(shell.model.densified) == 1 and shell.model.densified[0].asked")
    window.wait_for(f"shell.model.snapshot.gaussians == {after}")

    wheel(window, f"{PANEL}.events._rows[0][1]")
    window.click(*window.middle(f"{PANEL}.events._rows[0][1]"))
    window.wait_for("shell.model.snapshot.answers.get('event') is not None")
    wheel(window, f"{PANEL}.events._parts[1][1][0]")
    assert "≥" in window.get(f"dpg.get_value({PANEL}.events._parts[0][1][2])")
    uid = window.get(f"{PANEL}.events._select[1]")
    window.click(*window.middle(f"{PANEL}.events._parts[1][1][0]"))
    window.wait_for(f"shell.model.snapshot.selected is not None and shell.model.snapshot.selected.uid == {uid}")

    for strategy in ("mcmc", "taming", "absgs", "none"):
        window.run(f"engine.commands.put(SetOption('densify.strategy', {strategy!r}))")
        window.wait_for(f"{ANSWER}.value is not None and {ANSWER}.value.strategy == {strategy!r}")
        shown = window.get(f"[c.spec.path for c in {PANEL}.strategy._fields.controls if dpg.is_item_shown(c.row)]")
        assert shown == [path for path in shown if path.removeprefix('densify.') in FIELDS[strategy]] and shown
        assert window.get(f"{ANSWER}.value.problem") or strategy != "none"
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0
