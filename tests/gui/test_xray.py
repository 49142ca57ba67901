"""X-ray and Gaussian card in a real window on the demo: hover, pin, step, click a row, by real mouse and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.gui.conftest import Window

pytestmark = pytest.mark.thorough

PANEL = "next(p for n, p in shell._tabs.values() if n == {!r})"
XRAY, CARD = PANEL.format("xray"), PANEL.format("gaussian")
ANSWER = "shell.model.snapshot.answers['xray']"
VALUE = f"{ANSWER}.value"
CROSS = "dpg.get_item_children(shell.viewport._cross._layer, 2)"


@pytest.fixture(scope="module")
def demo(make_window: Callable[..., Window]) -> Iterator[Window]:
    """The whole program, paused after some steps, so that what is read twice is the same."""
    window = make_window(demo=True)
    window.wait_for("shell.model.frame is not None and shell.model.snapshot.iteration > 20")
    window.point(*window.middle("shell.viewport.canvas"))
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    yield window
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


def show_tab(window: Window, name: str) -> None:
    window.run(f"shell._show_tab({name!r})")
    window.wait_for(f"shell._tab() == {name!r}")
    window.frames(3)


def screen_of(window: Window, u: float, v: float) -> tuple[int, int]:
    """Screen px of the share (u, v) of the picture."""
    fit = window.get("vars(shell.viewport.fit)")
    x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    return round(x0 + fit["x"] + u * fit["shown_width"]), round(y0 + fit["y"] + v * fit["shown_height"])


def pixel_at(window: Window, x: int, y: int) -> list[int]:
    """The photograph's pixel under a point of the screen."""
    fit = window.get("vars(shell.viewport.fit)")
    x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    width, height = window.get("[shell.view.views[shell.view.view_index].camera.width, "
                               "shell.view.views[shell.view.view_index].camera.height]")
    return [int((x - x0 - fit["x"]) / fit["shown_width"] * width), int((y - y0 - fit["y"]) / fit["shown_height"] * height)]


def answer_about(window: Window, pixel: list[int]) -> Any:
    window.wait_for(f"'xray' in shell.model.snapshot.answers and [{VALUE}.x, {VALUE}.y] == {pixel} "
                    f"and {ANSWER}.iteration == shell.model.snapshot.iteration", f"X-ray of {pixel}")
    return window.get(VALUE + ".__dict__")


def let_go(window: Window) -> None:
    window.run("shell.view.probe.pinned = None")


def reveal(window: Window, panel: str, item: str) -> None:
    """Scroll the panel until the item stands well inside it."""
    window.run(f"dpg.set_y_scroll(dpg.get_item_parent({panel}._body), dpg.get_item_rect_min({item})[1] "
               f"- dpg.get_item_rect_min({panel}._title)[1] - 280)")
    window.frames(4)


def test_hovering_takes_the_pixel_under_the_cursor_apart(demo: Window) -> None:
    """The pixel is the one pointed at, its rows add up to what is rendered, and the panel says these numbers."""
    show_tab(demo, "xray")
    for u, v in ((0.5, 0.5), (0.3, 0.62)):
        x, y = screen_of(demo, u, v)
        demo.point(x, y)
        found = answer_about(demo, pixel_at(demo, x, y))
        assert found["loss"] == "l1_ssim" and np.abs(found["cotangent"]).max() > 0
        np.testing.assert_allclose(found["rendered"], found["composed"], atol=2e-6)
        again = np.array(found["weights"]) @ np.array(found["colors"]) + found["transmittance"] * np.array(found["background"])
        np.testing.assert_allclose(again, found["composed"], atol=1e-12)
    demo.frames(3)
    assert demo.get(f"dpg.get_value({XRAY}._title)") == f"Pixel ({found['x']}, {found['y']})"
    shown = [float(demo.get(f"dpg.get_value({XRAY}._cells['rendered'][{c}])")) for c in range(3)]
    np.testing.assert_allclose(shown, found["rendered"], atol=6e-5)
    assert demo.get(f"{ANSWER}.cost_ms") < 300   # under load; tests/inspection holds the 30 ms


def test_a_pinned_pixel_stays_and_is_marked_until_it_is_let_go(demo: Window) -> None:
    let_go(demo)
    show_tab(demo, "densify")
    x, y = screen_of(demo, 0.55, 0.5)
    demo.point(x, y)
    demo.input("key", "k")
    demo.wait_for("shell.view.probe.pinned is not None and shell._tab() == 'xray'", "K pins and shows the X-ray")
    pinned = pixel_at(demo, x, y)
    answer_about(demo, pinned)
    demo.point(*screen_of(demo, 0.2, 0.2))
    demo.frames(8)
    assert demo.get(f"[{VALUE}.x, {VALUE}.y]") == pinned
    lines = demo.get(f"[dpg.get_item_configuration(i)['p1'][:2] for i in {CROSS}]")
    x0, y0 = demo.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    assert len(lines) == 8
    pixel = demo.get("shell.viewport.fit.shown_width / shell.view.views[shell.view.view_index].camera.width")
    assert np.abs(np.mean(lines, axis=0) - [x - x0, y - y0]).max() <= pixel
    view = demo.get("shell.view.view_index")
    demo.input("key", "bracketright")
    demo.wait_for(f"len({CROSS}) > 4 and shell.viewport._shown.request.view_index != {view}", "from elsewhere: its ray")
    assert demo.get(f"{{dpg.get_item_type(i) for i in {CROSS}}}").count("mvDrawCircle") >= 1
    demo.input("key", "bracketleft")
    demo.wait_for(f"len({CROSS}) == 8 and shell.view.view_index == {view}")
    demo.point(x, y)
    demo.input("click", 2)
    demo.wait_for("shell.view.probe.pinned is None", "a middle click on the pinned pixel lets it go")
    demo.frames(3)
    assert demo.get(CROSS) == []
    demo.click(*screen_of(demo, 0.6, 0.4), 2)
    demo.wait_for("shell.view.probe.pinned is not None", "a middle click pins")
    let_go(demo)


def test_the_walk_and_the_rows(demo: Window) -> None:
    """Next, previous and play step through the backward walk; a click on a row selects that Gaussian and goes there."""
    show_tab(demo, "xray")
    x, y = screen_of(demo, 0.5, 0.55)
    demo.point(x, y)
    found = answer_about(demo, pixel_at(demo, x, y))
    demo.input("key", "k")
    demo.wait_for("shell.view.probe.pinned is not None")
    n = len(found["uids"])
    assert n > 4
    reveal(demo, XRAY, f"{XRAY}._table._range")
    demo.click(*demo.middle(f"{XRAY}._table._rows[2][2]['w']"))
    demo.wait_for(f"shell.model.snapshot.selected is not None and shell.model.snapshot.selected.uid == {found['uids'][2]}")
    demo.wait_for(f"{XRAY}._stepper.contributor == 2 and dpg.get_value({XRAY}._table._rows[2][1])")
    reveal(demo, XRAY, f"{XRAY}._stepper._first")
    demo.click(*demo.middle(f"{XRAY}._stepper._first"))
    demo.wait_for(f"{XRAY}._stepper.contributor == {n}")
    for k in (n - 1, n - 2):
        demo.frames(3)
        demo.click(*demo.middle(f"{XRAY}._stepper._next"))
        demo.wait_for(f"{XRAY}._stepper.contributor == {k}")
    demo.frames(2)
    assert f"{found['rebuilt'][n - 2]:.6e}" in demo.get(f"dpg.get_value({XRAY}._stepper._formula)")
    demo.click(*demo.middle(f"{XRAY}._stepper._back"))
    demo.wait_for(f"{XRAY}._stepper.contributor == {n - 1}")
    demo.run(f"{XRAY}._step_to(4)")
    demo.click(*demo.middle(f"{XRAY}._stepper._play"))
    demo.wait_for(f"{XRAY}._stepper.contributor == 0", "play walks to the front")
    let_go(demo)


def test_the_card_shows_the_chain_of_the_last_step(demo: Window) -> None:
    show_tab(demo, "gaussian")
    demo.click(*screen_of(demo, 0.5, 0.6))
    chain = "shell.model.snapshot.answers['chain'].value"
    demo.wait_for("shell.model.snapshot.selected is not None and 'chain' in shell.model.snapshot.answers and "
                  f"{chain}.uid == shell.model.snapshot.selected.uid")
    demo.frames(3)
    before = demo.get(f"{chain}.iteration")
    assert before == demo.get("shell.model.snapshot.iteration") and demo.get(f"len({chain}.adam)") >= 5
    residuals = np.array(demo.get(f"[l.residual for l in {chain}.links if l.residual == l.residual]"))
    assert len(residuals) >= 5 and residuals.max() < 1e-3
    raw = demo.get(f"next(l.cotangent for l in {chain}.links if l.name == 'mean')")
    shown = demo.get(f"dpg.get_value({CARD}._chain._cells['mean'][2])").split()
    np.testing.assert_allclose([float(text) for text in shown], raw, rtol=6e-3)
    demo.input("key", "n")
    demo.wait_for(f"{chain}.iteration == {before + 1} and len({chain}.trails[0].values) == 2", "it follows the run")


def test_what_nobody_looks_at_is_not_asked(demo: Window) -> None:
    show_tab(demo, "xray")
    demo.point(*screen_of(demo, 0.5, 0.5))
    demo.wait_for("'xray' in shell.model.snapshot.answers")
    show_tab(demo, "densify")
    demo.wait_for("not shell.model.snapshot.answers.keys() & {'xray', 'chain'}")
    assert demo.get("set(shell._asked.questions) & {'xray', 'chain'}") in ([], "set()")


def test_without_a_scene_both_say_what_to_do(make_window: Callable[..., Window]) -> None:
    window = make_window(with_scene=False)
    show_tab(window, "xray")
    assert window.get(f"dpg.get_value({XRAY}._sentence)") == "Open a scene first: Ctrl+O."
    show_tab(window, "gaussian")
    assert window.get(f"dpg.is_item_shown({CARD}._empty)") and window.close() == 0
