"""Tabs Control, Optimiser and Options in a real window: what is pressed is what the engine hears, and what it says is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.gui.change_log import ChangeLog
from app.messages import OptionChanged
from tests.gui.conftest import Window
from tests.gui.test_laboratory import START, open_tab, press

pytestmark = pytest.mark.thorough

CONTROL = "next(p for n, p in shell._tabs.values() if n == 'control')"
OPTIONS = "next(p for n, p in shell._tabs.values() if n == 'options')"


def last(window: Window, kind: str) -> str:
    return window.get(f"repr([c for c in engine.received if type(c).__name__ == {kind!r}][-1])")


def test_the_parts_of_a_step_have_a_button_each(window: Window) -> None:
    open_tab(window, "control")
    for number, part in enumerate(("Forward", "Backward", "Densify"), 1):
        press(window, f"{number if part != 'Densify' else 4}  {part}")
        window.wait_for(f"type(engine.received[-1]).__name__ == 'TakePart' and engine.received[-1].part == {part.lower()!r}")
    press(window, "Whole step")
    window.wait_for("engine.received[-1] == m.Step(1)")
    window.type_into(f"{CONTROL}._steps", "37")
    window.wait_for("engine.received[-1] == m.Step(37)")
    window.type_into(f"{CONTROL}._steps", "many")
    window.wait_for("any(\"Steps: 'many' cannot be used\" in n.text for n in shell.model.notices)")
    assert window.get("engine.received[-1] == m.Step(37)")


def test_a_step_under_way_is_shown_and_the_buttons_follow(window: Window) -> None:
    open_tab(window, "control")
    window.run("engine.playing = False; engine.phase = 'backward'")
    window.wait_for("shell.model.snapshot.steering.phase == 'backward'")
    window.frames(3)
    assert "gradients are known, the update is pending" in window.get(f"dpg.get_value({CONTROL}._where)")
    assert window.get("shell.model.state_text") == "Gradients known"
    assert window.get("shell.model.progress_texts[0]").endswith("gradients known, update pending")
    assert window.get(f"[dpg.is_item_enabled(i) for i in {CONTROL}._parts.values()]") == [True, False, True, False]
    assert window.get("dpg.get_item_label(shell.toolbar._step)") == "Finish"
    before = window.received("TakePart")
    press(window, "2  Backward")   # cannot be pressed now
    press(window, "3  Optimiser")
    window.wait_for(f"sum(type(c).__name__ == 'TakePart' for c in engine.received) == {before + 1}")
    assert "optimiser" in last(window, "TakePart")
    window.run("engine.phase = ''")
    window.wait_for("shell.model.snapshot.steering.phase == ''")
    window.frames(3)
    assert window.get("dpg.get_item_label(shell.toolbar._step)") == "Step"


def test_training_until_sends_goal_value_and_limit(window: Window) -> None:
    open_tab(window, "control")
    press(window, "Train until then")
    window.wait_for("engine.received[-1] == m.RunUntil('densify', 0.0, 0)")
    window.run(f"dpg.set_value({CONTROL}._combo, 'the mean loss is below'); "
               f"{CONTROL}._on_goal(0, 'the mean loss is below'); dpg.set_value({CONTROL}._most, '500')")
    window.frames(3)
    window.type_into(f"{CONTROL}._value", "0.031")
    window.wait_for("engine.received[-1] == m.RunUntil('loss', 0.031, 500)")
    window.run(f"dpg.set_value({CONTROL}._most, ''); {CONTROL}._on_goal(0, 'the next densification')")


def test_the_menu_beside_step(window: Window) -> None:
    press(window, "▾")
    window.wait_for("dpg.get_item_rect_size(shell.toolbar._steps.menu)[1] > 50")
    window.frames(3)
    menu = "shell.toolbar._steps.menu"
    (x, y), (width, height) = window.get(f"[dpg.get_item_pos({menu}), dpg.get_item_rect_size({menu})]")
    window.click(x + width / 3, y + height * 4.5 / 8)   # the fifth of eight
    window.wait_for("engine.received[-1] == m.Step(10)")
    press(window, "▾")
    window.frames(3)
    window.input("key", "Escape")
    window.wait_for("not dpg.is_item_shown(shell.toolbar._steps.menu)")


def test_what_the_forward_pass_measured_is_shown_with_its_step_while_it_is_of_now(window: Window) -> None:
    open_tab(window, "control")
    window.run("from dataclasses import replace; real = engine._snapshot; fresh = True; "
               "engine._snapshot = lambda: replace(real(), steering=m.Steering(forwarded=fresh)); "
               "engine.events.put(m.ViewForwarded(1301, 'view_007.png', 0.0625, 21.5, 0.04, 0.75))")
    window.wait_for(f"dpg.is_item_shown({CONTROL}._forwarded)")
    text = window.get(f"dpg.get_value({CONTROL}._forwarded)")
    assert text.startswith("Forward of step 1 301, view_007.png:") and "0.0625" in text
    window.run("fresh = False")
    window.wait_for(f"not dpg.is_item_shown({CONTROL}._forwarded)")
    window.run("engine._snapshot = real")


def test_a_reset_says_that_the_run_stays_as_a_branch(window: Window) -> None:
    window.wait_for("shell.model.snapshot.iteration > 0")
    press(window, "Reset")
    window.wait_for("dpg.is_item_shown(shell.toolbar._confirm_window)")
    said = window.get("[dpg.get_value(i) for i in dpg.get_item_children(shell.toolbar._confirm_window, 1)]")
    assert any("stays as a branch" in str(text) for text in said) and "away" not in str(said)
    window.input("key", "Escape")
    window.wait_for("not dpg.is_item_shown(shell.toolbar._confirm_window)")


def test_changed_options_are_listed_and_marked_in_the_plots(window: Window) -> None:
    open_tab(window, "control")
    window.run("engine.events.put(m.OptionChanged(12, 'sh0_lr', 0.0025, 0.004)); "
               "engine.events.put(m.OptionChanged(40, 'densify.absgrad', False, True, 'The preset X'))")
    window.wait_for(f"{CONTROL}._version == shell.model.options.version and len(shell.model.options.changes) == 2")
    window.frames(3)
    cells = window.get(f"[[dpg.get_value(c) for c in cells] for _, cells in {CONTROL}._rows[:2]]")
    assert cells == [["40", "densify.absgrad\nThe preset X", "off", "on"], ["12", "sh0_lr", "0.0025", "0.004"]]
    assert window.get("dpg.get_value(shell.plots._options[0])")[0] == [12.0, 12.0, 40.0, 40.0]


def test_who_gets_the_time_is_sent_and_remembered(window: Window) -> None:
    open_tab(window, "control")
    field = f"next(f for f in {CONTROL}._fields if f.spec.path == 'view_share')"
    window.type_into(f"{field}._input", "0.35")
    window.wait_for("type(engine.received[-1]).__name__ == 'SetPace' and engine.received[-1].pace.view_share == 0.35")
    assert window.get("shell.preferences.view_share") == 0.35
    window.click(*window.middle(f"{field}._reset"))
    window.wait_for("engine.received[-1].pace.view_share == 0.2")
    field = field.replace("view_share", "idle_fps")
    before = window.received("SetPace")
    window.type_into(f"{field}._input", "4")
    window.wait_for("shell.preferences.idle_fps == 4.0")
    assert window.received("SetPace") == before   # the window's own
    window.run("shell.preferences.idle_fps = 10.0")


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["click", pytest.param("key", marks=pytest.mark.thorough)])
def test_headless_yields_until_a_key_or_a_click(window: Window, how: str) -> None:
    open_tab(window, "control")
    press(window, "Train without pictures")
    window.wait_for("shell.headless.on and engine.received[-1].headless")
    frames, steps = window.get("shell.frames"), window.received("Step")
    window.wait_for(f"shell.frames >= {frames} + 3")
    rate = window.get("shell._pacing and 1 / 0.5")
    assert rate == 2.0
    if how == "key":
        window.input("key", "n")       # would take a step
    else:
        window.input("mousemove", 640, 300, "click", 1)
    window.wait_for("not shell.headless.on")
    window.wait_for("not engine.received[-1].headless")
    window.frames(5)
    assert window.received("Step") == steps and window.get("dpg.is_item_visible(shell.toolbar._play)")


def test_presets_say_what_they_change_and_can_be_saved_and_deleted(window: Window) -> None:
    open_tab(window, "options")
    presets = f"{OPTIONS}._presets"
    window.run("engine.config['sh0_lr'] = 0.004; engine.config['raster.alpha_gradient'] = 'exact'; "
               "engine.events.put(m.ConfigChanged(dict(engine.config)))")
    window.wait_for("shell.model.config['sh0_lr'] == 0.004")
    press(window, "Apply …")
    window.wait_for(f"dpg.is_item_visible({presets}.window)")
    window.frames(3)
    rows = window.get(f"[[dpg.get_value(c) for c in cells] for _, cells in {presets}._rows[:2]]")
    assert rows == [["sh0_lr", "0.004", "0.0025"], ["raster.alpha_gradient", "exact", "straight_through"]]
    assert window.received("SetOptions") == 0
    window.click(*window.middle(f"{presets}.yes"))
    window.wait_for("type(engine.received[-1]).__name__ == 'SetOptions'")
    assert window.get("engine.received[-1].values") == {"sh0_lr": 0.0025, "raster.alpha_gradient": "straight_through"}
    window.type_into(f"{presets}.name", "Mine")
    window.wait_for(f"{presets}._chosen.name == 'Mine'")
    stored = json.loads((window.preferences.parent / "presets.json").read_text())
    assert stored["presets"]["Mine"]["sh0_lr"] == 0.004
    window.type_into(f"{presets}.name", "MCMC")
    window.wait_for("any('comes with the program' in n.text for n in shell.model.notices)")
    window.frames(3)
    window.click(*window.middle(f"{presets}.delete"))
    window.wait_for(f"{presets}._chosen.name == 'graphdeco 30k'")
    assert json.loads((window.preferences.parent / "presets.json").read_text())["presets"] == {}


def test_presets_of_a_damaged_file_and_of_another_window_are_kept(make_window: Callable[..., Window], tmp_path: Path) -> None:
    file, presets = tmp_path / "presets.json", f"{OPTIONS}._presets"
    file.write_text("{")
    window = make_window(folder=tmp_path)
    window.wait_for("any('renames it to presets.json.damaged.' in n.text for n in shell.model.notices)")
    open_tab(window, "options")
    window.type_into(f"{presets}.name", "Mine")
    window.wait_for("any('it is called presets.json.damaged now.' in n.text for n in shell.model.notices)")
    assert (tmp_path / "presets.json.damaged").read_text() == "{"
    stored = json.loads(file.read_text())
    stored["presets"] |= {"Theirs": {"sh0_lr": 0.1}, "Newer": [1]}
    file.write_text(json.dumps(stored))
    window.type_into(f"{presets}.name", "Again")
    window.wait_for(f"{presets}._chosen.name == 'Again' and dpg.is_item_shown({presets}.delete)")
    assert window.get(f"dpg.get_item_configuration({presets}.combo)['items'][-3:]") == ["Again", "Mine", "Theirs"]
    assert sorted(json.loads(file.read_text())["presets"]) == ["Again", "Mine", "Newer", "Theirs"]
    window.wait_for("sum('the preset Newer is not a set of options' in n.text for n in shell.model.notices) == 1")
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


def test_the_search_leaves_what_has_the_words(window: Window) -> None:
    open_tab(window, "options")
    shown = f"[c.spec.path for c in {OPTIONS}._fields.controls if dpg.get_item_configuration(c.row)['show']]"
    everything = len(window.get(shown))
    window.type_into(f"{OPTIONS}.search", "learning rate means", enter=False)
    window.wait_for(f"dpg.get_value({OPTIONS}.search) == 'learning rate means'")
    window.frames(3)
    found = window.get(shown)
    assert {"means_lr", "means_lr_final", "optimizer.means_factor"} <= set(found) and len(found) < 8
    window.input("type", " xyz")
    window.wait_for(f"{shown} == []")
    assert window.get(f"dpg.get_item_configuration({OPTIONS}._nothing)['show']")
    window.type_into(f"{OPTIONS}.search", " ", enter=False)
    window.wait_for(f"len({shown}) == {everything}")
    assert window.get("shell._complained == set()"), "no callback or panel failed"


def test_a_drag_is_one_line_of_the_change_log() -> None:
    log = ChangeLog()
    for i in range(20):
        log.add(OptionChanged(i, "sh0_lr", 0.1 * i, 0.1 * (i + 1)), now=10 + 0.05 * i)
    log.add(OptionChanged(25, "sh0_lr", 2.0, 3.0), now=20.0)
    log.add(OptionChanged(26, "loss", "l1_ssim", "mse"), now=20.1)
    log.add(OptionChanged(27, "loss", "mse", "l1_ssim"), now=20.2)   # there and back
    assert [(c.iteration, c.old, c.new) for c in log.changes] == [(19, 0.0, 2.0), (25, 2.0, 3.0)]
    log.rewind(20)
    assert [c.iteration for c in log.changes] == [19]


def test_a_step_taken_by_mouse_part_by_part_on_the_demo(make_window: Callable[..., Window]) -> None:
    window = make_window(demo=True)
    window.peek_for("shell.model.snapshot.iteration > 20", START)
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    at = window.get("shell.model.snapshot.iteration")
    open_tab(window, "control")
    press(window, "1  Forward")
    ahead = window.wait_for("shell.model.forwarded is not None and shell.model.forwarded.loss")
    press(window, "2  Backward")
    window.wait_for("shell.model.snapshot.steering.phase == 'backward'")
    assert window.get("shell.model.snapshot.loss") == ahead and window.get("shell.model.snapshot.iteration") == at
    open_tab(window, "optimiser")
    window.wait_for("getattr(shell.model.snapshot.answers.get('optimiser'), 'value', None) is not None")
    assert window.get("shell.model.snapshot.answers['optimiser'].value.pending")
    open_tab(window, "control")
    press(window, "3  Optimiser")
    window.wait_for("shell.model.snapshot.steering.phase == 'update'")
    assert window.get("shell.model.snapshot.iteration") == at + 1
    press(window, "Whole step")   # ends it
    window.wait_for("shell.model.snapshot.steering.phase == ''")
    open_tab(window, "optimiser")
    window.wait_for("not shell.model.snapshot.answers['optimiser'].value.pending")
    groups = window.get("[[g.rule, g.update > 0] for g in shell.model.snapshot.answers['optimiser'].value.groups]")
    assert groups[:5] == [["adam", True]] * 5
    assert window.get("shell._complained == set()") and window.close() == 0
