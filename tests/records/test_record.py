"""The record of a run on disk: what is written is read again, whatever happens to the process or the disk."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.data.scene import SceneError
from app.records import lines as lines_module
from app.records.about import about
from app.records.lines import Lines, current, read_lines
from app.records.read import read_run, summarise
from app.records.record import EVERY, METRICS, RunRecord, log_interval
from app.records.thumbnails import file_name, side_by_side, spread

ROOT = Path(__file__).parents[2]
CONFIG = {"seed": 7, "iterations": 300, "densify.strategy": "adc", "means_lr": 1.6e-4}


def described(**scene: object) -> dict:
    return about(CONFIG, {"path": "scenes/fox", "name": "fox", "kind": "colmap", **scene}, backend="cpu", threads=2)


def make(folder: Path, **named) -> RunRecord:
    folder.mkdir(exist_ok=True)
    return RunRecord(folder, flush_seconds=0.005, **named)


def train(record: RunRecord, first: int, last: int, *, base: float = 0.0) -> None:
    """Steps first..last; the loss says when they were made, by `base`."""
    for i in range(first, last + 1):
        if record.wants(i):
            record.step(i, seconds=0.02 * i, loss=base + 1.0 / i, l1=0.1, psnr=20.0 + i / 100, ssim=0.8, gaussians=1000 + i,
                        sh_degree=1, means_lr=1e-4, memory=10 ** 9)


def test_a_run_is_read_as_it_was_told(tmp_path):
    record = make(tmp_path / "läuf データ")
    record.begin(described())
    train(record, 1, 300)
    record.note("densified", 200, 4.0, cloned=3, split=2, pruned=1, reset=0, gaussians=1204)
    record.note("option", 250, 5.0, name="means_lr", old=1.6e-4, new=1e-3, live=True)
    record.evaluated(300, 6.0, psnr=23.0, ssim=0.9, gaussians=1300, last=True,
                     views=[{"name": "a.png", "psnr": 22.0, "ssim": 0.88}, {"name": "b.png", "psnr": 24.0, "ssim": 0.92}])
    assert record.close() and not record.problems
    run = read_run(record.folder)
    iterations, losses = run.series("loss")
    assert iterations == [*range(1, 101), *range(110, 301, EVERY)]   # each at first, then every tenth
    assert losses == pytest.approx([1.0 / i for i in iterations], rel=1e-5)
    assert run.series("iterations_per_second")[1][1:] == pytest.approx([50.0] * (len(iterations) - 1), rel=1e-4)
    assert [event["event"] for event in run.events] == ["started", "densified", "option", "evaluated"]
    assert run.about["seed"] == 7 and run.about["machine"]["threads"] == 2 and run.about["versions"]["numpy"]
    assert run.config["means_lr"] == 1e-3 and run.about["config"]["means_lr"] == 1.6e-4
    found = summarise(run)
    assert (found.scene, found.strategy, found.iterations, found.gaussians) == ("fox", "adc", 300, 1300)
    assert (found.psnr, found.ssim, found.measured) == (23.0, 0.9, 300) and found.rate == pytest.approx(50.0)


def test_tables_and_plots_are_made_at_the_end(tmp_path):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 300)
    record.evaluated(300, 6.0, psnr=23.0, ssim=0.9, last=True, views=[{"name": "a.png", "psnr": 23.0, "ssim": 0.9}])
    record.close()
    rows = list(csv.DictReader(io.StringIO((record.folder / "metrics.csv").read_text())))
    assert len(rows) == 120 and rows[-1]["iteration"] == "300" and float(rows[-1]["loss"]) == pytest.approx(1 / 300, rel=1e-5)
    assert (record.folder / "eval.csv").read_text().splitlines() == ["iteration,view,psnr,ssim,lpips", "300,a.png,23.0,0.9,"]
    for name in ("loss", "psnr", "count"):
        with Image.open(record.folder / "plots" / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB"), int)
        blue = np.abs(pixels - [0x00, 0x72, 0xB2]).sum(2) < 60   # the curve
        assert blue.sum() > 300 and np.ptp(np.nonzero(blue)[1]) > 0.7 * pixels.shape[1], name


def test_thirty_thousand_iterations_stay_small_and_longer_runs_are_logged_more_sparsely():
    logged = [i for i in range(1, 30_001) if i <= 100 or i % log_interval(i) == 0]
    assert len(logged) < 3_200
    assert [log_interval(i) for i in (1, 100, 101, 99_999, 100_000, 200_000, 400_000)] == [1, 1, 10, 10, 20, 40, 80]
    assert sum(1 / log_interval(i) for i in range(1, 2_000_000, 100)) * 100 < 40_000


# ------------------------------------------------------------------ killed, torn, taken up again

def test_a_torn_line_is_left_out_and_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"iteration":1}\n{"iteration":2,"lo')
    assert read_lines(path) == [{"iteration": 1}]
    lines = Lines(path)
    lines.add({"iteration": 3, "loss": math.nan})
    lines.write()
    assert read_lines(path) == [{"iteration": 1}, {"iteration": 3, "loss": None}]


@pytest.mark.parametrize("size", [15_000, 28_000, 60_000])
def test_C10_a_killed_run_and_its_resumption_make_one_clean_curve(tmp_path, size):
    """kill -9 in the middle of writing; the run is taken up from before that and its curve has each iteration once."""
    program = ("import sys, pathlib, time\n"
               "from tests.records.test_record import make, train, described\n"
               "record = make(pathlib.Path(sys.argv[1])); record.begin(described()); print('go', flush=True)\n"
               "for i in range(1, 10**9, 10): train(record, i, i + 9); time.sleep(0.0005)\n")
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "run")], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"go\n"
    path = tmp_path / "run" / METRICS
    end = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > size):   # ends: the process writes on
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    with path.open("ab") as stream:
        stream.write(b'{"iteration":99999999,"lo')   # and the power went
    before = read_run(tmp_path / "run").series("loss")[0]
    assert len(before) > 10 and before == sorted(set(before))
    again = make(tmp_path / "run")
    again.begin(described(), iteration=55, seconds=1.1)
    train(again, 56, 90, base=5.0)
    again.close()
    run = read_run(tmp_path / "run")
    iterations, losses = run.series("loss")
    assert iterations == list(range(1, 91))
    assert all((loss > 5.0) == (i > 55) for i, loss in zip(iterations, losses, strict=True))
    assert [(event["event"], event["iteration"]) for event in run.events] == [("started", 0), ("resumed", 55)]


def test_a_run_that_goes_over_the_same_iterations_without_a_word_has_the_newer_values():
    rows = [{"iteration": i, "loss": 1} for i in (10, 20, 30, 40)] + [{"iteration": i, "loss": 2} for i in (30, 40, 50)]
    assert [(row["iteration"], row["loss"]) for row in current(rows)] == [(10, 1), (20, 1), (30, 2), (40, 2), (50, 2)]


def test_options_are_those_of_the_last_start_and_what_was_changed_since(tmp_path):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 30)
    record.note("option", 10, 0.2, name="means_lr", old=1.6e-4, new=2e-4, live=True)
    record.close()
    again = make(tmp_path / "run")
    again.begin(described() | {"config": CONFIG | {"means_lr": 5e-4}}, iteration=20, seconds=0.4)
    train(again, 21, 30)
    again.note("option", 25, 0.5, name="iterations", old=300, new=500, live=True)
    again.note("option", 26, 0.5, name="seed", old=7, new=8, live=False)   # waits for the next run
    again.close()
    config = read_run(tmp_path / "run").config
    assert (config["means_lr"], config["iterations"], config["seed"]) == (5e-4, 500, 7)


# ------------------------------------------------------------------ disks

def full_disk(monkeypatch: pytest.MonkeyPatch, accepts: int = 30) -> None:
    """Half a line fits, then the disk is full, for lines and for whole files."""
    real = os.write

    def write(file, data):
        if len(data) > accepts:
            real(file, data[:accepts])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lines_module.os, "write", write)


def test_a_full_disk_is_said_once_leaves_nothing_half_written_and_loses_nothing(tmp_path, monkeypatch):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 20)
    assert record.flush()
    before = (record.folder / METRICS).read_bytes()
    with monkeypatch.context() as patched:
        full_disk(patched)
        for i in range(21, 61, 10):
            train(record, i, i + 9)
            assert record.flush()
        assert (record.folder / METRICS).read_bytes() == before
        assert len(record.problems) == 1
        sentence = record.problems.popleft()
        assert "cannot be written (no space left on device): training goes on" in sentence and sentence.count(". ") == 0
    train(record, 61, 70)
    record.close()
    assert not record.problems and read_run(record.folder).series("loss")[0] == list(range(1, 71))


def test_at_the_end_no_figures_are_promised_any_more(tmp_path, monkeypatch):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 20)
    assert record.flush()
    full_disk(monkeypatch)
    train(record, 21, 30)
    assert record.flush() and "training goes on" in record.problems.popleft()
    record.close()
    assert [sentence for sentence in record.problems if "what was still to be written is missing." in sentence]
    assert not any("training goes on" in sentence for sentence in record.problems) and not record.whole


def test_a_full_disk_at_the_start_keeps_the_description_for_later(tmp_path, monkeypatch):
    from app.data import atomic

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    record = make(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(atomic.os, "fsync", full)
        record.begin(described())
        train(record, 1, 10)
        assert record.flush() and len(record.problems) == 1
        assert not [path for path in record.folder.iterdir() if not path.name.startswith(".")]   # it goes on trying
    record.close()
    assert not list(record.folder.glob(".*"))
    run = read_run(record.folder)
    assert run.about["seed"] == 7 and len(run.metrics) == 10 and run.events[0]["event"] == "started"


def test_a_folder_that_is_removed_meanwhile_disturbs_nobody(tmp_path):
    record = make(tmp_path / "run")
    record.begin(described())
    train(record, 1, 10)
    assert record.flush()
    for path in record.folder.iterdir():
        path.unlink()
    record.folder.rmdir()
    train(record, 11, 30)
    assert record.close() and 1 <= len(record.problems) <= 2 and not record.whole
    assert "(it was moved or deleted): what was still to be written is missing." in record.problems[-1]


@pytest.mark.parametrize(("files", "sentence"), [
    ({}, "is not the folder of a run"),
    ({"metrics.jsonl": "nonsense\n"}, "holds no step that can be read"),
    ({"metrics.jsonl": '{"step": 3}\n'}, "holds no step that can be read"),
    ({"results.json": '{"psnr": 3}'}, "is not of a run of splatscope"),
    ({"results.json": '{"iterations": 3'}, "is damaged"),
    ({"metrics.jsonl": '{"iteration": 3}\n', "config.json": "[1]"}, "is damaged"),
    ({"metrics.jsonl": '{"iteration": 3}\n', "config.json": '{"lr": 3}'}, "is not of a run of splatscope"),
    ({"metrics.jsonl": '{"iteration": 3}\n', "config.json": '{"format": 99}'}, "install a newer splatscope"),
])
def test_a_foreign_or_broken_folder_is_one_sentence(tmp_path, files, sentence):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SceneError, match=sentence) as error:
        read_run(tmp_path)
    assert "; " in str(error.value) and ". " not in str(error.value)


def test_a_record_overwrites_no_file_that_is_not_a_runs(tmp_path):
    texts = {"config.json": '{"model": "bert"}', "results.json": "{", "cameras.json": '{"rig": 1}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for ending in (".damaged", "-2.damaged"):
        record = make(tmp_path)
        record.begin(described())
        train(record, 1, 3)
        assert record.close() and len(record.problems) == 3
        for name, text in texts.items():
            assert any(said.endswith(f"; it is called {name}{ending} now.") for said in record.problems)
            assert (tmp_path / f"{name}{ending}").read_text() == text
            (tmp_path / name).write_text(text)
    for name in texts:
        (tmp_path / name).unlink()
    record = make(tmp_path)
    record.begin(described())
    train(record, 1, 3)
    assert record.close() and not record.problems and read_run(tmp_path).about["scene"]["name"] == "fox"


# ------------------------------------------------------------------ thumbnails

def test_a_thumbnail_shows_render_and_photograph_over_the_runs_background():
    render = np.zeros((100, 800, 3), np.uint8)
    render[..., 0] = 255
    photograph = np.zeros((100, 800, 4), np.uint8)
    photograph[:, :400] = (0, 255, 0, 255)   # opaque green, then transparent
    with Image.open(io.BytesIO(side_by_side(render, photograph, (1.0, 1.0, 1.0)))) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (40, 644, 3)
    assert pixels[20, 100].tolist() == [255, 0, 0]
    assert pixels[20, 330].tolist() == [0, 255, 0] and pixels[20, 640].tolist() == [255, 255, 255]


def test_views_of_thumbnails_are_spread_and_their_names_become_files():
    names = [f"{i}.png" for i in range(10)]
    assert spread(names, 3) == {"0.png", "4.png", "9.png"} and spread(names[:2], 3) == {"0.png", "1.png"}
    assert [file_name(name) for name in ("train/r_0.png", "a:b?.JPG", "..", "c.d")] == [
        "train_r_0.png", "a_b_.png", "view.png", "c.d.png"]


# ------------------------------------------------------------------ TensorBoard

def test_event_files_carry_gsplats_tags(tmp_path):
    from tensorboard.backend.event_processing import event_file_loader as loader

    record = make(tmp_path / "run", tensorboard=True)
    record.begin(described())
    train(record, 1, 30)
    record.evaluated(30, 1.0, psnr=23.0, ssim=0.9, lpips=0.2, gaussians=1030)
    record.go_on(20, 0.4, branch="main", config=CONFIG)
    train(record, 21, 30, base=7.0)
    record.go_on(25, 0.5, branch="try", parent="main", config=CONFIG)
    train(record, 26, 30)
    record.close()
    assert sorted(path.name for path in (record.folder / "tb").iterdir()) == ["main", "try"]
    file, = (record.folder / "tb" / "main").iterdir()
    found: dict[str, list[tuple[int, float]]] = {}
    starts = []
    for event in loader.EventFileLoader(str(file)).Load():
        if event.HasField("session_log"):
            starts.append(event.step)
        for value in event.summary.value:
            number = value.simple_value or (value.tensor.float_val[0] if value.tensor.float_val else 0.0)
            found.setdefault(value.tag, []).append((event.step, number))
    assert {"train/loss", "train/l1loss", "train/ssimloss", "train/num_GS", "train/mem",
            "val/psnr", "val/ssim", "val/lpips", "val/num_GS"} <= set(found)
    assert found["train/ssimloss"][0] == (1, pytest.approx(0.2)) and found["train/num_GS"][29] == (30, 1030)
    assert found["train/mem"][0][1] == pytest.approx(10 ** 9 / 2 ** 30) and found["val/psnr"] == [(30, 23.0)]
    assert starts == [1, 21] and found["train/loss"][-1] == (30, pytest.approx(7.0 + 1 / 30))


def test_writing_needs_no_torch():
    code = ("import sys, app.records.record, app.records.derived, app.records.plots, app.records.compare, "
            "app.records.tensorboard, app.records.thumbnails\n"
            "sys.exit(str([m for m in ('torch', 'dearpygui', 'matplotlib', 'tensorboard') if m in sys.modules] or ''))")
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr.strip() == "", result.stderr


def test_results_alone_are_a_run_too(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"iterations": 500, "seconds": 10.0, "iterations_per_second": 50.0,
                                                       "gaussians": 99, "psnr": 21.5, "ssim": 0.7, "lpips": None,
                                                       "backend": "cpu"}))
    found = summarise(read_run(tmp_path))
    assert (found.iterations, found.rate, found.gaussians, found.psnr, found.lpips) == (500, 50.0, 99, 21.5, None)
    assert found.scene is None and found.strategy is None and found.measured == 500


def test_results_of_an_earlier_run_in_the_folder_do_not_count(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"iterations": 500, "seconds": 10.0, "gaussians": 99, "psnr": 21.5}))
    record = make(tmp_path)
    record.begin(described())
    train(record, 1, 20)
    assert record.flush() and summarise(read_run(tmp_path)).iterations == 20   # and it was killed
    train(record, 21, 500)
    record.note("finished", 500, 10.0)
    record.close()
    assert summarise(read_run(tmp_path)).gaussians == 99
