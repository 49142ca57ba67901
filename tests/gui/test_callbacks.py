"""What callbacks may cost, and what happens when one fails, in a real window."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gui.conftest import Window


def test_G18_a_slider_drag_of_1000_events_ends_on_the_last_value(window: Window) -> None:
    window.run("dpg.set_value(shell._tab_bar, next(t for t, (n, _) in shell._tabs.items() if n == 'alpha'))")
    window.wait_for("shell._tab() == 'alpha'")
    control = "next(p for n, p in shell._tabs.values() if n == 'alpha')._fields.controls[0]"
    window.frames(3)
    x, y = window.middle(f"{control}._slider")
    window.point(x, y)
    before = window.received("SetOption")
    words: list[object] = ["mousedown", 1]
    for i in range(1000):
        words += ["mousemove", round(x - 12 + i % 17), round(y)]
    window.input(*words, "mousemove", round(x + 6), round(y), "sleep", 0.2, "mouseup", 1)
    window.wait_for(f"not dpg.is_item_active({control}._slider)")
    window.frames(3)
    shown = window.get(f"{control}.spec.from_slider(dpg.get_value({control}._slider))")
    sent = window.get("[c.value for c in engine.received if type(c).__name__ == 'SetOption' and c.name == 'raster.alpha_max']")
    assert sent and sent[-1] == shown != 0.99
    assert window.get("shell.model.config['raster.alpha_max']") == shown
    assert window.received("SetOption") - before <= 1000
    window.click(*window.middle(f"{control}._reset"))
    window.wait_for("shell.model.config['raster.alpha_max'] == 0.99", "reset to default")


@pytest.mark.thorough
def test_G18_no_callback_takes_5_ms(window: Window) -> None:
    """Keys and clicks: what takes longer is the engine's. On a busy machine any may have to wait for the processor, so
    its own time counts for each, and the clock's for nine in ten."""
    window.run("""
import gc, time, app.gui.shell as module
shell.real_run_jobs, shell.costs = module.run_jobs, []
def timed(jobs, failed):
    for job in jobs or []:
        gc.disable()   # all garbage of the program is collected whenever, in whatever runs then
        clock, own = time.perf_counter(), time.thread_time()
        shell.real_run_jobs([job], failed)
        shell.costs.append([time.thread_time() - own, time.perf_counter() - clock, str(job[0])])
        gc.enable()
module.run_jobs = timed
""")
    x, y = window.middle("shell.viewport.canvas")
    for keys in ("123456789", "ogcxfulip", "iph"):
        window.point(x, y)
        for key in keys:
            window.input("key", key)
            window.frames(2)
    for key in ("Escape", "ctrl+o", "Escape", "ctrl+s", "Escape", "bracketright", "bracketleft"):
        window.input("key", key)
        window.frames(3)
    window.click(x, y)
    window.frames(3)
    costs = window.get("shell.costs")
    window.run("import app.gui.shell as module\nmodule.run_jobs = shell.real_run_jobs")
    assert len(costs) > 40 and max(costs)[0] < 0.005, sorted(costs)[-3:]
    assert sorted(clock for _, clock, _ in costs)[int(0.9 * len(costs))] < 0.005


def test_one_failing_callback_does_not_drop_the_rest(make_window: Callable[..., Window]) -> None:
    """The defect is said in the window; the window goes on. Also the empty state: no scene is open."""
    window = make_window(with_scene=False, environment={"SPLATSCOPE_UI_SCALE": "150%"})
    assert window.get("shell.theme.scale") == 1.5
    assert window.get("shell.model.empty_text")[0] == "No scene is open"
    window.run("def broken(*args):\n    raise RuntimeError('on purpose')\nshell.plots.update = broken")
    window.wait_for("any('on purpose' in n.text for n in shell.model.notices)")
    frames = window.get("shell.frames")
    window.wait_for(f"shell.frames > {frames + 3}")
    assert window.get("sum('on purpose' in n.text for n in shell.model.notices)") == 1
    assert window.close() == 0
