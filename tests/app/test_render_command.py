"""`splatscope render`: what it draws is the model, from where it was asked; files are whole; mistakes are one sentence."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image

import app.__main__ as cli
from app.camera_path import CameraPath, Key
from app.commands.render import counted
from app.config import TrainConfig
from app.data.camera_paths import save_path
from app.data.cameras_json import write_cameras_json
from app.data.gaussians import write_gaussians
from app.data.open import open_scene
from app.data.orient import scene_up
from app.data.scene import View
from app.options import flatten
from app.training.arrays import to_arrays
from render import pipeline
from render.config import RasterConfig
from render.stages.activate import activate
from render.types import Camera
from tests.data.synthetic import colmap_scene
from tests.training.tiny import make_params, ring

ROOT = Path(__file__).resolve().parents[2]
FAST = ("--backend", "reference", "--quiet")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `splatscope train` leaves it, its cameras wider than high and off-centre."""
    folder = tmp_path_factory.mktemp("run ä")
    arrays = to_arrays(make_params(30, spread=1.0, scale=0.25))
    write_gaussians(folder / "point_cloud" / "iteration_7" / "point_cloud.ply", arrays)
    views = []
    for k, camera in enumerate(ring(3, 40, 30)):
        K = camera.K.copy()
        K[0, 2] += 3
        K[1, 1] *= 1.2
        views.append(View(f"left/view{k}.jpg", Camera(camera.viewmat, K, 40, 30), lambda: np.zeros((1, 1, 3), np.uint8)))
    write_cameras_json(folder / "cameras.json", views)
    config = flatten(TrainConfig(white_background=True, raster=RasterConfig(antialiased=True)))
    (folder / "config.json").write_text(json.dumps({"format": 1, "config": config}))
    return folder


def drawn(camera: Camera, *, background: float = 1.0, raster: RasterConfig | None = None) -> np.ndarray:
    gaussians = activate(make_params(30, spread=1.0, scale=0.25), "reference")
    with torch.no_grad():
        output = pipeline.render(gaussians, camera, raster or RasterConfig(antialiased=True),
                                 background=torch.full((3,), background), sh_degree=1, backend="reference")
    return np.clip(output.colors.numpy(), 0, 1)


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)) / 255.0


def test_views_are_those_of_the_run_under_its_rules(run_folder: Path, tmp_path: Path) -> None:
    """Cameras of cameras.json, off-centre with fx != fy; background and antialiasing of config.json; names of the photos."""
    assert cli.main(["render", str(run_folder), "--views", "--out", str(tmp_path / "out"), *FAST]) == 0
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["left_view0.png", "left_view1.png", "left_view2.png"]
    camera = ring(3, 40, 30)[1]
    K = camera.K.copy()
    K[0, 2] += 3
    K[1, 1] *= 1.2
    wanted = drawn(Camera(camera.viewmat, K, 40, 30))
    assert wanted.min() < 0.6 and wanted[0, 0].min() > 0.99
    assert np.abs(pixels(tmp_path / "out" / "left_view1.png") - wanted).max() < 0.004
    twice = np.diag([2.0, 2.0, 1.0]) @ K
    assert cli.main(["render", str(run_folder), "--views", "--width", "80", "--out", str(tmp_path / "big"), *FAST]) == 0
    assert np.abs(pixels(tmp_path / "big" / "left_view1.png") - drawn(Camera(camera.viewmat, twice, 80, 60))).max() < 0.004


def test_a_path_is_followed_into_a_video(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cameras = ring(3, 40, 30)
    path = CameraPath((Key.of(cameras[0]), Key.of(cameras[1], 1.0)))
    save_path(tmp_path / "path.json", path)
    out = tmp_path / "film ä.mp4"
    words = ["render", str(run_folder), "--path", str(tmp_path / "path.json"), "--fps", "5", "--width", "63", "--height", "48",
             "--background", "0,0,0", "-o", str(out), "--backend", "reference"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert said.out == f"6 frames of 64 x 48 px, 1.2 s, written to {out}\n" and "rendering" in said.err
    reader = imageio_ffmpeg.read_frames(str(out), input_params=["-colorspace", "bt709"])
    assert next(reader)["size"] == (64, 48)
    frames = [np.frombuffer(data, np.uint8).reshape(48, 64, 3) / 255.0 for data in reader]
    assert len(frames) == 6
    for frame, camera in zip((frames[0], frames[-1]), path.cameras_at([0.0, 1.0], 64, 48)):
        assert np.abs(frame - drawn(camera, background=0.0)).mean() < 0.03
    assert sorted(p.name for p in tmp_path.iterdir()) == [out.name, "path.json"]


def test_what_will_be_drawn_is_said_first_and_a_file_gets_few_lines_of_progress(run_folder: Path, tmp_path: Path,
                                                                                capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", str(run_folder), "--turntable", "--seconds", "4", "--fps", "10", "--width", "32", "--height", "24",
             "--backend", "reference", "--out"]
    assert cli.main([*words, str(tmp_path / "film.mp4")]) == 0
    first, *bars = capsys.readouterr().err.replace("\r", "\n").split("\n")
    assert first == "splatscope: drawing 40 frames of 32 x 24 px at 10 frames per second"
    assert 1 <= sum("rendering" in line for line in bars) < 8   # not one for each of the 40
    assert cli.main([*words, str(tmp_path / "pictures")]) == 0
    assert capsys.readouterr().err.startswith("splatscope: drawing 40 frames of 32 x 24 px\n")
    assert cli.main([*words, str(tmp_path / "quiet.mp4"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_views_of_several_sizes_are_not_said_to_be_of_one() -> None:
    wide, high = ring(2, 40, 30)[0], ring(2, 20, 50)[1]
    assert counted([wide, high]) == "2 frames of at most 40 x 50 px" and counted([wide]) == "1 frame of 40 x 30 px"


def test_a_turntable_in_false_colours_has_one_range(run_folder: Path, tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", str(run_folder), "--turntable", "--seconds", "1", "--fps", "4", "--width", "40", "--height", "40",
             "--backend", "reference", "--out"]
    assert cli.main([*words, str(tmp_path / "a"), "--mode", "depth"]) == 0
    text = capsys.readouterr().out
    assert "4 frames of 40 x 40 px" in text and "depth from " in text and "world units" in text
    assert len(list((tmp_path / "a").iterdir())) == 4
    assert cli.main([*words, str(tmp_path / "b"), "--mode", "heatmap", "--value_range", "0", "1", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert not (pixels(tmp_path / "a" / "frame_00000.png") == pixels(tmp_path / "a" / "frame_00002.png")).all()


def test_photographs_are_compared_at_the_scenes_views(tmp_path: Path, run_folder: Path) -> None:
    scene = colmap_scene(tmp_path / "scene")
    ply = run_folder / "point_cloud" / "iteration_7" / "point_cloud.ply"
    words = ["render", str(ply), "--views", "--scene", str(scene), *FAST, "--out"]
    assert cli.main([*words, str(tmp_path / "truth"), "--mode", "truth"]) == 0
    assert cli.main([*words, str(tmp_path / "error"), "--mode", "error"]) == 0
    photos = {p.stem: p for p in (scene / "images").iterdir()}
    for file in (tmp_path / "truth").iterdir():
        assert np.abs(pixels(file) - pixels(photos[file.stem])).max() < 0.004
    assert len(list((tmp_path / "error").iterdir())) == len(photos)


def test_a_film_that_is_there_is_replaced_only_where_that_is_asked_for(run_folder: Path, tmp_path: Path,
                                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """A video and a folder of PNGs alike, and before anything is drawn."""
    words = ["render", str(run_folder), "--turntable", "--seconds", "1", "--fps", "3", "--width", "32", "--height", "32", *FAST,
             "--out"]
    film, folder = tmp_path / "t.mp4", tmp_path / "t"
    film.write_bytes(b"mine")
    folder.mkdir()
    for name in ("frame_00001.png", "frame_00002.png", "frame_00099.png", "notes.txt"):
        (folder / name).write_bytes(b"mine")
    before = sorted(tmp_path.iterdir())
    for out, says in ((film, "exists already"), (folder, "already holds frame_00001.png and 1 more")):
        assert cli.main([*words, str(out)]) == 2
        assert capsys.readouterr().err == (f"splatscope: {out} {says}; choose another name for --out, or add --overwrite to "
                                           "replace what is there.\n")
    assert sorted(tmp_path.iterdir()) == before and film.read_bytes() == b"mine"
    assert {file.read_bytes() for file in folder.iterdir()} == {b"mine"}
    assert cli.main(["render", "nowhere", "--turntable", *FAST, "--out", str(film)]) == 2
    assert "exists already" in capsys.readouterr().err   # before the Gaussians are looked for
    assert cli.main([*words, str(film), "--overwrite"]) == 0 and len(film.read_bytes()) > 100
    assert capsys.readouterr().err == ""
    assert cli.main([*words, str(folder), "--overwrite"]) == 0
    assert capsys.readouterr().err == f"splatscope: {folder} also holds 1 older PNG of other names, left as before\n"
    assert all(pixels(folder / f"frame_0000{k}.png").shape == (32, 32, 3) for k in range(3))
    assert (folder / "frame_00099.png").read_bytes() == b"mine" == (folder / "notes.txt").read_bytes()


@pytest.mark.parametrize(("words", "says"), [
    ([], "needs Gaussians"),
    (["RUN"], "--out"),
    (["RUN", "--out", "x"], "exactly one of"),
    (["RUN", "--out", "x", "--views", "--turntable"], "exactly one of"),
    (["nowhere", "--out", "x", "--views"], "nowhere does not exist"),
    (["EMPTY", "--out", "x", "--views"], "holds no Gaussians"),
    (["PLY", "--out", "x", "--views", "--mode", "error"], "--scene"),
    (["ALONE", "--out", "x", "--views"], "no cameras.json"),
    (["RUN", "--out", "x.avi", "--views"], "ends in .avi"),
    (["RUN", "--out", "x", "--views", "--width", "9000"], "8192"),
    (["RUN", "--out", "x", "--path", "nowhere.json"], "nowhere.json cannot be read"),
    (["RUN", "--out", "x", "--turntable", "--background", "2,0,0"], "--background"),
    (["RUN", "--out", "x", "--turntable", "--fps", "0"], "frames per second"),
    (["RUN", "--out", "x", "--turntable", "--up", "0", "0", "0"], "--up"),
    (["RUN", "--out", "x", "--turntable", "--seconds", "nan"], "--seconds"),
    (["RUN", "--out", "x", "--turntable", "--value_range", "2", "1"], "--value_range"),
    (["RUN", "--out", "x", "--turntable", "--mode", "heatmap", "--quantity", "mean2d_grad"], "only while a scene trains"),
    (["RUN", "--out", "x", "--turntable", "--mode", "heatmap", "--quantity", "nope"], "no quantity 'nope'"),
    (["RUN", "--out", "x", "--turntable", "--mode", "sideways"], "--mode"),
])
def test_mistakes_are_one_sentence_and_leave_nothing(run_folder: Path, tmp_path: Path, words: list[str], says: str,
                                                     monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ply = run_folder / "point_cloud" / "iteration_7" / "point_cloud.ply"
    (tmp_path / "empty").mkdir()
    (tmp_path / "alone.ply").write_bytes(ply.read_bytes())
    named = {"RUN": str(run_folder), "PLY": str(ply), "EMPTY": "empty", "ALONE": "alone.ply"}
    assert cli.main(["render", *(named.get(word, word) for word in words), *FAST]) == 2
    said = capsys.readouterr().err
    assert says in said and said.startswith("splatscope: ") and said.count("\n") == 1 and "Traceback" not in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.ply", "empty"]


def test_without_the_extra_it_says_what_to_install(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert cli.main(["render", str(run_folder), "--turntable", "--out", str(tmp_path / "a.mp4"), *FAST]) == 2
    assert "pip install 'splatscope[video]'" in capsys.readouterr().err
    words = ["render", str(run_folder), "--turntable", "--seconds", "1", "--fps", "3", "--width", "32", "--out",
             str(tmp_path / "a"), *FAST]
    assert cli.main(words) == 0   # pictures need nothing


def test_the_newest_of_a_run_is_drawn_also_from_a_checkpoint(run_folder: Path, tmp_path: Path) -> None:
    """A checkpoint of a later iteration than the last PLY is the newer model."""
    from app.commands.render import read_model

    assert read_model(run_folder).iteration == 7 and len(read_model(run_folder).params) == 30
    from app.training.run import train_headless
    from tests.training.tiny import make_scene

    scene = make_scene(3, 12, size=24, points=20, backend="reference")
    train_headless(scene, TrainConfig(iterations=2), tmp_path, backend="reference", threads=1, quiet=True)
    ply = read_model(tmp_path)
    assert ply.iteration == 2
    for file in (tmp_path / "point_cloud").rglob("*.ply"):
        file.unlink()
    checkpoint = read_model(tmp_path)
    assert checkpoint.iteration == 2 and checkpoint.path.suffix == ".safetensors"
    assert torch.equal(checkpoint.params.means, ply.params.means)


@pytest.mark.parametrize("name", ["film.mp4", pytest.param("pictures", marks=pytest.mark.thorough)])
def test_ctrl_c_keeps_finished_pictures_and_no_half_video(run_folder: Path, tmp_path: Path, name: str) -> None:
    words = ["render", str(run_folder), "--turntable", "--seconds", "3600", "--fps", "1", "--width", "64", "--height", "48",
             "--backend", "reference", "--out", str(tmp_path / name)]
    command = [sys.executable, "-m", "app", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        read = b""
        while not re.search(rb" [1-9]\d*/3600", read):   # the progress bar has counted some
            byte = child.stderr.read(1)
            assert byte, read
            read += byte
        child.send_signal(signal.SIGINT)
        said = (read + child.communicate(timeout=60)[1]).decode()
    assert child.returncode == 130 and "Traceback" not in said and said.endswith("splatscope: stopped by Ctrl-C\n")
    if name == "film.mp4":
        assert not list(tmp_path.iterdir())
    else:
        files = sorted((tmp_path / name).iterdir())
        assert files and all(pixels(file).shape == (48, 64, 3) for file in files)
        assert f"{len(files)} of 3600 pictures are in {tmp_path / name}" in said


def turned(run: Path, out: Path) -> list[Path]:
    assert cli.main(["render", str(run), "--turntable", "--seconds", "1", "--fps", "4", "--width", "40", "--height", "30",
                     "--out", str(out), *FAST]) == 0
    return sorted(out.iterdir())


@pytest.mark.thorough
def test_a_run_without_cameras_json_is_turned_about_the_up_of_the_scene_that_it_names(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As runs in the window were once: up is neither -y nor told beside the Gaussians."""
    scene = Path(shutil.copytree(ROOT / "assets" / "demo", tmp_path / "scene"))
    run = tmp_path / "run"
    assert cli.main(["train", str(scene), "-m", str(run), "--iterations", "1", "--long_side", "32", *FAST]) == 0
    assert not np.allclose(scene_up(open_scene(scene).views), [0, -1, 0], atol=0.2)
    capsys.readouterr()
    wanted = [pixels(file) for file in turned(run, tmp_path / "wanted")]
    (run / "cameras.json").unlink()
    file = next(run.glob("checkpoints/main/*"))
    for number, given in enumerate((run, file, next(run.glob("point_cloud/*/*.ply")), run)):
        if number == 3:
            (run / "config.json").unlink()   # then the checkpoint says it
        found = [pixels(picture) for picture in turned(given, tmp_path / f"found{number}")]
        assert max(np.abs(a - b).max() for a, b in zip(found, wanted, strict=True)) < 0.02, given
        assert capsys.readouterr().err == ""
    (run / "config.json").write_text(json.dumps({"scene": {"path": "moved", "kind": "demo"}}))
    assert len(turned(run, tmp_path / "demo")) == 4
    assert "guessed" not in capsys.readouterr().err   # the bundled demo is where it always is
    (run / "config.json").unlink()
    scene.rename(tmp_path / "elsewhere")
    guessed = [pixels(picture) for picture in turned(run, tmp_path / "guessed")]
    assert capsys.readouterr().err == (f"splatscope: the scene of the run, {scene}, cannot be opened, so up is guessed to be "
                                       "the direction -y: name the scene with --scene, or say --up X Y Z\n")
    assert max(np.abs(a - b).max() for a, b in zip(guessed, wanted, strict=True)) > 0.1
