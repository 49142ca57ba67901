"""Whatever is thrown at it, the engine goes on."""

from __future__ import annotations

import random

import numpy as np
import pytest

from app import messages as m
from app.camera_path import CameraPath, Key
from app.engine.work import Ready
from render.types import Camera
from tests.app.engine_doubles import QuickTrainer, running_engine
from tests.training.tiny import ring

# ---------------------------------------------------------------- whatever is thrown at it


NAMES = ["main", "one", "two", "run-2", ""]


def random_command(rng: random.Random, folder: str) -> m.Command | m.ViewRequest:
    camera = ring(4, rng.choice([8, 24, 33]), rng.choice([8, 16, 31]))[rng.randrange(4)]
    if rng.random() < 0.05:   # a camera that sees nothing, and one that is far inside
        camera = Camera(np.diag([1.0, 1, -1, 1]) if rng.random() < 0.5 else np.eye(4), camera.K, 16, 16)
    mean = rng.choice([0.0, -1.0, 0.5, float("nan"), 1e30, -1e30, "text", None, True, 3, 10**12])
    option = rng.choice(["raster.alpha_max", "raster.cutoff", "raster.alpha_gradient", "raster.smooth_cutoff",
                         "densify.absgrad", "iterations", "loss", "means_lr", "white_background", "seed", "nope",
                         "raster", "densify.cap", "micro_batch", "raster.eps2d", "sh_every", "densify.strategy"])
    return rng.choice([
        m.Replay(m.Moment(rng.choice(NAMES), rng.randrange(-2, 60))), m.SwitchBranch(rng.choice(NAMES)),
        m.BranchFrom(m.Moment(rng.choice(NAMES), rng.randrange(-2, 60)), rng.choice([*NAMES, "a/b"])),
        m.RenameBranch(rng.choice(NAMES), rng.choice(["", "short", "x" * 99])), m.DeleteBranch(rng.choice(NAMES), True),
        m.Play(), m.Pause(), m.Step(rng.choice([1, 2, 5, 0, -3])), m.Reset(), m.Evaluate(), m.CancelJob(),
        m.OpenScene(rng.choice([".", "nowhere", folder]), rng.random() < 0.5),
        m.SetOption(option, mean), m.SetOption("raster.alpha_gradient", rng.choice(["exact", "straight_through"])),
        m.SetBackend(rng.choice(["reference", "auto", "nonsense"])),
        m.SavePly(rng.choice([f"{folder}/a.ply", f"{folder}/missing/b.ply", folder])),
        m.SavePicture(f"{folder}/a.png", m.ViewRequest(camera, rng.choice(m.VIEW_MODES), "opacity", view_index=0)),
        m.ExportVideo(rng.choice([f"{folder}/films/{rng.random()}", f"{folder}/a.avi", f"{folder}/b.mp4"]),
                      CameraPath((Key.of(camera), Key.of(ring(4)[1], 0.1))[:rng.randrange(3)]),
                      m.ViewRequest(camera, rng.choice(m.VIEW_MODES), "opacity"), rng.choice([16, 0]), 12,
                      rng.choice([24.0, 0.0])),
        m.Select(camera, rng.uniform(-50, 50), rng.uniform(-50, 50)), m.Select(uid=rng.randrange(40)), m.Select(),
        *[m.ViewRequest(camera, rng.choice(m.VIEW_MODES), rng.choice(["mean2d_grad", "opacity", "age", "nope"]),
                        rng.choice([None, (0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (-1e300, 1e300)]),
                        rng.choice([None, 0, 3, 99, -1]), rng.random() < 0.3, rng.random() < 0.1, rng.random() < 0.5,
                        rng.choice([None, True, False]),
                        moment=rng.choice([None, m.Moment(rng.choice(NAMES), rng.randrange(60))]))
          for _ in range(4)]])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_random_commands_never_stop_the_engine(seed, tmp_path):
    rng = random.Random(seed)
    with running_engine(make_trainer=QuickTrainer,
                        load_backend=lambda name, report: Ready("reference") if name != "nonsense" else nonsense(name)
                        ) as window:
        window.open()
        for i in range(1000):
            command = random_command(rng, str(tmp_path))
            if isinstance(command, m.ViewRequest):
                window.look(command)
            else:
                window.send(command)
            if i % 25 == 0:
                window.sync()
        assert window.engine.alive
        assert not window.of(m.EngineFailed), window.of(m.EngineFailed)[0].traceback
        for name, value in (("raster.cutoff", 1 / 255), ("raster.alpha_max", 0.99), ("iterations", 10**6)):
            window.send(m.SetOption(name, value))
        window.sync()
        window.until(lambda: window.snapshot.job is None)   # scenes that were still to be opened
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        assert all("\n" not in n.text for n in window.of(m.Notice))
        assert list(tmp_path.glob("*.tmp")) == []


def nonsense(name: str) -> Ready:
    raise ValueError(f"backend is {name!r}; choose one of auto, cpu, reference")


