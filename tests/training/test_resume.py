"""C10, C11: a headless run that ends early goes on where it was, whatever ended it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.__main__ import main
from app.config import DensifyConfig, TrainConfig
from app.data.cameras_json import read_cameras_json
from app.data.checkpoints import find, place
from app.data.scene import SceneError
from app.records.lines import branches, read_lines
from app.records.read import read_run
from app.training import run as run_module
from app.training import saving
from app.training.autosave import AutosaveConfig
from app.training.checkpoint import newest, read, write
from app.training.run import train_headless
from app.training.saving import branch_of
from app.training.trainer import Trainer
from tests.training.test_trainer import fingerprint
from tests.training.tiny import make_scene

CONFIG = TrainConfig(iterations=30, schedule_iterations=30_000, seed=3,
                     densify=DensifyConfig(start=3, every=10, stop=29, grad_threshold=1e-6))
NO_AUTOSAVE = AutosaveConfig(seconds=0)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scene():
    return make_scene(5, 12, size=32, points=30, test_every=5)


def train(scene, config, out, **named):
    return train_headless(scene, config, out, backend="cpu", threads=1, quiet=True, **named)


def final(out: Path):
    return newest(out).state


def same_bits(a, b) -> bool:
    """Also of the curves, but for held-out scores, which are measured when somebody asks."""
    return a.arrays.keys() == b.arrays.keys() and all(np.array_equal(a.arrays[n], b.arrays[n]) for n in a.arrays
                                                      if n != "history.test_psnr")


def test_C11_a_run_that_is_stopped_and_resumed_ends_with_the_bits_of_one_that_was_not(tmp_path, scene, monkeypatch, capsys):
    train(scene, CONFIG, tmp_path / "plain")

    class Stopped(Trainer):
        def step(self):
            if self.iteration == 13:
                raise KeyboardInterrupt
            return super().step()

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "Trainer", Stopped)
        with pytest.raises(KeyboardInterrupt):
            train(scene, CONFIG, tmp_path / "broken", test_iterations=(5,), autosave=NO_AUTOSAVE)
    found = newest(tmp_path / "broken")
    assert found.state.iteration == 13 and "--resume goes on" in capsys.readouterr().err
    results = train(scene, CONFIG, tmp_path / "broken", resume_from=found)
    assert same_bits(final(tmp_path / "plain"), final(tmp_path / "broken"))
    assert [entry["iteration"] for entry in results["history"]] == [5, 30]
    assert results["seconds"] > float(found.extra["seconds"]) > 0


def test_a_finished_run_goes_on_past_its_target_and_says_what_that_does(tmp_path, scene, capsys):
    train(scene, replace(CONFIG, iterations=12), tmp_path)
    with pytest.raises(SceneError, match="iteration 12 of 12.*--iterations"):
        train(scene, replace(CONFIG, iterations=12), tmp_path, resume_from=newest(tmp_path))
    results = train(scene, replace(CONFIG, opacity_lr=0.01), tmp_path, resume_from=newest(tmp_path))
    assert results["iterations"] == 30 and final(tmp_path).meta["config"]["opacity_lr"] == 0.01
    err = capsys.readouterr().err
    assert "resumed at iteration 12" in err and "Schedules stay" in err


@pytest.mark.parametrize("text", ["{half", "[]", '{"iterations": "many"}'])
def test_damaged_results_of_before_are_set_aside_with_a_sentence(tmp_path, scene, capsys, text):
    train(scene, replace(CONFIG, iterations=6), tmp_path)
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    train(scene, replace(CONFIG, iterations=9), tmp_path, resume_from=newest(tmp_path))
    err = capsys.readouterr().err
    assert f"{tmp_path / 'results.json'} is " in err and "; it is called results.json.damaged now." in err
    assert (tmp_path / "results.json.damaged").read_text(encoding="utf-8") == text and "cannot be written" not in err
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["iterations"] == 9
    assert read_run(tmp_path).series("iteration")[0] == [*range(1, 10)]


def test_files_of_something_else_in_the_folder_of_a_new_run_are_set_aside(tmp_path, scene, capsys):
    """-m names a folder that another program has files of these names in."""
    texts = {"config.json": '{"model": "bert"}', "cameras.json": '{"rig": 1}', "results.json": '{"accuracy": 0.9}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    train(scene, replace(CONFIG, iterations=6), tmp_path)
    err = capsys.readouterr().err
    for name, text in texts.items():
        assert f"{tmp_path / name} is not " in err and f"; it is called {name}.damaged now." in err
        assert (tmp_path / f"{name}.damaged").read_text(encoding="utf-8") == text
    assert err.count("it is called") == 3 and read_run(tmp_path).about["scene"] and read_cameras_json(tmp_path / "cameras.json")
    train(scene, replace(CONFIG, iterations=6), tmp_path)
    assert "it is called" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["metrics.jsonl", "plots"])
def test_a_run_whose_record_cannot_be_written_does_not_end_well(tmp_path, scene, capsys, name):
    if name == "plots":
        (tmp_path / name).write_text("in the way")
    else:
        (tmp_path / name).mkdir()
    with pytest.raises(SceneError, match="its record there is not complete: what could not be written is said above"):
        train(scene, replace(CONFIG, iterations=6), tmp_path)
    assert "cannot be written" in capsys.readouterr().err and newest(tmp_path).state.iteration == 6
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["iterations"] == 6


def test_autosave_keeps_to_its_iterations_and_the_disk_to_its_budget(tmp_path, scene):
    train(scene, CONFIG, tmp_path, autosave=AutosaveConfig(seconds=0, iterations=4, gigabytes=0.5))
    assert sorted(saved.iteration for saved in find(tmp_path)[0]) == [4, 8, 12, 16, 20, 24, 28, 30]
    assert {saved.reason for saved in find(tmp_path)[0]} == {"iterations", "end"}


def test_a_disk_that_is_full_is_said_once_and_training_goes_on(tmp_path, scene, monkeypatch, capsys):
    original, fails = saving.checkpoint.write, iter([True] * 3 + [False] * 99)

    def write(path, *args, **named):
        if next(fails):
            raise SceneError(f"{path} cannot be written (No space left on device)")
        return original(path, *args, **named)

    monkeypatch.setattr(saving.checkpoint, "write", write)
    train(scene, CONFIG, tmp_path, autosave=AutosaveConfig(seconds=0, iterations=4))
    assert capsys.readouterr().err.count("training goes on without checkpoints") == 1
    assert min(saved.iteration for saved in find(tmp_path)[0]) == 16


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    assert main(["train", str(ROOT / "assets" / "demo"), "-m", str(out), "--iterations", "6", "--long_side", "48", "--eval",
                 "--quiet"]) == 0
    return out


def test_the_command_line_resumes_with_the_options_of_the_run_and_flags_change_them(demo_run, tmp_path, capsys):
    assert main(["train", "-m", str(demo_run), "--resume", "--iterations", "9", "--quiet"]) == 0
    again = json.loads((demo_run / "results.json").read_text(encoding="utf-8"))
    assert again["iterations"] == 9 and again["test_views"] > 0   # --eval was remembered
    assert newest(demo_run).extra["scene"]["long_side"] == 48
    for words, says in ((["-m", str(demo_run), "--resume"], "nothing is left to train"),
                        (["-m", str(tmp_path), "--resume"], "no checkpoint to resume from"),
                        (["--resume"], "needs the folder of the run"),
                        (["-m", str(tmp_path), "--start_checkpoint", str(demo_run / "results.json")], "no checkpoint"),
                        ([str(ROOT / "assets" / "demo"), "-m", str(demo_run), "--resume", "--iterations", "20", "--eval",
                          "--long_side", "48", "--start_checkpoint", "nothing.safetensors"], "nothing.safetensors")):
        capsys.readouterr()
        assert main(["train", *words]) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1


def test_another_scene_is_refused(demo_run, tmp_path, scene):
    with pytest.raises(SceneError, match="cannot be resumed: the checkpoint was trained on"):
        train(scene, replace(CONFIG, iterations=99), tmp_path, resume_from=newest(demo_run))


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send")
def test_sigterm_saves_first(tmp_path):
    run = subprocess.Popen([sys.executable, "-m", "app", "train", str(ROOT / "assets" / "demo"), "-m", str(tmp_path),
                            "--iterations", "100000", "--long_side", "48", "--autosave.iterations", "5", "--quiet"], cwd=ROOT,
                           stderr=subprocess.PIPE, text=True)
    until(lambda: find(tmp_path)[0])
    run.terminate()
    _, err = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM and "Traceback" not in err and "--resume goes on" in err
    assert newest(tmp_path).state.iteration == max(saved.iteration for saved in find(tmp_path)[0])


def until(true) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


FORKS = """
import os, sys
from dataclasses import replace
from pathlib import Path
import torch
import app.training.run, app.training.trainer, app.training.evaluate
from app.training.autosave import AutosaveConfig
from app.data.checkpoints import find
from app.records.lines import branches, read_lines
from app.training.checkpoint import newest, read, write
from tests.training.test_resume import CONFIG
from tests.training.tiny import make_scene

out = Path(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:   # one child for each line: modules are loaded once, kernels' threads begin in the child
    child = os.fork()
    if child == 0:
        os.close(0)
        scene = make_scene(5, 12, size=32, points=30)
        config = replace(CONFIG, iterations=100_000, densify=replace(CONFIG.densify, every=3, cap=3000, stop=90_000))
        found = newest(out) if find(out)[0] else None
        print("at", found.state.iteration if found else 0, flush=True)
        app.training.run.train_headless(scene, config, out, backend="cpu", threads=2, quiet=True, resume_from=found,
                                        autosave=AutosaveConfig(seconds=0, iterations=1, gigabytes=0.1))
        os._exit(9)
    print("pid", child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork, nor send SIGKILL")
def test_C10_kill_9_at_50_moments_loses_no_file_and_every_run_resumes(tmp_path, monkeypatch):
    """A checkpoint at every step and an event every third: most kills fall into a save or a densification."""
    rng, kills = random.Random(0), 50
    server = subprocess.Popen([sys.executable, "-c", FORKS, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert server.stdin is not None and server.stdout is not None

    def told(word: str) -> int:
        line = server.stdout.readline().split()   # type: ignore[union-attr]
        assert line and line[0] == word, line
        return int(line[1]) if len(line) > 1 else 0

    told("ready")
    reached, resumed = 0, []
    for _ in range(kills):
        server.stdin.write("\n")
        server.stdin.flush()
        first, second = (server.stdout.readline().split() for _ in range(2))   # in whichever order the two processes write
        said = {first[0]: int(first[1]), second[0]: int(second[1])}
        resumed.append(said["at"])
        assert said["at"] >= reached, "what was on the disk is there again"
        until(lambda start=said["at"]: max((saved.iteration for saved in find(tmp_path)[0]), default=0) > start)
        time.sleep(rng.uniform(0.0, 0.15))
        before = max(saved.iteration for saved in find(tmp_path)[0])
        os.kill(said["pid"], signal.SIGKILL)
        told("gone")
        whole, damaged = find(tmp_path)
        assert not damaged and max(saved.iteration for saved in whole) >= before
        reached = newest(tmp_path).state.iteration
        assert reached >= before
    server.stdin.close()
    assert server.wait(timeout=60) == 0
    assert len(set(resumed)) == kills and reached > 2 * kills
    # and the bits are those of a run that nobody killed
    config = replace(CONFIG, iterations=100_000, densify=replace(CONFIG.densify, every=3, cap=3000, stop=90_000))
    plain = Trainer(make_scene(5, 12, size=32, points=30), config, backend="cpu")
    while plain.iteration < reached:
        plain.step()
    other = Trainer(plain.scene, config, backend="cpu")
    saving.resume(other, newest(tmp_path), {})
    assert fingerprint(other) == fingerprint(plain)
    assert place(tmp_path, reached).is_file()


def test_a_new_run_in_the_folder_of_an_old_one_says_so_and_is_what_resuming_means(tmp_path, scene, monkeypatch, capsys):
    train(scene, replace(CONFIG, iterations=9), tmp_path)

    class Killed(Trainer):
        def step(self):
            raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "Trainer", Killed)
        with pytest.raises(SystemExit):
            train(scene, CONFIG, tmp_path)
    assert "has checkpoints of an earlier run" in capsys.readouterr().err
    assert newest(tmp_path).state.iteration == 0
    assert sorted(saved.iteration for saved in find(tmp_path)[0]) == [0, 9]


def test_a_new_run_in_an_old_folder_and_one_that_goes_back_overwrite_nothing(tmp_path, scene):
    often = AutosaveConfig(seconds=0, iterations=4)
    train(scene, replace(CONFIG, iterations=12), tmp_path, autosave=often)
    before = {saved.path: saved.path.read_bytes() for saved in find(tmp_path)[0]}
    train(scene, replace(CONFIG, iterations=8, seed=9), tmp_path, autosave=often)
    assert branch_of(newest(tmp_path)) == "run-2" and newest(tmp_path).state.iteration == 8
    train(scene, replace(CONFIG, iterations=12, opacity_lr=0.1), tmp_path, autosave=often,
          resume_from=read(place(tmp_path, 4)))
    assert branch_of(newest(tmp_path)) == "main-2" and newest(tmp_path).state.iteration == 12
    assert {path: path.read_bytes() for path in before} == before
    found = branches(read_lines(tmp_path / "metrics.jsonl"))
    assert [(name, rows[-1]["iteration"]) for name, rows in found.items()] == [("main", 12), ("run-2", 8), ("main-2", 12)]


def test_what_a_window_kept_beside_a_run_stays_through_a_leg_without_one(tmp_path, scene):
    train(scene, replace(CONFIG, iterations=11), tmp_path)
    path = newest(tmp_path).path
    found = read(path)
    timeline = {"entries": [], "branches": [{"name": "main", "label": "main", "parent": "", "fork": 0, "known": 0, "tip": 11,
                                             "seconds": 1.0, "log": [], "folder": ""}]}
    write(path, found.state, {**found.extra, "camera": {"width": 3}, "timeline": timeline, "selected_uid": 5})
    train(scene, CONFIG, tmp_path, resume_from=read(path))
    again = newest(tmp_path)
    assert again.extra["camera"] == {"width": 3} and again.extra["selected_uid"] == 5 and again.state.iteration == 30
    assert again.extra["timeline"]["branches"][0]["known"] == 11
    assert again.state.arrays["history.loss"][0].tolist() == list(range(1, 31))
    assert [event["iteration"] for event in again.extra["events"] if event["kind"] == "Densified"] == [10, 20]
