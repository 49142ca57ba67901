"""A window that is really minimised, by a window manager: its loop stands still inside the toolkit meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gui.conftest import Window

MB = 1 << 20
START = 120.0    # s until the first steps of the demo, compiling the kernels included
NOW = "[engine.clock(), engine.model.iteration]"
DRAWN = "[shell.frames, engine.viewer.frame.sequence]"


def steps_per_second(window: Window, seconds: float) -> float:
    """Over the next `seconds`, asked without the window's thread."""
    begun, first = window.peek(NOW)
    window.peek_for(f"engine.clock() >= {begun + seconds}", seconds + START)
    end, last = window.peek(NOW)
    return (last - first) / (end - begun)


@pytest.mark.thorough
def test_G03_training_keeps_its_speed_while_minimised(make_window: Callable[..., Window]) -> None:
    """The whole program: no step waits for the window, no picture is drawn for nobody, and all is back when it is."""
    window = make_window(demo=True, managed=True)
    window.peek_for("engine.model is not None and engine.model.iteration >= 30 and engine.viewer.frame is not None", START)
    size, before = window.get("list(shell._size)"), steps_per_second(window, 4.0)
    window.minimise()
    window.peek_for("engine.viewer.request.hidden")
    drawn = window.peek(DRAWN)
    meanwhile = steps_per_second(window, 6.0)
    assert window.peek(DRAWN) == drawn, "nobody looks"
    iteration = window.peek("engine.model.iteration")
    window.restore()
    window.wait_for(f"shell.model.snapshot.iteration > {iteration} and shell.model.frame.iteration > {iteration}")
    assert window.get("list(shell._size)") == size
    after = steps_per_second(window, 4.0)
    # It is rather faster, since nothing is drawn; the margin is for a machine that does other things as well. A step that
    # waits for the window brings it to zero.
    assert meanwhile > 0.75 * (before + after) / 2 > 0, (before, meanwhile, after)
    window.point(size[0] / 2, size[1] / 2)
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'", "keys reach it again")
    assert window.get("shell._complained == set()")
    assert window.close() == 0


@pytest.mark.thorough
def test_G14_a_minimised_window_closes_as_any_other(make_window: Callable[..., Window]) -> None:
    """As when its entry in the taskbar is closed: at once, with exit code 0, in the middle of training."""
    window = make_window(busy=True, managed=True)
    window.wait_for("shell.model.snapshot.iteration > 3")
    window.minimise()
    assert window.close() == 0
    assert window.preferences.exists()


@pytest.mark.thorough
def test_G04_the_news_of_five_minutes_minimised_fit_into_memory(make_window: Callable[..., Window]) -> None:
    """18,000 steps and 4,500 snapshots (15 a second) of an engine in a hurry: RSS grows by less than 50 MB, read or unread."""
    window = make_window(managed=True)
    window.wait_for("shell.model.frame is not None and shell.model.snapshot.iteration > 30")
    window.minimise()
    before, iteration, version = window.rss(), window.peek("engine.iteration"), window.peek("engine.snapshots.get()[0]")
    window.peek("vars(engine).update(speed=3000.0, iterations=10 ** 9, turn_seconds=0.0005, publish_seconds=0.0)")
    window.peek_for(f"engine.iteration > {iteration + 18000} and engine.snapshots.get()[0] > {version + 4500}", 120.0)
    window.peek("vars(engine).update(speed=60.0, turn_seconds=0.004, publish_seconds=0.02)")
    assert window.rss() - before < 50 * MB
    window.restore()
    window.wait_for(f"shell.model.snapshot.iteration > {iteration + 18000}", "it has caught up")
    window.frames(4)
    assert window.rss() - before < 50 * MB
    assert window.get("shell._complained == set()")
    assert window.close() == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_G04_five_minutes_minimised(make_window: Callable[..., Window]) -> None:
    """The whole program, really training, for 300 s: RSS grows by less than 50 MB."""
    window = make_window(demo=True, managed=True)
    window.peek_for("engine.model is not None and engine.model.iteration >= 200 and engine.viewer.frame is not None", START)
    window.minimise()
    before, begun = window.rss(), window.peek("engine.model.iteration")
    steps_per_second(window, 300.0)
    assert window.peek("engine.model.iteration") > begun + 300 and window.peek("engine.state") == "running"
    assert window.rss() - before < 50 * MB
    window.restore()
    window.frames(4)
    assert window.rss() - before < 50 * MB
    assert window.close() == 0
