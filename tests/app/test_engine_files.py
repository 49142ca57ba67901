"""The engine on real files: the bundled demo, a saved PLY, the folder of a run."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from app import messages as m
from app.config import TrainConfig
from app.data.gaussians import GaussianArrays, read_gaussians, write_gaussians
from app.demo import demo_folder
from app.engine.settings import EngineSettings
from app.training.arrays import to_arrays
from render.backends import cpu
from tests.app.engine_doubles import request_for, running_engine


@pytest.fixture(scope="module", autouse=True)
def kernels():
    cpu.prepare()


def test_the_bundled_demo_opens_trains_and_is_evaluated():
    """U01, D17: real files, real kernels, real trainer; the first view is a photograph's and the loss falls."""
    real = EngineSettings()
    with running_engine(TrainConfig(iterations=60), backend="auto", threads=real.threads, open_scene=real.open_scene,
                        make_trainer=real.make_trainer, load_backend=real.load_backend) as window:
        opened = window.open(str(demo_folder()), play=True)
        assert opened.kind == "demo" and opened.trainable and len(opened.views) >= 60
        assert abs(np.linalg.norm(opened.up) - 1.0) < 1e-6 and opened.extent > 0
        cameras_up = -np.mean([v.camera.viewmat[1, :3] for v in opened.views], axis=0)
        assert opened.up @ cameras_up / np.linalg.norm(cameras_up) > 0.99
        assert {"mean2d_grad", "opacity"} <= {q.name for q in opened.quantities}
        window.look(request_for(window, view_index=0))
        window.until(lambda: window.snapshot.state == "finished" and window.of(m.Evaluated))
        loss = window.snapshot.curves["loss"].y
        assert len(loss) == 60 and loss[-10:].mean() < 0.75 * loss[:10].mean()
        assert window.snapshot.backend == "cpu" and window.snapshot.memory["images"] > 10**6
        assert set(window.snapshot.stage_ms) >= {"project", "rasterize", "backward", "adam"}
        assert all(ms > 0 for ms in window.snapshot.stage_ms.values())
        names = {name for name, _, _ in window.of(m.Evaluated)[-1].views}
        assert names == {v.name for v in opened.views if v.split == "test"}


def test_c04_a_saved_ply_opens_again_and_shows_the_same_picture(tmp_path):
    """C04: what is saved while a run goes on is what was seen; a PLY is looked at, not trained."""
    with running_engine(load_backend=lambda name, report: cpu_ready()) as window:
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        request = window.look(request_for(window, width=48, height=48))
        before = window.frame_of(request, refined=True)
        ply = tmp_path / "dátä" / "model.ply"
        window.send(m.SavePly(str(ply)))
        window.until(lambda: any("Saved" in n.text for n in window.of(m.Notice)))
        opened = window.open(str(ply), play=True)
        assert opened.kind == "ply" and not opened.trainable and opened.views == ()
        assert opened.extent > 0 and np.isfinite(opened.center).all()
        window.until(window.state("paused"))
        again = window.look(m.ViewRequest(request.camera))
        after = window.frame_of(again, refined=True)
        assert np.abs(after.rgba - before.rgba).max() < 1e-3
        window.send(m.Play(), m.Reset(), m.Evaluate())
        window.sync()
        texts = [n.text for n in window.of(m.Notice)][-3:]
        assert "no photographs" in texts[0] and all("open a scene folder" in t for t in texts)
        window.send(m.Select(request.camera, 24, 24))
        window.sync()
        if window.snapshot.selected is not None:
            assert window.snapshot.selected.gradients == {}


def test_the_folder_of_a_run_opens_its_last_ply(tmp_path):
    with running_engine() as window:
        window.open()
        for iteration in (7, 30):
            window.send(m.Step(1), m.SavePly(str(tmp_path / f"point_cloud/iteration_{iteration}/point_cloud.ply")))
        window.until(lambda: sum("Saved" in n.text for n in window.of(m.Notice)) == 2)
        assert window.open(str(tmp_path)).path.endswith("iteration_30/point_cloud.ply")


def test_a_file_without_gaussians_is_refused_by_its_name(tmp_path):
    with running_engine() as window:
        window.open()
        rows = to_arrays(window.engine.model.params)
        write_gaussians(tmp_path / "none.ply", GaussianArrays(**{f.name: getattr(rows, f.name)[:0] for f in fields(rows)}))
        window.send(m.OpenScene(str(tmp_path / "none.ply")))
        window.until(lambda: any(n.level == "error" for n in window.of(m.Notice)))
        assert f"{tmp_path / 'none.ply'} holds no Gaussian" in window.of(m.Notice)[-1].text


@pytest.mark.parametrize("place", ["before the engine saw it", "behind another job"])
def test_a_save_that_was_asked_for_is_written_although_the_window_closes(tmp_path, place):
    with running_engine() as window:
        window.open()
        if place == "behind another job":
            window.send(*[m.Evaluate()] * 3)
        window.engine.commands.put(m.SavePly(str(tmp_path / "kept.ply")))
        assert window.engine.close()
        window.engine.join_helpers()
    assert len(read_gaussians(tmp_path / "kept.ply").gaussians)


@pytest.mark.parametrize("target", ["", "file.txt/x.ply"])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, target):
    (tmp_path / "file.txt").write_text("not a folder")
    with running_engine() as window:
        window.open()
        window.send(m.SavePly(str(tmp_path / target)))
        window.until(lambda: any(n.level == "error" for n in window.of(m.Notice)))
        assert not window.of(m.EngineFailed)
        assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_a_photograph_that_breaks_mid_training_is_one_sentence():
    """A file that cannot be decoded pauses the run with its name; nothing crashes."""
    from dataclasses import replace

    from app.data.scene import SceneError
    from tests.app.engine_doubles import open_tiny

    def broken():
        raise SceneError("photo 3.png cannot be decoded (truncated); replace it or remove it")

    def load(path: str, **named):
        scene = open_tiny(path, **named)
        scene.views = [replace(view, load=broken) for view in scene.views]
        return scene

    real = EngineSettings()
    with running_engine(open_scene=load, make_trainer=real.make_trainer) as window:
        window.open(play=True)
        window.until(lambda: any("3.png cannot be decoded" in n.text for n in window.of(m.Notice)))
        window.until(window.state("paused"))
        assert not window.of(m.EngineFailed)


def cpu_ready():
    from app.engine.work import Ready

    return Ready("cpu")
