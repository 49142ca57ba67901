"""`splatscope audit` as a command: exit codes, one sentence for whatever cannot run, files, and a user's own scene."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from app.__main__ import main
from app.data.cameras_json import write_cameras_json
from app.data.gaussians import GaussianArrays, write_gaussians
from app.data.scene import View
from app.demo import demo_folder
from app.inspection.audit import plain, run, target
from app.inspection.audit.own_scene import own_scene
from app.inspection.audit.probes import turned
from app.inspection.audit.speed import measure
from app.inspection.audit.target import Target
from app.inspection.audit.types import AuditError
from render.types import Camera
from tests.inspection.planted import HALVED_CONIC, planted

BAD = '''
import torch
from app.inspection.audit import plain

def right(*arguments):
    print("rendering")
    return plain.render(*arguments)
def three(means, quats, scales): return means
def as_tuple(*arguments): return plain.render(*arguments), None
def planes(*arguments): return plain.render(*arguments).permute(2, 0, 1)
def nothing(*arguments): return None
def detached(*arguments): return plain.render(*arguments).detach()
def raising(*arguments): raise RuntimeError("tile list overflow\\nsecond line")
def needs_cuda(*arguments): raise RuntimeError("means must be a CUDA tensor")

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image): return image.clone()
    @staticmethod
    def backward(ctx, v): raise NotImplementedError("no backward yet")

def no_backward(*arguments): return Backward.apply(plain.render(*arguments))
number = 3
'''


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with somebody's modules; only there can they be found."""
    (tmp_path / "somebodys.py").write_text(BAD, encoding="utf-8")
    (tmp_path / "half_installed.py").write_text("import surely_not_installed_anywhere\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("somebodys", "half_installed", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("name, words", [
    ("nowhere_to_be_found:render", "there is no module nowhere_to_be_found"),
    ("half_installed:render", "importing half_installed failed: ModuleNotFoundError: No module named 'surely_not"),
    ("broken:render", "importing broken failed: ZeroDivisionError: division by zero"),
    ("somebodys:absent", "somebodys has no function absent"),
    ("somebodys:number", "somebodys has no function number"),
    ("somebodys:three", "somebodys:three cannot be called as render(means, quats,"),
    ("somebodys:as_tuple", "somebodys:as_tuple returned a tuple of 2; it must return one tensor, the image [H,W,3]"),
    ("somebodys:planes", "returned a tensor of shape [3, 30, 40]; the image must be [H,W,3] = [30, 40, 3]"),
    ("somebodys:nothing", "returned NoneType; it must return one tensor"),
    ("somebodys:detached", "returned an image that is not differentiable"),
    ("somebodys:raising", "somebodys:raising raised RuntimeError: tile list overflow (scene crowd)"),
    ("somebodys:needs_cuda", "seems to need an NVIDIA GPU, and PyTorch finds none here: somebodys:needs_cuda raised"),
    ("somebodys:no_backward", "the backward of somebodys:no_backward raised NotImplementedError: no backward yet"),
    ("nonsense", "'nonsense' names no rasterizer; write module:function, or one of cpu, reference,"),
    ("gsplat", "gsplat is not installed"),
    ("diff_gaussian_rasterization", "diff_gaussian_rasterization is not installed"),
])
def test_what_cannot_run_is_one_sentence_and_exit_code_2(name, words, modules, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for package in ("gsplat", "diff_gaussian_rasterization"):
        monkeypatch.setitem(sys.modules, package, None)
    assert main(["audit", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err and said.err.count("\n") == 1 and "second line" not in said.err


@pytest.mark.parametrize("flags, words", [
    ([], "needs a rasterizer"), (["plain", "--png", "nowhere/a.png"], "--png nowhere/a.png: there is no such folder"),
    (["plain", "--dtype", "float16"], "invalid choice"), (["plain", "--scene", "nowhere"], "nowhere does not exist")])
def test_wrong_flags_are_one_sentence_too(flags, words, modules, capsys):
    assert main(["audit", *flags]) == 2
    assert words in capsys.readouterr().err


def test_no_fault_is_0_with_a_report_a_file_and_a_picture(modules, capsys):
    assert main(["audit", "somebodys:right", "--json", "--report", "r.json", "--png", "p.png", "--scene",
                 str(demo_folder())]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((modules / "r.json").read_text(encoding="utf-8"))
    assert told["faults"] == [] and told["alpha_max"] == 0.99 and told["gradient_mode"] == "exact"
    assert told["cutoff"] == 1 / 255 and told["transmittance_min"] == 1e-4
    own = told["scenes"][-1]
    assert own["name"] == "demo" and own["gaussians"] > 100 and own["image_error"] < 1e-8
    assert all(error < 1e-6 for error in own["gradient_errors"].values())
    picture = np.asarray(Image.open(modules / "p.png").convert("RGB"))
    assert picture.shape[0] > 900 and picture.std() > 20


def test_a_fault_is_1_and_both_forms_name_it(modules, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "faulty", type(sys)("faulty"))
    sys.modules["faulty"].render = planted(HALVED_CONIC)
    assert main(["audit", "faulty:render", "--json"]) == 1
    fault, = json.loads(capsys.readouterr().out)["faults"]
    assert fault["id"] == "conic_off_diagonal" and fault["parameter"] in ("means", "quats", "scales")
    assert fault["relative_error"] > 1e-2 and "halved" in fault["explanation"]
    assert main(["audit", "faulty:render"]) == 1
    text = capsys.readouterr().out
    assert "1 fault:\n  conic_off_diagonal (" in text and "alpha max         0.99" in text
    assert max(map(len, text.splitlines())) <= 128


def test_what_a_rasterizer_cannot_do_is_a_sentence_and_no_fault():
    def limited(means, quats, scales, opacities, sh, *rest):
        if means.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float but found Double")
        if sh.shape[1] > 9:
            raise ValueError("sh: degree 2 at most")
        return plain.render(means, quats, scales, opacities, sh, *rest)

    report = run.audit("limited", function=limited)
    assert report.faults == [] and report.dtype == "float32" and report.modes["sh_degree"] == 2
    assert report.notes == ["It takes float32 only, so tolerances are those of float32.",
                            "It takes spherical harmonics up to degree 2 only; higher bands were left out."]
    with pytest.raises(AuditError, match="expected scalar type Float"):
        run.audit("limited", function=limited, dtype="float64")


def test_a_picture_that_is_not_finite_is_a_fault():
    report = run.audit("nan", function=lambda *arguments: plain.render(*arguments) * float("nan"))
    assert [fault.id for fault in report.faults] == ["image"]


def test_a_run_and_its_ply_are_scenes_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    arrays = GaussianArrays(
        rng.uniform(-1, 1, (n, 3)).astype(np.float32), rng.standard_normal((n, 4)).astype(np.float32),
        rng.uniform(-4, -2, (n, 3)).astype(np.float32), rng.uniform(-2, 3, n).astype(np.float32),
        rng.uniform(-1, 1, (n, 1, 3)).astype(np.float32), 0.1 * rng.standard_normal((n, 3, 3)).astype(np.float32))
    file = tmp_path / "run" / "point_cloud" / "iteration_5" / "point_cloud.ply"
    file.parent.mkdir(parents=True)
    write_gaussians(file, arrays)
    probe, notes = own_scene(str(file))
    assert 50 < len(probe.means) <= n and len(notes) == 1
    same, _ = own_scene(str(tmp_path / "run"))
    assert torch.equal(same.means, probe.means)
    camera = Camera(turned(3), np.array([[300.0, 0, 170], [0, 310, 110], [0, 0, 1]]), 320, 240)
    camera.viewmat[2, 3] = 4.0
    write_cameras_json(tmp_path / "run" / "cameras.json", [View("a", camera, lambda: np.zeros(0))])
    seen, _ = own_scene(str(tmp_path / "run"))
    np.testing.assert_allclose(seen.camera.viewmat, camera.viewmat, atol=1e-12)
    np.testing.assert_allclose(seen.camera.K, camera.resized(80, 60).K)
    report = run.audit("plain", scenes=(probe,))
    assert report.faults == [] and report.comparisons[-1].gaussians == len(probe.means)


def test_speed_stops_before_it_takes_too_long(monkeypatch):
    monkeypatch.setattr("app.inspection.audit.speed.PATIENCE", 0.0)
    monkeypatch.setattr("app.inspection.audit.speed.SIZES", ((500, 48, 36), (1000, 48, 36)))
    speed, = measure(Target("plain", plain.render, torch.float32, torch.device("cpu"), 3))
    assert speed.gaussians == 500 and speed.forward_ms > 0 and speed.backward_ms > 0


def test_short_names_stand_for_shipped_adapters():
    for name in target.SHIPPED:
        assert callable(target.load(name))
