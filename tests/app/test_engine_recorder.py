"""The run in the window is recorded: where, what, what it costs, and what happens where it cannot be."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from PIL import Image

from app import messages as m
from app.config import TrainConfig
from app.data.cameras_json import read_cameras_json
from app.demo import demo_folder
from app.engine.recorder import Recorder
from app.records.place import Place, prune_demos
from app.records.read import read_run, summarise
from tests.app.engine_doubles import open_tiny, quick_settings, running_engine, trainer_class
from tests.training.tiny import make_scene


@pytest.fixture
def scene(tmp_path: Path) -> str:
    folder = tmp_path / "gärten" / "my garden"
    folder.mkdir(parents=True)
    return str(folder)


def open_named(path: str, **named):
    """The tiny scene, under the path that was opened."""
    made = open_tiny(path, **named)
    made.path = path
    return made


def finish(window) -> None:
    window.until(lambda: window.snapshot.state == "finished" and window.of(m.Evaluated))


def told(folder: Path) -> list[dict]:
    """Events but for saves: checkpoints come when they like."""
    return [event for event in read_run(folder).events if event["event"] != "saved"]


def test_engines_of_tests_record_nothing():
    assert quick_settings().record is None
    with running_engine(TrainConfig(iterations=5)) as window:
        window.open(play=True)
        finish(window)
        assert window.engine.run_folder is None and window.snapshot.run_folder == ""


def test_a_run_is_recorded_in_a_new_folder_that_comes_to_be_with_the_first_step(tmp_path, scene):
    root = tmp_path / "runs"
    trainer = trainer_class(densify_at=frozenset({120}))
    with running_engine(TrainConfig(iterations=205), record=Place(root=root), make_trainer=trainer,
                        open_scene=open_named) as window:
        window.open(scene)
        folder = window.engine.run_folder
        assert folder is not None and re.fullmatch(r"my_garden-\d{8}-\d{6}", folder.name) and not root.exists()
        assert window.snapshot.run_folder == str(folder)
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        window.send(m.SetOption("means_lr", 1e-3), m.SetOption("sh_degree", 1), m.Play())
        finish(window)
        window.send(m.SavePly(str(tmp_path / "out.ply")))
        window.until(lambda: any("Saved" in notice.text for notice in window.of(m.Notice)))
    run = read_run(folder)
    assert [(event["event"], event["iteration"]) for event in told(folder)] == [
        ("started", 0), ("option", 2), ("option", 2), ("densified", 120), ("finished", 205), ("evaluated", 205),
        ("closed", 205)]
    assert str(tmp_path / "out.ply") in [event["path"] for event in run.events if event["event"] == "saved"]
    changed = told(folder)[1]
    assert (changed["name"], changed["old"], changed["new"], changed["live"]) == ("means_lr", 1.6e-4, 1e-3, True)
    born = told(folder)[3]
    assert (born["cloned"], born["gaussians"]) == (1, 20) and {"strategy", "relocated", "added", "asked"} <= set(born)
    assert told(folder)[2]["live"] is False and all("time" in event for event in run.events)
    assert run.series("iteration")[0] == [*range(1, 101), *range(110, 201, 10), 205]   # the last one too
    assert run.about["scene"] == run.about["scene"] | {"path": scene, "name": "my garden", "train_views": 2, "test_views": 2}
    found = summarise(run)
    evaluated = window.of(m.Evaluated)[-1]
    assert found.iterations == 205 and found.psnr == pytest.approx(evaluated.psnr, rel=1e-5)
    assert [view["name"] for view in run.evaluations[-1]["views"]] == ["view0.png", "view2.png"]
    with Image.open(folder / "thumbnails" / "main" / "iteration_205" / "view2.png") as image:
        assert image.size == (24 + 4 + 24, 24)
    assert (folder / "plots" / "psnr.png").exists() and (folder / "metrics.csv").exists()
    assert [name for name, _ in read_cameras_json(folder / "cameras.json")] == ["view0.png", "view2.png", "view1.png",
                                                                               "view3.png"]


def test_a_reset_begins_another_folder_unless_the_user_named_one(tmp_path, scene):
    for place, same in ((Place(root=tmp_path / "runs"), False), (Place(tmp_path / "mine"), True)):
        with running_engine(TrainConfig(iterations=1000), record=place, open_scene=open_named) as window:
            window.open(scene)
            first = window.engine.run_folder
            window.send(m.Step(30))
            window.until(lambda window=window: window.snapshot.iteration == 30)
            window.send(m.Reset())
            window.until(lambda window=window: window.snapshot.iteration == 0)
            second = window.engine.run_folder
            assert (first == second) is same
            window.send(m.Step(8))
            window.until(lambda window=window: window.snapshot.iteration == 8)
        assert read_run(second).series("loss")[0] == list(range(1, 9))
        if same:
            assert [event["event"] for event in told(second)] == ["restarted", "closed"]
        else:
            assert read_run(first).series("loss")[0] == list(range(1, 31))


def test_another_scene_does_not_land_in_the_folder_that_the_user_named_for_the_first(tmp_path, scene):
    place = Place(tmp_path / "mine", root=tmp_path / "runs")
    with running_engine(TrainConfig(iterations=1000), record=place, open_scene=open_named) as window:
        window.open(scene)
        assert window.engine.run_folder == tmp_path / "mine"
        window.open(str(Path(scene).parent))
        assert window.engine.run_folder is not None and window.engine.run_folder.parent == tmp_path / "runs"
        window.open(scene)
        assert window.engine.run_folder == tmp_path / "mine"


def test_a_run_taken_up_again_and_a_branch_go_on_in_their_folder(tmp_path, scene):
    """What checkpoints and the timeline call: resume_in() before the first step, went_on() when the trainer went back."""
    with running_engine(TrainConfig(iterations=1000), record=Place(root=tmp_path), open_scene=open_named) as window:
        window.open(scene)
        window.send(m.Step(40))
        window.until(lambda: window.snapshot.iteration == 40 and window.snapshot.state == "paused")
        folder = window.engine.run_folder
    with running_engine(TrainConfig(iterations=1000), record=Place(root=tmp_path), open_scene=open_named) as window:
        window.open(scene)
        engine = window.engine
        assert engine.model is not None and engine.model.trainer is not None and folder is not None
        engine.model.trainer.iteration = 25   # the engine rests: nothing is running
        engine.recorder.resume_in(folder)
        engine.timeline.taken_up()
        window.send(m.Step(5))
        window.until(lambda: window.snapshot.iteration == 30 and window.snapshot.state == "paused")
        engine.model.trainer.iteration = 28
        engine.timeline.go_on_as("second")
        engine.recorder.went_on()
        window.send(m.Step(4))
        window.until(lambda: window.snapshot.iteration == 32 and window.snapshot.state == "paused")
    run = read_run(folder)
    assert run.series("loss")[0] == list(range(1, 33))
    assert [(event["event"], event["iteration"]) for event in told(folder)] == [
        ("started", 0), ("resumed", 25), ("branch", 28), ("closed", 32)]
    assert {name: len(rows) for name, rows in run.branches().items()} == {"main": 30, "second": 32}


def test_where_nothing_can_be_written_one_sentence_is_said_and_training_goes_on(tmp_path, scene, capsys):
    (tmp_path / "runs").write_text("a file where the folder should be")
    with running_engine(TrainConfig(iterations=50), record=Place(root=tmp_path / "runs"), open_scene=open_named) as window:
        window.open(scene, play=True)
        finish(window)
        said = [notice.text for notice in window.of(m.Notice) if notice.level == "warning"]
        assert len(said) == 1 and "The run is not recorded" in said[0] and "training goes on" in said[0]
        assert window.engine.run_folder is None and window.snapshot.run_folder == ""
    assert capsys.readouterr().err.count("not recorded") == 1


def test_without_held_out_views_the_end_has_thumbnails_of_training_views(tmp_path, scene):
    def all_for_training(path: str, **named):
        return make_scene(5, 12, size=24, points=20)

    with running_engine(TrainConfig(iterations=20), record=Place(root=tmp_path), open_scene=all_for_training) as window:
        window.open(scene, play=True)
        window.until(window.state("finished"))
        window.until(lambda: window.engine.jobs.current is None)
        folder = window.engine.run_folder
    assert folder is not None
    pictures = (folder / "thumbnails" / "main" / "iteration_20").iterdir()
    assert {path.name for path in pictures} == {"view0.png", "view2.png", "view4.png"}


def test_what_the_user_does_to_the_gaussians_is_an_event(tmp_path, scene):
    with running_engine(TrainConfig(iterations=1000), record=Place(root=tmp_path), open_scene=open_named) as window:
        window.open(scene)
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        window.send(m.SelectRange("opacity", -1.0, 2.0), m.Operate("freeze"), m.Undo())
        window.sync()
        folder = window.engine.run_folder
    assert folder is not None
    edits = [event for event in read_run(folder).events if event["event"] == "edited"]
    assert [(edit["iteration"], edit["undone"]) for edit in edits] == [(3, False), (3, True)]
    assert edits[0]["what"].startswith("freezing 20 Gaussians")


def test_a_model_that_is_only_looked_at_has_no_record(tmp_path, scene):
    with running_engine(TrainConfig(iterations=1000), record=Place(root=tmp_path / "runs"), open_scene=open_named) as window:
        window.open(scene)
        window.send(m.Step(3), m.SavePly(str(tmp_path / "x.ply")))
        window.until(lambda: any("Saved" in notice.text for notice in window.of(m.Notice)))
        window.open(str(tmp_path / "x.ply"))
        assert window.engine.run_folder is None


def test_a_step_costs_the_engine_next_to_nothing(tmp_path, scene, monkeypatch):
    """Under 20 us a step on average, the writer's thread at work beside it."""
    spent: list[float] = []
    real = Recorder.stepped

    def timed(self, report):
        begun = time.thread_time()
        real(self, report)
        spent.append(time.thread_time() - begun)

    monkeypatch.setattr(Recorder, "stepped", timed)
    with running_engine(TrainConfig(iterations=5000), record=Place(root=tmp_path), open_scene=open_named) as window:
        window.open(scene, play=True)
        finish(window)
    assert len(spent) == 5000 and sum(spent[1:]) / len(spent) < 20e-6   # the first makes the folder
    folder = next(tmp_path.glob("my_garden-*"))
    assert sum(path.stat().st_size for path in folder.glob("*.*")) < 400_000


# ------------------------------------------------------------------ where

def test_folders_of_runs_are_named_after_the_scene_and_never_twice(tmp_path):
    place = Place(root=tmp_path)
    first = place.choose("/scenes/Fuchs & Gans/")
    assert re.fullmatch(r"Fuchs_Gans-\d{8}-\d{6}", first.name)
    first.mkdir()
    second = place.choose("/scenes/Fuchs & Gans/")
    assert second != first and not second.exists()
    assert Place(tmp_path / "own", root=tmp_path).choose("/scenes/fox") == tmp_path / "own"


def test_only_old_unnamed_runs_of_the_demo_are_removed(tmp_path):
    def run(name: str, kind: str = "demo", age: float = 1e5) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"scene": {"kind": kind}}))
        (folder / "metrics.jsonl").write_text("")
        os.utime(folder / "metrics.jsonl", (time.time() - age,) * 2)
        return folder

    demos = [run(f"demo-20260101-0000{i:02d}") for i in range(8)]
    kept = [run("demo-20250101-000000", age=60.0), run("demo-mine"), run("fox-20250101-000000", "colmap")]
    (tmp_path / "demo-20250101-000001").mkdir()   # of somebody else
    removed = prune_demos(tmp_path, demos[0], keep=3)
    assert set(removed) == set(demos[1:5])
    assert all(folder.exists() for folder in (*kept, *demos[5:], demos[0], tmp_path / "demo-20250101-000001"))


def test_the_demo_is_recorded_as_such(tmp_path):
    with running_engine(TrainConfig(iterations=1000), record=Place(root=tmp_path), open_scene=open_named) as window:
        window.open(str(demo_folder()))
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 1)
        folder = window.engine.run_folder
    assert folder is not None and folder.name.startswith("demo-") and read_run(folder).about["scene"]["kind"] == "demo"
