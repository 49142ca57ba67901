"""What panels write, without a window: the age of a checkpoint, figures of a moment of the past, what was exported."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.gui.actions import Actions
from app.gui.moment_values import values_at
from app.gui.panels.densification import of_when, share_text
from app.gui.panels.film import written
from app.gui.panels.notices import ways_on
from app.gui.panels.open_scene import is_open
from app.gui.panels.plots import short_lines
from app.gui.panels.step_menu import refusal
from app.gui.panels.timeline import scale
from app.gui.panels.training import densifies, saved_text, saved_tip
from app.gui.panels.views import ViewsPanel
from app.gui.preferences import Preferences
from app.gui.view_model import ViewModel
from app.gui.view_state import ViewState
from app.gui.widgets import short_path
from app.inspection.losses import ViewLoss
from app.messages import (
    BranchState,
    Curve,
    EngineFailed,
    Histogram,
    Moment,
    Play,
    RunSaved,
    RunUntil,
    SceneOpened,
    SetOption,
    Snapshot,
    Steering,
    Step,
    TakePart,
    TimelineState,
    ViewsMeasured,
)


@pytest.mark.parametrize("iteration, seconds, text", [
    (3001, 400.0, "3 001 · 6 min"), (3001, -2.0, "3 001 · 0 s"), (99_999, 59.9, "99 999 · 59 s"),
    (123_456, 9000.0, "123k · 2 h")])
def test_the_row_saved_leaves_room_for_its_button(iteration: int, seconds: float, text: str) -> None:
    assert saved_text(iteration, seconds) == text and len(text) <= 14


@pytest.mark.parametrize("autosave, text", [
    ((60.0, 0), "every 60 s, at its end,"), ((0.0, 500), "every 500 iterations, at its end,"),
    ((7.5, 2000), "every 7.5 s, every 2 000 iterations, at its end,"), ((0.0, 0), "saves itself at its end,")])
def test_when_a_run_saves_itself_is_said_from_the_settings(autosave: tuple[float, int], text: str) -> None:
    assert text in saved_tip(True, autosave) and "not recorded" not in saved_tip(True, autosave)
    assert "no checkpoints" in saved_tip(False, autosave) and "saves itself" not in saved_tip(False, autosave)


@pytest.mark.parametrize(("window", "text"), [(None, "–"), ((), "not in this run"), ((416, 416), "once, at 416"),
                                              ((600, 14_900), "600 to 14 900")])
def test_the_row_densify_says_what_comes(window: tuple[int, ...] | None, text: str) -> None:
    assert " ".join(densifies(window).split()) == text


def test_after_a_failure_what_is_known_is_said_and_every_way_on() -> None:
    model = ViewModel()
    model.apply(EngineFailed("Preparing failed", "Traceback"), 0.0)
    assert ways_on(model).startswith("Open a scene to go on.")
    model.apply(SceneOpened("/s", "colmap", (), np.zeros(3), np.zeros(3), 1.0), 0.0)
    model.observe(Snapshot("failed", 1412, 30000))
    assert "iteration 1 412. This run is not recorded" in ways_on(model) and "Train tries to go on" in ways_on(model)
    model.observe(Snapshot("failed", 1412, 30000, run_folder="/runs/s"))
    assert "no checkpoint of this run yet" in ways_on(model) and "from the checkpoint" not in ways_on(model)
    model.apply(RunSaved(1400, 1.0, "/runs/s/checkpoints/main/iteration_1400.safetensors", 1), 0.0)
    text = ways_on(model)
    assert "newest checkpoint is of iteration 1 400" in text and "from the checkpoint" in text and "lost" not in text


def test_figures_of_a_moment_come_from_the_curves_of_its_branch() -> None:
    curve = Curve(np.array([1.0, 10.0, 20.0]), np.array([5.0, 6.0, np.nan]))
    other = Curve(np.array([5.0]), np.array([8.0]))
    state = TimelineState(current="main", branches=(BranchState("main", "main"), BranchState("b", "b")))
    snapshot = Snapshot(timeline=state, branch_curves={"b": {"count": other}})
    assert values_at(snapshot, {"count": curve}, Moment("main", 15)) == {"count": 6.0}
    assert values_at(snapshot, {"count": curve}, Moment("main", 0)) == {}
    assert values_at(snapshot, {"count": curve}, Moment("main", 20)) == {}   # not finite: unknown
    assert values_at(snapshot, {"count": curve}, Moment("b", 9)) == {"count": 8.0}


def test_the_ssim_of_a_moment_is_that_of_the_evaluation_whose_psnr_is_shown() -> None:
    psnr = Curve(np.array([10.0, 20.0, 30.0]), np.array([15.0, 16.0, 17.0]))
    branch = BranchState("main", "main", evaluated=(10, 20), ssim=(0.5, 0.6))
    snapshot = Snapshot(timeline=TimelineState(current="main", branches=(branch,)))
    assert values_at(snapshot, {"test_psnr": psnr}, Moment("main", 25)) == {"test_psnr": 16.0, "test_ssim": 0.6}
    assert values_at(snapshot, {"test_psnr": psnr}, Moment("main", 10)) == {"test_psnr": 15.0, "test_ssim": 0.5}
    assert values_at(snapshot, {"test_psnr": psnr}, Moment("main", 35)) == {"test_psnr": 17.0}   # never another one's
    assert values_at(snapshot, {}, Moment("main", 25)) == {}


def test_a_histogram_of_the_last_event_is_told_from_one_of_now() -> None:
    now = Histogram(np.array([0.1, 1.0, 10.0]), np.array([30, 10]), 1.0, "mean", 0.25)
    assert of_when(now) == "as it is now"
    assert share_text(now) == "threshold 1.00   above it 10 (25.0%)\nnever seen since the last densification 25.0%"
    then = replace(now, found=1356)
    assert of_when(then) == "as the event at iteration 1 356 found it"
    assert share_text(then) == "threshold 1.00   above it were 10 (25.0%)\nnever seen until then 25.0%"
    assert share_text(replace(now, below=True)) == "threshold 1.00   below it 30 (75.0%)"


def test_a_film_is_said_to_be_written_only_when_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    film, begun = tmp_path / "a.mp4", time.time()
    assert written(film, begun) == ""
    film.write_bytes(bytes(900_000))
    assert written(film, begun) == "Written: a.mp4, 0.9 MB"
    os.utime(film, (begun - 60, begun - 60))   # an older film: the new one was stopped
    assert written(film, begun) == ""
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.png").write_bytes(bytes(100_000))
    assert written(folder, begun) == "Written: frames, 2 pictures, 0.2 MB"


def test_paths_in_the_current_folder_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "a" / "b.png") == str(Path("a") / "b.png")
    assert short_path(tmp_path.parent / "c.png") == str(tmp_path.parent / "c.png")


def test_the_run_of_this_window_is_known_in_the_list(tmp_path: Path) -> None:
    assert is_open(str(tmp_path), str(tmp_path) + os.sep) and not is_open(str(tmp_path), "") and not is_open(
        str(tmp_path / "a"), str(tmp_path))


@pytest.mark.parametrize("end, step", [(3, 1), (10, 2), (640, 200), (3000, 500), (30_000, 5000), (99_999, 20_000)])
def test_the_timeline_has_round_numbers(end: int, step: int) -> None:
    found = scale(end, 6)
    assert found[:2] == [0, step] and found[-1] <= end and len(found) <= 8
    assert scale(0, 6) == []


@pytest.mark.parametrize("log", [False, True])
def test_lines_of_changed_options_are_short(log: bool) -> None:
    """A whole line at the edge looks like a fall of the curve."""
    x, y = short_lines([5.0, 9.0], 0.01, 1.0, log=log)
    assert x == [5.0, 5.0, 9.0, 9.0] and y[::2] == [1.0, 1.0] and all(0.5 < end < 0.9 for end in y[1::2])


def at_the_end(**fields: Any) -> ViewModel:
    model = ViewModel(scene=SceneOpened("/s", "colmap", (), np.zeros(3), np.zeros(3), 1.0))
    model.observe(Snapshot("finished", 3000, 3000, **fields))
    return model


def test_what_cannot_act_says_why() -> None:
    """At the end of a run, and where no densification is due."""
    model = at_the_end(steering=Steering(none_due="No densification is to come."))
    assert model.at_end and "All 3 000 iterations are done" in model.end_text
    assert refusal(model, RunUntil("densify")) == "No densification is to come."
    assert refusal(model, Step(1)) == refusal(model, TakePart("forward")) == model.end_text
    assert refusal(model, TakePart("densify")) == "" and refusal(model, None) == ""
    model.observe(Snapshot("paused", 2999, 3000))
    assert not model.at_end and refusal(model, Step(1)) == refusal(model, RunUntil("densify")) == ""


def test_at_the_end_the_button_trains_on_and_the_key_says_where_it_is() -> None:
    model, sent = at_the_end(), []
    actions = Actions(model, ViewState(), Preferences(), sent.append, lambda: 0.0)
    actions.toggle_play()
    actions.step()
    assert not sent and all("Train 3 000 more" in notice.text for notice in model.notices)
    actions.play_button()
    assert sent == [SetOption("iterations", 6000), Play()]


def test_a_table_of_the_views_replaces_none_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody typed its name, and another run of the scene has come to the same iteration."""
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    model = SimpleNamespace(scene=SimpleNamespace(path="/scenes/fox"))
    panel = ViewsPanel(SimpleNamespace(model=model, actions=SimpleNamespace(notify=said.append)))   # type: ignore[arg-type]
    for psnr in (20.0, 21.0):
        panel._found = ViewsMeasured(7, (ViewLoss(0, "a.jpg", "train", 0.1, 0.1, psnr, 0.8),))
        panel._on_csv()
    assert ["20" in (tmp_path / name).read_text() for name in ("fox_views_7.csv", "fox_views_7-2.csv")] == [True, False]
    assert said == [f"Saved {name} in {tmp_path}." for name in ("fox_views_7.csv", "fox_views_7-2.csv")]
