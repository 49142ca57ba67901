"""`splatscope gradcheck`: exit codes, the table, the JSON; on the demo, on a run, on real photographs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from app.__main__ import main
from app.data.cameras_json import read_cameras_json, write_cameras_json
from app.data.gaussians import write_gaussians
from app.data.scene import SceneError
from app.demo import demo_folder
from app.inspection.gradcheck_results import KINKS
from app.inspection.subject import perturbed
from app.training.arrays import to_arrays
from render.backends import cpu
from render.config import ALPHA_GRADIENTS
from render.types import PARAM_GROUPS
from tests.realdata import real_data
from tests.training.tiny import make_params, make_scene

pytestmark = pytest.mark.thorough

DEMO = str(demo_folder())


@pytest.fixture(autouse=True)
def threads_as_before():
    ours, torchs = cpu.threads(), torch.get_num_threads()
    yield
    cpu.set_threads(ours)
    torch.set_num_threads(torchs)


def a_run(folder: Path) -> Path:
    """What a training run leaves behind."""
    scene = make_scene(3, 12, size=40)
    saved = folder / "point_cloud" / "iteration_7" / "point_cloud.ply"
    saved.parent.mkdir(parents=True)
    write_gaussians(saved, to_arrays(perturbed(make_params(60, 1, sh_degree=2, opacity=0.6), 2)))
    write_cameras_json(folder / "cameras.json", scene.views)
    return folder


# ---------------------------------------------------------------- the demo


OTHERS = [pytest.param(mode, marks=pytest.mark.thorough) for mode in ALPHA_GRADIENTS[1:]]


@pytest.mark.parametrize("mode", [ALPHA_GRADIENTS[0], *OTHERS])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_demo_passes_on_every_backend_and_in_every_mode(backend, mode, tmp_path, capsys) -> None:
    out = tmp_path / "report.json"
    code = main(["gradcheck", DEMO, "--gaussians", "4", "--seed", "0", "--report", str(out), "--backend", backend, "-r", "4",
                 "--threads", "1", "--raster.alpha_gradient", mode])
    said = capsys.readouterr().out
    assert code == 0, said
    report = json.loads(out.read_text())
    assert report["ok"] and report["backend"] == backend and report["alpha_gradient"] == mode and report["loss"] == "l1_ssim"
    assert [row["parameter"] for row in report["parameters"]] == list(PARAM_GROUPS)
    for row in report["parameters"]:
        assert {"checked", "kinks", "max_error", "median_error", "ok"} <= set(row) and set(row["kinks"]) <= set(KINKS)
        assert row["checked"] >= 0.7 * row["entries"] > 0 and row["max_error"] < 1e-4 and f"\n{row['parameter']}" in said
    assert len(report["entries"]) == 4 * 59 and "All gradients agree." in said


def test_a_planted_fault_is_exit_code_1(monkeypatch, capsys) -> None:
    kernels = cpu.kernels(torch.float64)
    right = kernels.rasterize_gather

    def wrong(*values) -> None:
        right(*values)
        values[6][:, 1] *= 0.5   # v_conics: the off-diagonal entry counts once instead of twice

    monkeypatch.setattr(kernels, "rasterize_gather", wrong)
    code = main(["gradcheck", DEMO, "--gaussians", "4", "--backend", "cpu", "-r", "2"])
    said = capsys.readouterr().out
    assert code == 1 and "Gradients disagree: " in said and "quats" in said.split("Gradients disagree: ")[1]
    assert "FAILS: relative error" in said and "instead of" in said


# ---------------------------------------------------------------- a run


def test_a_run_is_taken_as_it_is_with_a_camera_of_its_own(tmp_path, capsys) -> None:
    out = tmp_path / "report.json"
    code = main(["gradcheck", str(a_run(tmp_path / "run")), "--gaussians", "8", "--view", "view1", "--report", str(out),
                 "--sweep", "--parameters", "means", "shN"])
    said = capsys.readouterr().out
    assert code == 0, said
    report = json.loads(out.read_text())
    assert report["loss"] == "cotangent" and report["view"] == "view1.png" and report["sh_degree"] == 2
    assert "taken as they are" in said and "random cotangent" in said and "U-curves" in said
    assert {s["parameter"] for s in report["sweeps"]} == {"means", "shN"} and report["width"] == 40


def test_cameras_json_is_read_as_it_was_written(tmp_path) -> None:
    views = make_scene(3, 12, size=40).views
    write_cameras_json(tmp_path / "cameras.json", views)
    for (name, camera), view in zip(read_cameras_json(tmp_path / "cameras.json"), views, strict=True):
        assert name == view.name and (camera.width, camera.height) == (view.camera.width, view.camera.height)
        np.testing.assert_allclose(camera.viewmat, view.camera.viewmat, atol=1e-12)
        np.testing.assert_allclose(camera.K, view.camera.K)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"img_name": "a"}]',
                                  '[{"img_name": "a", "width": 4, "height": 4, "position": [0], "rotation": [[1]]}]'])
def test_a_damaged_cameras_json_is_one_sentence(text, tmp_path) -> None:
    (tmp_path / "cameras.json").write_text(text)
    if text == "{}":
        assert read_cameras_json(tmp_path / "cameras.json") == []
        return
    with pytest.raises(SceneError, match="not the cameras.json"):
        read_cameras_json(tmp_path / "cameras.json")


# ---------------------------------------------------------------- what cannot run


@pytest.mark.parametrize(("words", "sentence"), [
    ([], "needs a scene or a run"),
    (["nowhere/at/all"], "does not exist"),
    ([DEMO, "--gaussians", "0"], "--gaussians is 0"),
    ([DEMO, "--view", "nobody"], "has no view 'nobody'"),
    ([DEMO, "--parameters", "colours"], "--parameters colours"),
    ([DEMO, "--dtype", "float16"], "float16"),
    ([DEMO, "--raster.alpha_max", "2"], "alpha_max"),
    ([DEMO, "--gaussians", "2", "--parameters", "shN", "--sh_degree", "0"], "Nothing was checked: shN is not checked"),
    ([DEMO, "--report", "."], "is a folder"),
    ([DEMO, "--report", "no/such/folder/out.json"], "there is no such folder"),
])
def test_what_cannot_run_is_exit_code_2_and_one_sentence(words, sentence, capsys) -> None:
    assert main(["gradcheck", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said and said.startswith("splatscope: ") and "\n" not in said


def test_a_splat_file_without_cameras_says_what_to_do(tmp_path, capsys) -> None:
    run = a_run(tmp_path / "run")
    (run / "cameras.json").unlink()
    assert main(["gradcheck", str(run)]) == 2
    assert "--photographs" in capsys.readouterr().err


# ---------------------------------------------------------------- real photographs


@pytest.mark.parametrize("mode", [ALPHA_GRADIENTS[0], *OTHERS])
@pytest.mark.parametrize("backend", ["cpu", pytest.param("reference", marks=pytest.mark.thorough)])
def test_fox_passes_on_every_backend_and_in_every_mode(backend, mode, capsys) -> None:
    code = main(["gradcheck", str(real_data("scenes", "fox_colmap")), "--gaussians", "5", "--backend", backend, "-r", "8",
                 "--threads", "1", "--raster.alpha_gradient", mode])
    assert code == 0, capsys.readouterr().out
