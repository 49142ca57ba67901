"""`splatscope compare`: what is printed, drawn and refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.__main__ import main
from app.records import place, read
from app.records.compare import COLUMNS, compare, differences
from app.records.plots import COLORS, smoothed
from app.records.read import read_run
from tests.records.test_record import CONFIG, described, make, train


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """adc: better PSNR; none: other options, one changed on the way; old: results.json alone. Nobody writes into them."""
    tmp_path = tmp_path_factory.mktemp("runs")
    other = {"densify.strategy": "none", "new_option": 3}
    for name, changed, psnr, base in (("adc", {}, 25.5, 0.0), ("none", other, 24.0, 0.5)):
        record = make(tmp_path / name)
        record.begin(described() | {"config": CONFIG | changed})
        train(record, 1, 200, base=base)
        if name == "none":
            record.note("option", 150, 3.0, name="means_lr", old=1.6e-4, new=1e-3, live=True)
        record.evaluated(200, 4.0, psnr=psnr, ssim=0.9, lpips=0.25, views=[], last=True)
        train(record, 201, 240, base=base)
        record.close()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.json").write_text(json.dumps(
        {"iterations": 700, "seconds": 2.0, "iterations_per_second": 350.0, "gaussians": 12, "psnr": None, "ssim": None}))
    return [str(tmp_path / name) for name in ("adc", "none", "old")]


def test_the_table_marks_the_best_and_names_what_differs(runs, capsys):
    assert main(["compare", *runs]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line.split()[0]: line.split() for line in lines[1:4]}
    assert lines[0].split() == [column.title for column in COLUMNS]
    assert table["adc"] == ["adc", "fox", "adc", "240", "4.8", "50.0", "1,240", "25.50*", "0.9000", "0.2500"]
    assert table["none"] == ["none", "fox", "none", "240", "4.8", "50.0", "1,240", "24.00", "0.9000", "0.2500"]
    assert table["old"] == ["old", "-", "-", "700", "2.0*", "350.0*", "12*", "-", "-", "-"]
    assert lines[lines.index("Options that differ:") + 1].split() == ["adc", "none", "old"]
    assert ["densify.strategy", "adc", "none", "-"] in [line.split() for line in lines]
    assert ["means_lr", "0.00016", "0.001", "-"] in [line.split() for line in lines]   # as it is at the end
    assert "  iteration 150: means_lr 0.00016 -> 0.001" in lines
    assert not any("new_option" in line for line in lines)   # only one of the versions has it
    assert "! old has no record, only results.json: its scene and options are not known." in lines
    assert "! The scores of adc are of iteration 200." in lines


def test_json_holds_the_same(runs, capsys):
    assert main(["compare", *runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in found["runs"]] == ["adc", "none", "old"]
    assert found["runs"][0]["psnr"] == 25.5 and found["runs"][2]["psnr"] is None
    assert found["differences"]["densify.strategy"] == ["adc", "none", None]
    assert found["runs"][1]["changed"] == [{"iteration": 150, "name": "means_lr", "old": 1.6e-4, "new": 1e-3}]


def test_the_picture_shows_a_curve_of_every_run(runs, tmp_path, capsys):
    file = tmp_path / "bild ä.png"
    assert main(["compare", *runs[:2], "--png", str(file)]) == 0
    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB"), int)
    for color in COLORS[:2]:
        wanted = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(pixels - wanted).sum(2) < 40).sum() > 200, color


def test_runs_of_one_name_are_told_apart_and_equal_ones_differ_in_nothing(tmp_path, capsys):
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        record = make(tmp_path / parent / "out")
        record.begin(described())
        train(record, 1, 20)
        record.close()
    both = [str(tmp_path / parent / "out") for parent in ("a", "b")]
    assert main(["compare", *both]) == 0
    printed = capsys.readouterr().out
    assert "a/out" in printed and "b/out" in printed and "do not differ in any option" in printed and "*" not in printed
    assert compare([read_run(both[0])] * 2).names == ("out (1)", "out (2)")
    assert differences([read_run(path) for path in both]) == {}


def test_a_run_that_is_named_again_is_compared_once_and_it_is_said(runs, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", runs[0]]) == 0
    alone = capsys.readouterr()
    assert main(["compare", runs[0], os.path.relpath(runs[0]), f"{runs[0]}{os.sep}"]) == 0
    said = capsys.readouterr()
    assert said.out == alone.out and not alone.err
    assert said.err == f"splatscope: the run {runs[0]} is named more than once; it is compared once\n"
    assert main(["compare", runs[0], runs[1], runs[0], "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


def test_different_scenes_are_pointed_out(tmp_path, capsys):
    for name in ("fox", "banana"):
        record = make(tmp_path / name)
        record.begin(described(path=f"scenes/{name}"))
        train(record, 1, 5)
        record.close()
    assert main(["compare", str(tmp_path / "fox"), str(tmp_path / "banana")]) == 0
    assert "! The runs are of different scenes, so their scores do not compare." in capsys.readouterr().out


@pytest.mark.parametrize(("words", "sentence"), [
    ([], "needs the folders of runs"),
    (["nowhere"], "nowhere does not exist"),
    (["."], "is not the folder of a run"),
    (["nowhere", "--png", "no/such/folder/x.png"], "there is no such folder"),
])
def test_what_cannot_be_compared_is_one_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    told = capsys.readouterr()
    assert told.out == "" and sentence in told.err and len(told.err.splitlines()) == 1


def test_runs_of_the_window_go_by_their_names_and_are_listed_where_none_is_given(runs, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(place, "runs_root", lambda: tmp_path)
    monkeypatch.setattr(read, "runs_root", lambda: tmp_path)
    monkeypatch.chdir(Path(runs[0]).parent.parent)
    assert main(["compare"]) == 2
    assert capsys.readouterr().err.endswith("splatscope compare RUN RUN.\n")
    for number, name in enumerate(("fox-1", "fox-2")):
        shutil.copytree(runs[number], tmp_path / name)
        for file in (tmp_path / name).iterdir():
            os.utime(file, (1e9 + number, 1e9 + number))
    assert main(["compare", "fox-1", "fox-2", runs[2]]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]] == ["fox-1", "fox-2", "old"]
    assert main(["compare"]) == 2
    assert capsys.readouterr().err.endswith("RUN RUN. The newest runs of the window: fox-2, fox-1.\n")
    assert main(["compare", "fox-3"]) == main(["compare", f"..{os.sep}{tmp_path.name}"]) == 2
    assert "fox-3 does not exist" in capsys.readouterr().err


def test_info_tells_of_the_record(runs, capsys):
    assert main(["info", runs[1]]) == 0
    printed = capsys.readouterr().out
    assert "training run" in printed and "iteration   240 of 300" in printed and "PSNR 24.00 dB" in printed
    assert main(["info", runs[1], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "run" and found["record"]["iterations"] == 240 and found["record"]["strategy"] == "none"


def test_a_smoothed_curve_is_the_mean_of_its_neighbours_and_forgets_what_is_not_a_number():
    x = np.arange(1.0, 201.0)
    y = np.where(np.arange(200) % 2, 3.0, 1.0)
    y[50] = np.nan
    smooth = smoothed(x, y)
    assert len(smooth) == 200 and np.isfinite(smooth).all()
    assert np.allclose(smooth[10:40], 2.0, atol=0.35) and np.ptp(smooth[10:40]) < 0.7
    assert smoothed(np.array([1.0, 2.0]), np.array([5.0, 6.0])).tolist() == [5.0, 6.0]
