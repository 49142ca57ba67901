"""A real window under software GL, driven by real X events, with a fake engine behind it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.gui.conftest import Window

MB = 1 << 20


def test_opens_shows_and_traces(window: Window) -> None:
    """The first picture is a training view, at a size that fits the texture ladder; the trace is JSONL."""
    assert window.get("shell.model.scene.path").endswith("fake scene ä")
    assert window.get("shell.view.view_index") == 1  # view 0 is held out
    width, height = window.get("shell.viewport.picture.size")
    assert 16 <= width <= 1920 and 16 <= height <= 1200
    window.wait_for("shell._trace.trace._flushed > 0 and shell.frames > 20")
    records = [json.loads(line) for line in window.trace.read_text().splitlines()[:-1]]
    assert {"time", "frame_ms", "iteration", "loss", "gaussians", "backend", "view_mode"} <= set(records[0])
    assert records[-1]["backend"] == "fake" and records[-1]["gaussians"] >= 5000
    assert [r["time"] for r in records] == sorted(r["time"] for r in records)


def test_picture_is_on_the_screen_within_four_frames(window: Window) -> None:
    """G08: what the window shows is the frame that the engine made, upright and at its place."""
    from PIL import ImageGrab
    window.run("engine.playing = False; shell.preferences.axes = False")
    window.run("shell.model.notices.clear()")
    window.wait_for("not shell.view.moving(shell.clock()) and not shell.viewport.picture.settling", "settled")
    window.frames(4)
    fit = window.get("vars(shell.viewport.fit)")
    x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
    expected = np.array(window.get("shell.model.frame.rgba[::16, ::16, :3]"))
    assert expected.max() > 0.5 > 0.2 > expected.min()
    assert window.display is not None
    shot = np.asarray(ImageGrab.grab(xdisplay=window.display.name).convert("RGB"), dtype=float) / 255
    rows = (y0 + fit["y"] + (np.arange(expected.shape[0]) * 16 + 0.5) * fit["shown_height"] / fit["height"]).astype(int)
    columns = (x0 + fit["x"] + (np.arange(expected.shape[1]) * 16 + 0.5) * fit["shown_width"] / fit["width"]).astype(int)
    away = np.abs(shot[np.ix_(rows, columns)] - expected).max(2)
    # Captions and checker edges cover some of the points.
    assert np.median(away) < 0.01 and (away < 0.05).mean() > 0.85
    window.run("engine.playing = True; shell.preferences.axes = True")


@pytest.mark.thorough
def test_G28_a_click_picks_the_pixel_under_it(window: Window) -> None:
    """At the four corners of the picture, letterboxed or not, within a pixel of the screen."""
    for _ in range(2):
        window.frames(4)
        fit = window.get("vars(shell.viewport.fit)")
        x0, y0 = window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
        left, top = round(x0 + fit["x"]) + 6, round(y0 + fit["y"]) + 40
        right, bottom = round(x0 + fit["x"] + fit["shown_width"]) - 7, round(y0 + fit["y"] + fit["shown_height"]) - 7
        for x, y in ((left, top), (right, top), (left, bottom), (right, bottom)):
            before = window.received("Select")
            window.click(x, y)
            window.wait_for(f"sum(type(c).__name__ == 'Select' for c in engine.received) == {before + 1}", "one Select")
            chosen = window.get("[engine.received[-1].x, engine.received[-1].y, engine.received[-1].camera.width, "
                                "engine.received[-1].camera.height]")
            u, v = (x - x0 - fit["x"]) / fit["shown_width"], (y - y0 - fit["y"]) / fit["shown_height"]
            tolerance = 1.0 / fit["shown_width"]
            assert abs(chosen[0] / chosen[2] - u) <= tolerance and abs(chosen[1] / chosen[3] - v) <= tolerance
        window.run("shell.view.move(shell.view.rig, shell.clock())")  # then the free camera fills the area


def test_drag_orbits_and_selects_nothing(window: Window) -> None:
    """U05: while dragging, requests say so and ask for fewer pixels; afterwards for all of them again."""
    window.run("engine.playing = False; shell.view.move(shell.view.rig, shell.clock())")   # a free camera fills the area
    window.wait_for("shell.model.snapshot.state == 'paused'")
    x, y = window.middle("shell.viewport.canvas")
    window.point(x, y)
    before, selects = window.get("shell.view.rig.eye"), window.received("Select")
    at_rest = window.wait_for("(lambda r, c: not r.moving and r.camera.width == c.width and [c.width, c.height])"
                              "(shell._requests.get()[1], shell.view.camera(shell.clock(), False))")
    window.run("shell._requests.seen = []; shell._requests.put = (lambda put: lambda r: (shell._requests.seen.append(r), "
               "put(r))[1])(shell._requests.put)")
    words: list[object] = ["mousedown", 1]
    for _ in range(30):
        words += ["mousemove_relative", "--", 5, 1, "sleep", "0.02"]
    window.input(*words, "mouseup", 1)
    moving = window.get("[[r.camera.width, r.camera.height] for r in shell._requests.seen if r.moving]")
    assert moving and all(w * h <= 640 * 360 * 1.02 for w, h in moving)
    assert min(w for w, _ in moving) < at_rest[0]
    assert np.linalg.norm(np.subtract(window.get("shell.view.rig.eye"), before)) > 0.3
    assert window.received("Select") == selects
    window.wait_for(f"(lambda r: not r.moving and [r.camera.width, r.camera.height] == {at_rest})(shell._requests.get()[1])",
                    "the full size again")
    window.run("engine.playing = True")


def test_keys_reach_their_actions(window: Window) -> None:
    """Modes, views, overlays and training by keyboard; a held key acts once; error leaves with the camera."""
    window.point(*window.middle("shell.viewport.canvas"))
    window.input("key", "bracketright")
    window.wait_for("shell.view.view_index is not None")
    first = window.get("shell.view.view_index")
    window.input("key", "bracketright")
    window.wait_for(f"shell.view.view_index == ({first} + 1) % 24")
    window.input("key", "bracketleft")
    window.wait_for(f"shell.view.view_index == {first}")
    for key, mode in (("2", "depth"), ("9", "heatmap"), ("o", "error"), ("g", "truth"), ("g", "heatmap"), ("1", "color")):
        window.input("key", key)
        window.wait_for(f"shell.view.mode == {mode!r}")
    window.input("key", "o", "keydown", "w", "sleep", "0.3", "keyup", "w")
    window.wait_for("shell.view.mode == 'color' and shell.view.view_index is None", "flying leaves the error map")
    pauses = window.received("Pause")
    window.input("keydown", "space", "sleep", "0.6", "keyup", "space")
    window.wait_for("not shell.model.playing")
    assert window.received("Pause") == pauses + 1 and window.received("Play") == 0
    window.input("key", "n")
    window.wait_for("any(type(c).__name__ == 'Step' for c in engine.received)")
    window.input("key", "space")
    window.wait_for("shell.model.playing")
    shown = window.get("shell.preferences.frusta")
    window.input("key", "c")
    window.wait_for(f"shell.preferences.frusta is {not shown}")


def test_G24_open_dialog_takes_the_keyboard_and_checks_the_path(window: Window, tmp_path: Path) -> None:
    """Letters typed into the field are no shortcuts; a wrong path is said there; a right one is opened (D06: ä, blanks)."""
    folder = tmp_path / "a folder named ä"
    folder.mkdir()
    window.point(*window.middle("shell.viewport.canvas"))
    mode = window.get("shell.view.mode")
    window.input("key", "ctrl+o")
    window.wait_for("shell.open_dialog.shown and dpg.is_item_active(shell.open_dialog._path)")
    window.input("type", "--delay", 30, "/no/2go")
    window.wait_for("dpg.get_value(shell.open_dialog._path).endswith('/no/2go')")
    window.input("key", "Return")
    window.wait_for("'/no/2go' in dpg.get_value(shell.open_dialog._complaint)")
    assert window.get("shell.view.mode") == mode and window.received("OpenScene") == 0
    window.run(f"dpg.set_value(shell.open_dialog._path, {str(folder)!r})")
    window.click(*window.middle("shell.open_dialog._path"))
    window.wait_for("dpg.is_item_active(shell.open_dialog._path)")
    window.input("key", "Return")
    window.wait_for(f"[c.path for c in engine.received if type(c).__name__ == 'OpenScene'] == [{str(folder)!r}]")
    window.wait_for(f"shell.preferences.recent[0] == {str(folder)!r} and not shell.open_dialog.shown")
    window.input("key", "h")
    window.wait_for("shell.help.shown")
    window.input("key", "Escape")
    window.wait_for("not shell.help.shown")
    window.input("key", "ctrl+s")
    window.wait_for("shell.save_dialog.shown and dpg.is_item_active(shell.save_dialog._path)")
    window.frames(3)
    window.input("key", "Return")
    window.wait_for("any(type(c).__name__ == 'SavePly' and c.path.endswith('.ply') for c in engine.received)")


def test_G24_G27_on_windows_the_open_dialog_has_no_browser(window: Window) -> None:
    """The toolkit's own breaks on names there; a path that was pasted with its quotation marks opens all the same."""
    window.run("""
import sys, types
import app.gui.panels.open_scene as module
def browsers():
    kinds = [dpg.get_item_type(i) for i in dpg.get_all_items()]
    return sum(k.endswith('mvFileDialog') for k in kinds)
shell.browsers, module.sys = [browsers()], types.SimpleNamespace(platform='win32')
shell.windows_dialog = module.OpenDialog(shell.ui)
shell.windows_dialog.build(0)
module.sys = sys
shell.browsers.append(browsers())
shell.windows_dialog.open()
dpg.set_value(shell.windows_dialog._path, f'"{module.demo_path()}"')
shell.windows_dialog._on_path()
""")
    assert window.get("shell.browsers") == [1, 1]
    assert "Browse" not in window.get("[dpg.get_item_label(i) for g in dpg.get_item_children(shell.windows_dialog.window, 1) "
                                      "for i in dpg.get_item_children(g, 1)]")
    window.wait_for("[c.path for c in engine.received if type(c).__name__ == 'OpenScene'][-1:] "
                    "== [str(__import__('app.demo').demo.demo_folder())]")
    window.wait_for("not shell.windows_dialog.shown and shell.model.scene.path.endswith('demo')")
    window.run("shell.ui.typing.remove(shell.windows_dialog._path); dpg.delete_item(shell.windows_dialog.window)")


def test_U02_up_is_set_from_the_view_and_remembered(window: Window) -> None:
    window.run("shell.view.move(__import__('dataclasses').replace(shell.view.rig, roll=0.5), shell.clock())")
    before = window.get("shell.view.rig.rotation")
    window.input("key", "u")
    window.wait_for("abs(shell.view.rig.roll) < 1e-9")
    assert np.allclose(window.get("shell.view.rig.rotation"), before, atol=1e-9)
    up = window.get("shell.preferences.scene_up[shell.model.scene.path]")
    assert np.allclose(up, -np.array(before)[1])
    window.run("shell.preferences.scene_up.clear()")


def test_gradient_mode_switches_live(window: Window) -> None:
    """The radio buttons send the names that RasterConfig takes."""
    window.run("dpg.set_value(shell._tab_bar, next(t for t, (n, _) in shell._tabs.items() if n == 'alpha'))")
    window.wait_for("shell._tab() == 'alpha'")
    window.frames(3)
    panel = "next(p for n, p in shell._tabs.values() if n == 'alpha')"
    x, y = window.get(f"dpg.get_item_rect_min({panel}._radio)")
    height = window.get(f"dpg.get_item_rect_size({panel}._radio)[1]")
    window.click(x + 8, y + 0.5 * height)
    window.wait_for("shell.model.config['raster.alpha_gradient'] == 'straight_through'")


def test_G22_panels_rebuild_without_leaving_items(window: Window) -> None:
    """The Gaussian card changes its rows 50 times; the number of items stays what it was."""
    window.run("engine._select(m.Select(uid=7))")
    window.run("dpg.set_value(shell._tab_bar, next(t for t, (n, _) in shell._tabs.items() if n == 'gaussian'))")
    window.wait_for("shell.model.snapshot.selected is not None and shell._tab() == 'gaussian'")
    window.frames(3)
    window.run("import dataclasses\nengine.close()\npanel = next(p for n, p in shell._tabs.values() if n == 'gaussian')\n"
               "full = shell.model.snapshot.selected\nless = dataclasses.replace(full, gradients={})\n"
               "counts = []\n"
               "for i in range(50):\n"
               "    for report in (less, full):\n"
               "        shell.model.snapshot = dataclasses.replace(shell.model.snapshot, selected=report)\n"
               "        panel.update()\n"
               "    counts.append(len(dpg.get_all_items()))\n"
               "shell.counts = counts")
    counts = window.get("shell.counts")
    assert len(counts) == 50 and len(set(counts)) == 1
    assert window.get("shell._complained == set()"), "no callback or panel failed"


def test_sentences_on_cards_and_over_the_picture_break_between_words(make_window: Callable[..., Window]) -> None:
    window = make_window(play=False)
    window.wait_for("shell.model.frame is not None")
    said = "The preset fast: densify.grad_threshold 0.0001784, densify.prune_opacity 0.00123, 1 234 567 Gaussians."
    over = "no view has seen any Gaussian since the last densification, and nothing would be pruned, so all stay as they are."
    window.run(f"shell.model.notify({said!r}, 'info', shell.actions.clock())")
    window.run("engine._sequence += 1; engine._frame = __import__('dataclasses').replace("
               f"engine._frame, sequence=engine._sequence, note={over!r})")
    window.wait_for("shell.model.frame.note")
    window.frames(4)
    shown = window.get("dpg.get_value(shell.notices._cards[0][2])").split("\n")
    assert " ".join(shown) == said and len(shown) > 1
    wide = window.get("[dpg.get_text_size(line)[0] for line in dpg.get_value(shell.notices._cards[0][2]).split('\\n')]")
    assert max(wide) <= window.get("dpg.get_item_configuration(shell.notices._cards[0][2])['wrap']")
    drawn = window.get("[dpg.get_item_configuration(i).get('text') for i in dpg.get_item_children(shell.viewport._caption, 2)]")
    texts = [text for text in drawn if text]
    assert over in " ".join(texts) and over not in texts and not any("…" in text for text in texts)
    assert window.close() == 0


@pytest.mark.thorough
def test_G05_resizing_does_not_leak(make_window: Callable[..., Window]) -> None:
    """100 sizes of window and picture: every texture is made once; RSS grows by less than 50 MB (G05, G10, G23)."""
    window = make_window(play=False)
    window.wait_for("shell.model.frame is not None")
    # The window resizes itself every third frame, without waiting: 25 sizes to warm up, then 100.
    window.run("""
import app.gui.pacing as module
module.BUSY_FACTOR, shell.preferences.window_fps = 0.0, 1e9
shell.awake = lambda now: True
shell.done, after = [], shell.viewport.after_frame
def resize():
    after()
    if len(shell.done) < shell.goal and shell.frames % 3 == 0:
        i = len(shell.done)
        dpg.set_viewport_width(700 + 61 * (i % 11)); dpg.set_viewport_height(500 + 37 * (i % 7))
        shell.done.append(shell._size)
shell.viewport.after_frame, shell.goal = resize, 25
""")
    window.wait_for("len(shell.done) == shell.goal")
    window.frames(6)
    before = window.rss()
    window.run("shell.goal += 100")
    window.wait_for("len(shell.done) == shell.goal")
    window.frames(6)
    assert window.rss() - before < 50 * MB
    assert window.get("len(set(map(tuple, shell.done)))") > 50, "sizes were applied, not skipped"
    assert window.get("list(shell._size) == [dpg.get_viewport_client_width(), dpg.get_viewport_client_height()]")
    assert window.get("sum(r is not None for r in shell.viewport.picture._rungs)") <= 4
    assert window.get("shell._complained == set()")
    assert window.close() == 0


@pytest.mark.thorough
def test_idle_draws_ten_frames_and_a_touched_window_at_most_sixty(make_window: Callable[..., Window]) -> None:
    """U05, M04, and U07 on the window's side: a key reaches the engine within 200 ms of an idle window."""
    window = make_window(play=False)
    window.wait_for("shell.model.frame is not None and not shell.awake(shell.clock()) and not shell.viewport.picture.settling")
    start, frames = time.monotonic(), window.get("shell.frames")
    window.wait_for(f"shell.clock() > {window.get('shell.clock()') + 2.0}")
    rate = (window.get("shell.frames") - frames) / (time.monotonic() - start)
    assert rate <= 10.6
    window.run("shell.times = {}; shell._commands.put = (lambda put: lambda c: (shell.times.setdefault(type(c).__name__, "
               "shell.clock()), put(c))[1])(shell.actions._send); shell.actions._send = shell._commands.put")
    waits = []
    for _ in range(5):
        window.wait_for("not shell.awake(shell.clock())")
        window.run("shell.times.clear()")
        sent = time.monotonic()
        window.input("key", "n")
        window.wait_for("'Step' in shell.times")
        waits.append(window.get("shell.times['Step']") - sent)
    assert statistics.median(waits) < 0.2
    window.run("shell.awake = lambda now: True")
    start, frames = time.monotonic(), window.get("shell.frames")
    window.wait_for(f"shell.clock() > {window.get('shell.clock()') + 1.0}")
    assert (window.get("shell.frames") - frames) / (time.monotonic() - start) <= 62
    assert window.close() == 0


@pytest.mark.thorough
def test_G13_G14_closing_mid_training_is_clean(make_window: Callable[..., Window]) -> None:
    """Engine joined before the context goes; exit code 0; preferences written; the layout comes back."""
    window = make_window(busy=True)
    window.wait_for("shell.model.snapshot.iteration > 3")
    window.run("shell.preferences.right = 400; shell.actions.toggle_plots()")
    folder = window.preferences.parent
    assert window.close() == 0
    stored = json.loads(window.preferences.read_text())
    assert stored["right"] == 400 and stored["show_plots"] is False
    assert stored["recent"] == ["/somewhere/fake scene ä"]
    again = make_window(folder=folder)
    assert again.get("shell.layout.bottom.height") == 0 and again.get("shell.layout.right.width") == 400
    assert again.close() == 0


def test_the_failure_window_closes_and_opens_again(make_window: Callable[..., Window]) -> None:
    """By its cross and by Esc; the next failure is shown again."""
    window = make_window()
    window.wait_for("shell.model.frame is not None")
    shown = "dpg.is_item_shown(shell.notices._failure_window)"

    def fail(text: str) -> None:
        window.run(f"engine.playing = False; shell.model.apply(m.EngineFailed({text!r}, 'Traceback: {text}'), shell.clock())")
        window.wait_for(shown)
        window.frames(3)

    window.run("engine.playing = False")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    fail("first")
    x, y = window.get("dpg.get_item_pos(shell.notices._failure_window)")
    window.click(x + window.get("dpg.get_item_width(shell.notices._failure_window)") - 14, y + 12)
    window.wait_for(f"not {shown}", "the cross closes it")
    fail("second")
    assert window.get("dpg.get_value(shell.notices._summary)") == "second"
    window.input("key", "Escape")
    window.wait_for(f"not {shown}", "Esc closes it")
    fail("third")
    assert window.get("shell._complained == set()")
    assert window.close() == 0


def test_the_menu_offers_the_backends_that_the_engine_can_run(window: Window) -> None:
    offered = "[dpg.get_item_label(i) for i in dpg.get_item_children(shell.toolbar._menu, 1) if dpg.get_item_label(i)]"
    assert window.wait_for(offered) == ["auto", "cpu", "reference"]
    assert window.get("shell.model.snapshot.backends") == ["auto", "cpu", "reference"]


def test_a_key_whose_release_was_lost_is_let_go(window: Window) -> None:
    """As when Ctrl goes up in another window: shortcuts work again; one that is really held stays held."""
    window.point(*window.middle("shell.viewport.canvas"))
    window.run("shell.keyboard._held[dpg.mvKey_LControl] = 0")
    window.wait_for("not shell.keyboard.ctrl()")
    window.input("keydown", "ctrl")
    window.wait_for("shell.keyboard.ctrl()")
    window.frames(12)
    assert window.get("shell.keyboard.ctrl()")
    window.input("keyup", "ctrl")
    window.wait_for("not shell.keyboard.ctrl()")


def test_a_trace_that_cannot_be_written_ends_with_one_notice(make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.wait_for("shell.frames > 3")
    window.run("shell._trace.trace._file.close(); shell._trace.trace._file = open('/dev/full', 'w')")
    window.wait_for("shell._trace.trace is None")
    window.frames(5)
    assert window.get("sum('trace ends here' in n.text for n in shell.model.notices)") == 1
    assert window.close() == 0
