"""Headless training: files, figures and refusals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData

from app.__main__ import main
from app.commands.parsing import UsageError
from app.commands.train import TrainArgs, config_of, run, without_effect
from app.config import DensifyConfig, TrainConfig
from app.data.gaussians import read_gaussians
from app.data.scene import SceneError
from app.options import flatten
from app.records.place import prepare_output
from app.records.read import read_run
from app.signals import whole_steps
from app.training import checkpoint
from app.training import run as run_module
from app.training.arrays import to_arrays
from app.training.backend import ready_backend
from app.training.recording import Opening, Recording
from app.training.run import train_headless
from app.training.trainer import Trainer
from app.training.verdict import TrainingStopped
from render.backends import compile, cpu
from render.backends.compile import CompileError
from tests.data.synthetic import transforms_scene
from tests.training.tiny import make_scene

ROOT = Path(__file__).parents[2]


OFTEN = DensifyConfig(start=5, every=2, stop=30_000)


def test_writes_ply_cameras_and_results(tmp_path, capsys):
    scene = make_scene(8, test_every=4)
    config = TrainConfig(iterations=12, sh_degree=1)
    results = train_headless(scene, config, tmp_path / "データ ä é", backend="cpu", threads=1,
                             test_iterations=(5,), save_iterations=(7,))
    out = tmp_path / "データ ä é"
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == [
        ".lock", "cameras.json", "checkpoints/main/iteration_12.safetensors", "checkpoints/main/iteration_7.safetensors",
        "config.json", "eval.csv", "eval.jsonl", "events.jsonl", "metrics.csv", "metrics.jsonl",
        "plots/count.png", "plots/loss.png", "plots/psnr.png",
        "point_cloud/iteration_12/point_cloud.ply", "point_cloud/iteration_7/point_cloud.ply", "results.json",
        "thumbnails/main/iteration_12/view0.png", "thumbnails/main/iteration_12/view4.png",
        "thumbnails/main/iteration_5/view0.png", "thumbnails/main/iteration_5/view4.png"]
    written = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(results))
    assert written["psnr"] == pytest.approx(np.mean([view["psnr"] for view in written["views"]]))
    assert written["ssim"] == pytest.approx(np.mean([view["ssim"] for view in written["views"]]))
    assert [view["name"] for view in written["views"]] == [view.name for view in scene.test]
    assert written["lpips"] is None and written["lpips_reason"]
    assert written["iterations"] == 12 and written["backend"] == "cpu"
    assert written["iterations_per_second"] == pytest.approx(12 / written["seconds"])
    assert written["gaussians"] == len(read_gaussians(out / "point_cloud/iteration_12/point_cloud.ply").gaussians)
    assert written["peak_rss_bytes"] > 10_000_000 and written["versions"]["torch"]
    assert [entry["iteration"] for entry in written["history"]] == [5, 12]
    assert "held-out PSNR" in capsys.readouterr().err


def test_ply_holds_the_raw_parameters_in_graphdeco_layout(tmp_path):
    trainer = Trainer(make_scene(), TrainConfig(iterations=5, sh_degree=2, densify=DensifyConfig(strategy="none")),
                      backend="cpu")
    for _ in range(3):
        trainer.step()
    path, dropped = run_module.save_point_cloud(trainer, tmp_path)
    vertex = PlyData.read(path)["vertex"]
    assert dropped == 0 and path.parent.name == "iteration_3" and len(vertex) == 60
    params = trainer.params
    assert np.array_equal(np.stack([vertex[k] for k in "xyz"], 1), params.means.detach().numpy())
    assert np.array_equal(vertex["opacity"], params.logit_opacities.detach().numpy())
    assert np.array_equal(vertex["scale_1"], params.log_scales.detach().numpy()[:, 1])
    assert np.array_equal(vertex["rot_0"], params.quats.detach().numpy()[:, 0])
    assert np.array_equal(vertex["f_rest_8"], params.shN.detach().numpy()[:, 0, 1])   # 8 bands of red, then green's first
    assert to_arrays(params).sh_degree == 2


def test_the_record_tells_the_run(tmp_path):
    config = TrainConfig(iterations=40, sh_degree=1, schedule_iterations=60, densify=OFTEN)
    results = train_headless(make_scene(8, test_every=4), config, tmp_path, backend="cpu", threads=1, quiet=True,
                             test_iterations=(20,), opening=Opening(2, 0, "", 8))
    run = read_run(tmp_path)
    assert run.series("iteration")[0] == list(range(1, 41)) and run.about["scene"]["resolution"] == 2
    row = run.metrics[-1]
    assert row["gaussians"] == results["gaussians"] and row["seconds"] == pytest.approx(results["seconds"], rel=1e-4)
    assert config.means_lr_final < row["means_lr"] and row["memory"] > 10 ** 7 and 0 < row["l1"] < row["loss"]
    assert run.config == flatten(config) and run.about["versions"] == results["versions"]
    kinds = [event["event"] for event in run.events]
    assert kinds[0] == "started" and kinds[-4:] == ["evaluated", "saved", "saved", "finished"] and "densified" in kinds
    densified = [event for event in run.events if event["event"] == "densified"]
    assert densified[-1]["gaussians"] == results["gaussians"] and any(event["cloned"] for event in densified)
    assert [test["iteration"] for test in run.evaluations] == [20, 40]
    assert run.evaluations[-1]["psnr"] == pytest.approx(results["psnr"], rel=1e-5)


def test_recording_changes_no_bit_of_the_run(tmp_path):
    config = TrainConfig(iterations=30, sh_degree=1, schedule_iterations=60, densify=OFTEN)
    train_headless(make_scene(4, test_every=2), config, tmp_path, backend="cpu", threads=2, quiet=True, test_iterations=(10,))
    trainer = Trainer(make_scene(4, test_every=2), config, backend="cpu")
    for _ in range(30):
        trainer.step()
    saved = read_gaussians(tmp_path / "point_cloud/iteration_30/point_cloud.ply").gaussians
    assert np.array_equal(saved.means, trainer.params.means.detach().numpy())


def test_a_second_run_in_the_same_folder_is_recorded_as_one_run_of_its_own(tmp_path):
    for iterations in (30, 12):
        train_headless(make_scene(3), TrainConfig(iterations=iterations), tmp_path, backend="cpu", quiet=True)
    run = read_run(tmp_path)
    assert run.series("iteration")[0] == list(range(1, 13))
    assert [event["event"] for event in run.events] == ["restarted", "saved", "saved", "finished"]
    pictures = {path.relative_to(tmp_path / "thumbnails").as_posix() for path in tmp_path.glob("thumbnails/*/*")}
    assert pictures == {"main/iteration_30", "run-2/iteration_12"}   # of training views


def test_without_held_out_views_the_scores_are_null_with_the_reason(tmp_path):
    results = train_headless(make_scene(3), TrainConfig(iterations=2), tmp_path, backend="cpu", quiet=True)
    assert results["psnr"] is None and results["ssim"] is None and "--eval" in results["reason"]
    assert json.dumps(results, allow_nan=False)


def test_quiet_says_nothing(tmp_path, capsys):
    train_headless(make_scene(3), TrainConfig(iterations=2), tmp_path, backend="cpu", quiet=True)
    assert capsys.readouterr() == ("", "")


def test_N16_the_last_good_parameters_are_saved_when_training_stops(tmp_path, monkeypatch):
    real = Trainer.step

    def step(self):
        if self.iteration == 3:
            raise TrainingStopped("Training stopped at iteration 4: the loss is nan.")
        return real(self)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(TrainingStopped):
        train_headless(make_scene(3), TrainConfig(iterations=9), tmp_path, backend="cpu", quiet=True)
    assert (tmp_path / "point_cloud/iteration_3/point_cloud.ply").is_file()
    assert not (tmp_path / "results.json").exists()
    last = read_run(tmp_path).events[-1]
    assert (last["event"], last["iteration"]) == ("stopped", 3) and "the loss is nan" in last["reason"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SceneError("photograph 4 cannot be decoded"), MemoryError()])
def test_whatever_ends_a_run_early_its_parameters_are_saved_and_it_is_said_where(tmp_path, monkeypatch, capsys, error):
    real = Trainer.step

    def step(self):
        if self.iteration == 3:
            raise error
        return real(self)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(type(error)):
        train_headless(make_scene(3), TrainConfig(iterations=9), tmp_path, backend="cpu", quiet=True)
    saved = tmp_path / "point_cloud/iteration_3/point_cloud.ply"
    assert len(read_gaussians(saved).gaussians) == 60 and [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert f"iteration 3 are saved in {saved}" in capsys.readouterr().err


def test_a_run_that_ends_early_on_a_full_disk_still_says_why_it_ended(tmp_path, monkeypatch, capsys):
    real = Trainer.step

    def step(self):
        if self.iteration == 1:
            raise SceneError("photograph 2 cannot be decoded")
        return real(self)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(run_module, "write_gaussians", full)
    with pytest.raises(SceneError, match="photograph 2"):
        train_headless(make_scene(3), TrainConfig(iterations=9), tmp_path, backend="cpu", quiet=True)
    assert "could not be saved" in capsys.readouterr().err


@pytest.mark.parametrize("fails", ["checkpoint", "record"])
def test_what_is_written_of_the_iteration_at_which_a_run_ends_is_not_written_again(tmp_path, monkeypatch, capsys, fails):
    """The disk fills up after the point cloud of the last iteration, or after its checkpoint too."""
    tries, real = [], run_module.save_point_cloud
    monkeypatch.setattr(run_module, "save_point_cloud", lambda *args: (tries.append(args), real(*args))[1])

    def full(*args, **named):
        raise SceneError("checkpoint cannot be written (No space left on device)")

    def fill(path, *args, **named):
        monkeypatch.setattr(checkpoint, "write", full)
        if fails == "record":
            saved = write(path, *args, **named)
            monkeypatch.setattr(Recording, "saved", full)
            return saved
        return full()

    write = checkpoint.write
    monkeypatch.setattr(checkpoint, "write", fill)
    with pytest.raises(SceneError, match="No space left"):
        train_headless(make_scene(2), TrainConfig(iterations=3), tmp_path, backend="cpu", threads=1, quiet=True)
    said, path = capsys.readouterr().err, tmp_path / "point_cloud" / "iteration_3" / "point_cloud.ply"
    assert len(tries) == 1 and len(read_gaussians(path).gaussians) > 0
    whole = fails == "record"
    assert f"the parameters of iteration 3 are saved in {path}{'; --resume goes on' if whole else chr(10)}" in said
    assert ("no checkpoint of iteration 3" in said) == (not whole) and "could not be saved" not in said


def test_ctrl_c_waits_for_the_end_of_a_step_and_a_second_one_does_not():
    before, reached = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), whole_steps():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached == ["the end"] and signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt), whole_steps():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second was not heard")
    assert signal.getsignal(signal.SIGINT) is before


# ------------------------------------------------------------------ refusals

def test_a_run_that_leaves_no_finite_gaussian_is_an_error_and_saves_nothing(tmp_path):
    """Culled Gaussians keep the loss finite, so the guard of the gradients does not see them go."""
    config = TrainConfig(iterations=6, sh_degree=0, means_lr=1e300, means_lr_final=1e300,
                         densify=DensifyConfig(strategy="none"))
    with pytest.raises(TrainingStopped, match="No Gaussian is finite at iteration 6.*lower learning rates"):
        train_headless(make_scene(), config, tmp_path / "out", backend="cpu", threads=1, quiet=True)
    assert not list((tmp_path / "out").rglob("*.ply"))


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SceneError, match=r"file.*cannot be written.*choose another folder with -m"):
        prepare_output(tmp_path / "file")
    with pytest.raises(SceneError, match="cannot be written"):
        prepare_output(tmp_path / "file" / "below")
    monkeypatch.setattr(run_module, "Trainer", lambda *a, **k: pytest.fail("training began"))
    with pytest.raises(SceneError):
        train_headless(make_scene(2), TrainConfig(iterations=1), tmp_path / "file", backend="cpu")


@pytest.mark.parametrize(("flags", "sentence"), [
    ({"iterations": 0}, "--iterations is 0; it must be at least 1."),
    ({"sh_degree": 4}, "--sh_degree is 4; choose 0, 1, 2 or 3."),
    ({"micro_batch": 0}, "--micro_batch is 0; it must be at least 1."),
    ({"threads": -1}, "--threads is -1"),
    ({"source": ""}, "needs a scene"),
    ({"model_path": ""}, "-m OUT"),
])
def test_impossible_flags_are_one_sentence(flags, sentence, tmp_path):
    with pytest.raises(UsageError) as error:
        run(TrainArgs(**{"source": "x", "model_path": str(tmp_path / "out"), **flags}))
    assert sentence in str(error.value) and str(error.value).count(".") <= 3
    assert not (tmp_path / "out").exists()


def test_flags_become_the_configuration():
    args = TrainArgs(source="x", model_path="y", iterations=7, white_background=True,
                     densify=DensifyConfig(absgrad=True))
    config = config_of(args)
    assert type(config) is TrainConfig
    assert (config.iterations, config.white_background, config.densify.absgrad) == (7, True, True)


def test_iterations_at_which_nothing_will_happen_are_said(capsys, tmp_path):
    args = TrainArgs(iterations=300, test_iterations=(100,), save_iterations=(200, 7000, 0))
    measured, saved = without_effect(args, held_out=0)
    assert "--test_iterations" in measured and "--eval" in measured
    assert saved == "--save_iterations 0 7000 has no effect: the run has iterations 1 to 300."
    assert without_effect(replace(args, save_iterations=(300,)), held_out=3) == []
    assert main(["train", str(ROOT / "assets" / "demo"), "-m", str(tmp_path), "--iterations", "1", "--save_iterations", "5",
                 "--long_side", "32", "--quiet"]) == 0
    assert "--save_iterations 5 has no effect" in capsys.readouterr().err


def train_command(*words: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "app", "train", *words], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, env=os.environ | env)


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for words in (["no such folder", "-m", str(tmp_path / "a")], [str(tmp_path / "empty"), "-m", str(tmp_path / "b")]):
        assert main(["train", *words]) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said and said.count("\n") == 1 and words[0] in said
        assert not (Path(words[2]) / "results.json").exists()


@pytest.mark.skipif(not os.environ.get("SPLATSCOPE_TEST_DATA"), reason="needs the real scenes: SPLATSCOPE_TEST_DATA")
def test_command_trains_a_real_scene(tmp_path):
    scene = Path(os.environ["SPLATSCOPE_TEST_DATA"]) / "scenes" / "kermit"
    done = train_command("-s", str(scene), "-m", str(tmp_path), "--iterations", "60", "--eval", "--long_side", "160",
                         "--densify.every", "200", "--test_iterations", "30", "50")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["views"]) == 2 and results["psnr"] > 12 and results["iterations"] == 60
    assert results["history"][-1]["psnr"] > results["history"][0]["psnr"]
    assert "held-out PSNR" in done.stdout and "undistorted" in done.stderr
    assert len(PlyData.read(tmp_path / "point_cloud/iteration_60/point_cloud.ply")["vertex"]) == results["gaussians"]


def test_a_backend_that_cannot_run_here_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(SceneError, match="backend.*--backend reference"):
        train_headless(make_scene(2), TrainConfig(iterations=1), tmp_path, backend="cuda")


@pytest.mark.parametrize(("available", "why"), [(False, "no C++ compiler was found"), (True, "g++ could not compile it")])
def test_where_the_kernels_cannot_be_built_auto_trains_on_the_reference_and_says_why(tmp_path, monkeypatch, capsys,
                                                                                     available, why):
    def broken(progress):
        raise CompileError("g++ could not compile it:\nproject.cpp:1: error: no")

    monkeypatch.setattr(cpu, "available", lambda: available)
    monkeypatch.setattr(cpu, "prepare", broken)
    results = train_headless(make_scene(2), TrainConfig(iterations=1), tmp_path, quiet=True)
    assert results["backend"] == "reference"
    said = capsys.readouterr().err
    assert f"The plain PyTorch renderer runs, slowly, because {why}" in said and ("project.cpp:1" in said) == available
    with pytest.raises(SceneError, match="--backend reference runs everywhere"):
        train_headless(make_scene(2), TrainConfig(iterations=1), tmp_path, backend="cpu", quiet=True)


def test_a_CXX_that_does_not_run_is_said_once(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert [ready_backend("auto").name for _ in range(2)]
    assert capsys.readouterr().err.count("$CXX is 'no-such-compiler', which does not run") == 1
    monkeypatch.delenv("CXX")
    assert compile.cxx_problem() == ""


def test_random_start_points_are_announced_once_with_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = transforms_scene(tmp_path / "scene")
    out = tmp_path / "out"
    assert run(TrainArgs(source=str(scene), model_path=str(out), iterations=2, init_points=150, backend="cpu", threads=1)) == 0
    said = [line for line in re.split(r"[\r\n]+", capsys.readouterr().err) if "points" in line]
    assert said == ["splatscope: The scene has no points: training starts from 150 random ones inside what the cameras see."]
