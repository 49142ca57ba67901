"""The timeline of the window: where it looks, by itself and in the whole program on the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import messages as m
from app.gui import layout, looking_back
from app.gui.panels.branch_curves import dashes
from app.gui.preferences import Preferences
from app.gui.view_model import ViewModel
from app.gui.view_state import ViewState
from tests.gui.conftest import Window
from tests.gui.fake_engine import scene

MAIN = m.BranchState("main", "main", tip=400, kept=(0, 100, 200, 300, 400), on_disk=(150, 350))
CHILD = m.BranchState("try", "a try", "main", 220, tip=260, kept=(220, 250), replayed=(250,))
STATE = m.TimelineState((MAIN, CHILD), "try")


# ------------------------------------------------------------------------------------------- where it looks
def test_a_branch_has_its_parents_past_up_to_where_they_part() -> None:
    assert looking_back.kept(STATE, "try") == [0, 100, 150, 200, 220, 250]
    assert looking_back.kept(STATE, "try", disk=False) == [0, 100, 200, 220, 250]
    assert looking_back.kept(STATE, "main") == [0, 100, 150, 200, 300, 350, 400]


def test_steps_go_from_moment_to_moment_and_end_at_now() -> None:
    look, seen = None, []
    for _ in range(8):
        look = looking_back.stepped(STATE, 270, look, -1)
        seen.append(look.iteration if look is not None else None)
    assert seen == [250, 220, 200, 150, 100, 0, 0, 0]
    for _ in range(6):
        look = looking_back.stepped(STATE, 270, look, 1)
    assert look is None   # now, the end of the branch that trains
    assert looking_back.stepped(STATE, 270, m.Moment("main", 350), 1) == m.Moment("main", 400)
    assert looking_back.stepped(STATE, 270, m.Moment("main", 400), 1) == m.Moment("main", 400)
    assert looking_back.stepped(m.TimelineState((m.BranchState("main", "main"),), "main"), 0, None, -1) is None


def test_what_is_asked_lies_within_the_branch_and_the_end_of_the_current_one_is_now() -> None:
    assert looking_back.at(STATE, "main", 999, 270) == m.Moment("main", 400)
    assert looking_back.at(STATE, "try", 270, 270) is None and looking_back.at(STATE, "try", -5, 270) == m.Moment("try", 0)
    assert looking_back.place(STATE, 270, m.Moment("gone", 5)) == looking_back.Place("try", 270, None)


@given(st.integers(-10, 500), st.sampled_from(["main", "try"]), st.integers(0, 500))
def test_any_place_of_the_bar_is_a_moment_or_now(iteration: int, branch: str, now: int) -> None:
    moment = looking_back.at(STATE, branch, iteration, now)
    if moment is None:
        assert branch == "try" and iteration >= min(now, iteration)
    else:
        assert moment.branch == branch and 0 <= moment.iteration <= (now if branch == "try" else 400)
        assert looking_back.place(STATE, now, moment).moment == moment


def test_short_replays_begin_by_themselves_and_words_say_what_is_shown() -> None:
    assert looking_back.steps_to(STATE, m.Moment("try", 249)) == 29 and looking_back.steps_to(STATE, m.Moment("try", 250)) == 0
    late = m.Moment("try", 249)
    assert looking_back.at_once(STATE, late, 10.0) and not looking_back.at_once(STATE, late, 1.0)
    assert not looking_back.at_once(STATE, m.Moment("try", 250), 10.0)
    frame = m.Frame(np.zeros((2, 2, 4), np.float32), scene().views[0].camera, "color", moment=m.Moment("try", 250),
                    moment_beside=m.Moment("main", 300))
    words = looking_back.words
    assert words(STATE, m.Moment("try", 250), frame, None) == "iteration 250 · replayed exactly"
    assert words(replace(STATE, exact=False), m.Moment("try", 250), frame, None) == "iteration 250 · replayed, close"
    assert words(STATE, m.Moment("try", 260), frame, None) == "iteration 260 · shown: 250, kept nearest to it"
    assert words(STATE, m.Moment("main", 300), frame, None, right=True) == "main: iteration 300 · kept"
    assert words(STATE, m.Moment("try", 260), frame, 0.25) == "iteration 260 · replaying, 25%"


def test_the_request_follows_what_is_looked_at_and_compared() -> None:
    view = ViewState(area=(640, 480))
    view.open_scene(scene())
    view.look_at(m.Moment("main", 100))
    view.compare_with(None)
    view.set_mode("depth")
    asked = view.request(100.0, training=True, hidden=False, histogram=False)
    assert asked is not None and asked.moment == m.Moment("main", 100) and asked.beside == m.Beside("depth", share=0.5)
    view.compare_with(m.Moment("gone", 3))
    view.forget_gone(STATE, 270)
    assert view.beside is not None and view.beside.moment is None
    view.set_beside("truth")
    assert not view.comparing
    view.forget_gone(m.TimelineState((CHILD,), "try"), 270)
    assert view.moment is None
    view.look_at(m.Moment("main", 100))
    view.open_scene(scene())
    assert view.moment is None


def test_another_branch_brings_its_own_events() -> None:
    model = ViewModel()
    for i in (100, 200, 300):
        model.observe(m.Snapshot("running", i, 1000))
        model.apply(m.Densified(i, cloned=10), 0.0)
    model.apply(m.BranchChanged("try", 150, (m.Densified(100, cloned=10),), m.Evaluated(120, 20.0, 0.5)), 0.0)
    model.observe(m.Snapshot("paused", 150, 1000))
    assert [e.iteration for e in model.densified] == [100] and model.totals.cloned == 10
    assert model.evaluated is not None and model.evaluated.iteration == 120
    events = tuple(m.Densified(i, cloned=10) for i in (100, 200, 300))
    model.apply(m.BranchChanged("main", 300, events), 0.0)
    model.observe(m.Snapshot("paused", 300, 1000))
    assert model.totals.cloned == 30 and len(model.population.table) == 3 and model.evaluated is None


def test_another_branch_brings_its_own_changes_and_no_checkpoint_of_the_one_before() -> None:
    model = ViewModel()
    model.observe(m.Snapshot("running", 300, 1000))
    change = [m.OptionChanged(i, "sh0_lr", 0.1 * i, 0.1 * i + 0.1, at=1000.0 + i) for i in (0, 100, 230, 300)]
    for event in (change[0], change[1], change[3]):
        model.apply(event, 0.0)
    model.apply(m.RunSaved(290, 1.0, "run/checkpoints/main/iteration_290.safetensors", 1), 0.0)
    model.apply(m.BranchChanged("try", 150, options=(change[0], change[1])), 0.0)
    model.observe(m.Snapshot("paused", 150, 1000))
    assert [c.iteration for c in model.options.changes] == [0, 100] and model.saved is None
    model.apply(m.RunSaved(300, 1.0, "run/checkpoints/main/iteration_300.safetensors", 1, "close", left=True), 0.0)
    assert model.saved is None
    model.apply(m.RunSaved(150, 1.0, "run/checkpoints/try/iteration_150.safetensors", 1, "branch"), 0.0)
    assert model.saved is not None and model.saved.iteration == 150
    model.observe(m.Snapshot("running", 230, 1000))
    model.apply(change[2], 0.0)
    model.apply(m.BranchChanged("main", 300, options=(change[0], change[1], change[3])), 0.0)
    assert [c.iteration for c in model.options.changes] == [0, 100, 300]
    model.apply(scene(), 0.0)
    assert model.options.changes == []


def test_dashes_follow_the_curve_with_gaps() -> None:
    x = np.arange(1.0, 301.0)
    xs, ys = dashes(m.Curve(x, 2.0 * x))
    assert len(xs) % 2 == 0 and xs[0] == 1.0 and xs[-1] == 300.0
    middle = slice(10, -10)
    assert np.allclose(np.array(ys)[middle], 2.0 * np.array(xs)[middle], atol=8.0)
    assert dashes(m.Curve(x[:1], x[:1])) == [[], []] and dashes(m.Curve(x, -x), log=True) == [[], []]


@given(st.integers(640, 4000), st.integers(480, 2400), st.floats(1.0, 2.0), st.booleans(), st.integers(0, 900))
def test_the_strip_lies_between_picture_and_plots(width: int, height: int, scale: float, plots: bool, bottom: int) -> None:
    wanted = Preferences(show_plots=plots, bottom=bottom)
    got = layout.compute(width, height, scale, wanted, timeline=True)
    assert (got.strip.height > 0) is (got.bottom.height > 0)
    if got.strip.height:
        assert got.view.y + got.view.height <= got.strip.y and got.strip.y + got.strip.height <= got.bottom.y
        assert got.bottom.y + got.bottom.height <= got.status.y
        assert (got.strip.x, got.strip.width) == (got.view.x, got.view.width)
    assert layout.compute(width, height, scale, wanted).strip.height == 0


# ------------------------------------------------------------------------------------------- in the window
BRANCHES = """
import dataclasses
plain, long = engine._snapshot, "low learning rate run"
def with_branches():
    told = plain()
    main = m.BranchState("main", "main", tip=told.iteration, kept=(told.iteration,))
    other = m.BranchState("try", long, "main", 50, tip=60, kept=(60,))
    return dataclasses.replace(told, timeline=m.TimelineState((main, other, m.BranchState("b", "b", "try", 55, 58)), "main"))
engine._snapshot = with_branches
"""


def test_buttons_of_branches_are_clicked_while_the_run_trains_and_long_names_are_whole_in_a_tooltip(
        make_window: Callable[..., Window]) -> None:
    window = make_window(speed=200.0)
    window.run(BRANCHES)
    window.wait_for("len(shell.model.snapshot.timeline.branches) == 3")
    window.run("shell.branches.open()")
    window.frames(4)
    item = ("next(i for i in dpg.get_all_items() if dpg.get_item_label(i) == {0!r} and dpg.get_item_user_data(i) == 'try' "
            "and dpg.is_item_visible(i))")
    held, state = window.get(item.format("Delete")), window.get("id(shell.model.snapshot.timeline)")
    for text, came in (("Delete", "dpg.is_item_visible(shell.branches._question)"),
                       ("Look", "shell.view.moment == m.Moment('try', 60)"),
                       ("Go on", "any(type(c).__name__ == 'SwitchBranch' for c in engine.received)")):
        window.point(*window.middle(item.format(text)))
        window.input("mousedown", 1)
        window.frames(20)   # longer than a click, and several timelines
        window.input("mouseup", 1)
        window.wait_for(came)
        if text == "Look":
            window.frames(4)
            assert window.get("dpg.get_value(shell.timeline._combo)") not in ("main", window.get("long"))
            assert "…" in window.get("dpg.get_value(shell.timeline._combo)")
            assert window.get("__import__('app.gui.tips').gui.tips.explained(shell.timeline._combo)").startswith(
                "low learning rate run\n")
            assert window.get(item.format("Delete")) == held and window.get("id(shell.model.snapshot.timeline)") != state
    assert not window.get("shell.branches.shown") and window.get("list(shell._complained)") == []
    assert window.close() == 0


@pytest.fixture(scope="module")
def program(make_window: Callable[..., Window]) -> Iterator[Window]:
    """The demo, trained for a while and paused."""
    window = make_window(demo=True)
    window.wait_for("shell.model.frame is not None and shell.model.snapshot.iteration >= 60", "the first steps")
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    yield window
    assert window.get("list(shell._complained)") == []
    assert window.close() == 0


def spot(window: Window, share: float) -> tuple[float, float]:
    """Screen px of a place on the timeline."""
    x, y = window.get("dpg.get_item_rect_min(shell.timeline._canvas)")
    width, height = window.get("dpg.get_item_rect_size(shell.timeline._canvas)")
    inset = window.get("shell.timeline._inset")
    return x + inset + share * (width - 2 * inset), y + 0.75 * height


def test_drag_look_compare_and_resume_by_mouse_and_keys(program: Window) -> None:
    window = program
    now = window.get("shell.model.snapshot.iteration")
    window.point(*spot(window, 1.0))
    window.input("mousedown", 1, "sleep", "0.1", "mousemove", *map(round, spot(window, 0.5)), "sleep", "0.3")
    window.wait_for("shell.model.frame.moment is not None and shell.view.moment is not None", "the nearest kept moment")
    assert abs(window.get("shell.view.moment.iteration") - now / 2) <= 2
    window.input("mouseup", 1)
    window.wait_for("shell.model.frame.moment == shell.view.moment and shell.model.job is None", "the exact one")
    assert window.get("shell.model.snapshot.iteration") == now
    window.wait_for("'Looking back: iteration' in str([dpg.get_item_configuration(i).get('text') for i in "
                    "dpg.get_item_children(shell.viewport._caption, 2)])", "the caption")
    window.click(*window.middle("shell.timeline._compare"))
    window.wait_for("shell.view.comparing and shell.model.frame.request.beside is not None")
    assert window.get("shell.model.frame.moment_beside is None")
    window.input("key", "m")
    window.wait_for("not shell.view.comparing")
    window.input("key", "Left")
    window.wait_for("shell.view.moment.iteration in shell.model.snapshot.timeline.branches[0].kept")
    window.input("key", "Home")
    window.wait_for("shell.view.moment.iteration == 0 and shell.model.frame.iteration == 0")
    window.input("key", "Right")
    window.wait_for("shell.model.frame.iteration > 0")
    at = window.get("shell.view.moment.iteration")
    window.click(*window.middle("shell.timeline._resume"))
    window.wait_for("shell.branches.shown")
    window.frames(4)
    window.click(*window.middle("shell.branches._name"))
    window.input("type", "slow one")
    window.frames(3)
    window.input("key", "Return")
    window.wait_for("shell.model.snapshot.timeline.current == 'slow one'")
    assert window.get("shell.model.snapshot.iteration") == at and window.get("shell.view.moment is None")
    assert not window.get("shell.branches.shown")
    window.wait_for("dpg.get_item_configuration(shell.plots._plots[0].branches._lines[0])['show']")
    assert window.get("max(dpg.get_value(shell.plots._plots[0].branches._lines[0])[0])") == now


@pytest.mark.thorough
def test_branches_are_renamed_switched_and_deleted_in_their_window(program: Window) -> None:
    window = program
    if "slow one" not in window.get("[branch.name for branch in shell.model.snapshot.timeline.branches]"):
        window.run("engine.commands.put(m.BranchFrom(m.Moment('main', shell.model.snapshot.iteration), 'slow one'))")
    window.wait_for("shell.model.snapshot.timeline.current == 'slow one' and shell.model.snapshot.job is None")
    window.click(*window.middle("shell.timeline._resume"))
    window.wait_for("shell.branches.shown")
    window.frames(4)
    window.type_into("shell.branches._rows['main'].name", "first")
    window.wait_for("shell.model.snapshot.timeline.branches[0].label == 'first'")
    item = ("next(i for i in dpg.get_all_items() if dpg.get_item_label(i) == {0!r} and dpg.get_item_user_data(i) == {1!r} "
            "and dpg.is_item_visible(i))")
    window.frames(6)
    window.click(*window.middle(item.format("Go on", "main")))
    window.wait_for("shell.model.snapshot.timeline.current == 'main' and not shell.branches.shown")
    window.click(*window.middle("shell.timeline._resume"))
    window.wait_for("shell.branches.shown")
    window.frames(6)
    window.click(*window.middle(item.format("Delete", "slow one")))
    window.wait_for("dpg.is_item_visible(shell.branches._question)")
    window.frames(3)
    window.click(*window.middle("next(i for i in dpg.get_all_items() if dpg.get_item_label(i) == 'Delete it')"))
    window.wait_for("len(shell.model.snapshot.timeline.branches) == 1")
    window.input("key", "Escape")
    window.wait_for("not shell.branches.shown")
