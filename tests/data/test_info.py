"""`splatscope info`, recognise() and the refusals of open_scene()."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from app.commands.info import run
from app.data.gaussians import write_gaussians
from app.data.open import find_gaussians, open_scene, recognise
from app.data.ply import write_points
from app.data.scene import PointCloud, SceneError
from tests.data.synthetic import NAMES, colmap_scene, transforms_scene, write_images
from tests.data.test_gaussians import some


def as_json(capsys, path) -> dict:
    assert run(str(path), True) == 0
    return json.loads(capsys.readouterr().out)


def test_colmap(tmp_path, capsys):
    colmap_scene(tmp_path)
    (tmp_path / "images" / NAMES[2]).unlink()
    write_images(tmp_path / "images", ["new.png"])
    found = as_json(capsys, tmp_path)
    assert found["kind"] == "colmap" and found["views"] == 9 and found["listed"] == 10 and found["missing"] == [NAMES[2]]
    assert found["camera_models"] == {"PINHOLE": 9} and found["points"] == 50 and found["sh_degree"] is None
    assert run(str(tmp_path)) == 0
    text = capsys.readouterr().out
    for words in ("COLMAP scene", "9 of 10", "64x48", "PINHOLE (9)", "50", "! 1 of 10 listed images are missing: 002.png"):
        assert words in text


def test_transforms(tmp_path, capsys):
    found = as_json(capsys, transforms_scene(tmp_path, channels=4))
    assert (found["kind"], found["views"], found["has_alpha"]) == ("transforms", 10, True)


def test_ply_and_run(tmp_path, capsys):
    for iteration in (30, 4):
        write_gaussians(tmp_path / "out/point_cloud" / f"iteration_{iteration}" / "point_cloud.ply", some(iteration, 2))
    found = as_json(capsys, tmp_path / "out")
    assert (found["kind"], found["gaussians"], found["sh_degree"], found["iterations"]) == ("run", 30, 2, [4, 30])
    ply = tmp_path / "out/point_cloud/iteration_30/point_cloud.ply"
    assert find_gaussians(tmp_path / "out") == find_gaussians(ply) == ply
    found = as_json(capsys, ply)
    assert (found["kind"], found["gaussians"]) == ("ply", 30)
    assert run(str(ply)) == 0 and "Gaussians  30" in capsys.readouterr().out


def test_a_point_cloud_is_told_from_splats(tmp_path, capsys):
    write_points(tmp_path / "a.ply", PointCloud(some(6).means, (some(6).means > 0).astype("u1")))
    found = as_json(capsys, tmp_path / "a.ply")
    assert (found["points"], found["gaussians"]) == (6, 0) and "without Gaussians" in found["warnings"][0]


def nothing(tmp_path):
    (tmp_path / "x").mkdir()
    return tmp_path / "x"


def photographs(tmp_path):
    write_images(tmp_path / "x" / "images", NAMES)
    return tmp_path / "x"


def parent(tmp_path):
    colmap_scene(tmp_path / "x" / "inside")
    return tmp_path / "x"


def text_file(tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    return tmp_path / "x.txt"


@pytest.mark.parametrize(("make", "words"), [
    (lambda tmp_path: tmp_path / "absent", "does not exist"), (nothing, "neither a COLMAP model .* nor transforms.json"),
    (photographs, "photographs but no cameras; run COLMAP"), (parent, "open one of inside"), (text_file, "x.txt")])
def test_what_is_not_recognised_gets_one_sentence_and_exit_code_2(tmp_path, capsys, make, words):
    path = make(tmp_path)
    assert run(str(path)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("splatscope: ")
    assert run(str(path), True) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["kind"] == "unknown" and captured.err.count("\n") == 1
    if make is not text_file:
        with pytest.raises(SceneError, match=words):
            open_scene(path)


def test_open_scene_says_what_a_ply_or_a_run_is_for(tmp_path):
    ply = tmp_path / "out/point_cloud/iteration_7/point_cloud.ply"
    write_gaussians(ply, some(3))
    for path in (ply, tmp_path / "out"):
        with pytest.raises(SceneError, match="splatscope view"):
            open_scene(path)
    assert find_gaussians(tmp_path) is None


def test_recognising_an_unknown_folder_does_not_raise(tmp_path):
    assert recognise(tmp_path).kind == "unknown"


def test_the_data_code_needs_no_torch(tmp_path):
    """Opening, undistorting and decoding in a fresh process leaves torch out of sys.modules."""
    colmap_scene(tmp_path, camera=("SIMPLE_RADIAL", 2, (60.0, 32.0, 24.0, 0.05)))
    code = ("import sys; from app.data.open import open_scene; import app.data.orient, app.data.cameras_json\n"
            "import app.commands.info\n"
            "open_scene(sys.argv[1], eval_every=8).views[0].load()\n"
            "sys.exit('torch' in sys.modules or 'dearpygui' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60).returncode == 0
