"""Whatever is thrown at it, the engine goes on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np
import pytest

from app import messages as m
from app.camera_path import CameraPath, Key
from app.config import DensifyConfig, TrainConfig
from app.engine.commands import HANDLERS
from app.engine.work import Ready
from app.inspection.questions import (
    ChainQuestion,
    HistogramQuestion,
    Sight,
    SummaryQuestion,
    TableQuestion,
    UpdatesQuestion,
    XRayQuestion,
)
from app.inspection.rules import Rule
from app.options import find_field, flatten
from app.pace import PaceConfig
from app.presets import SHIPPED
from app.training.trainer import Trainer
from render.types import Camera
from tests.app.engine_doubles import QuickTrainer, running_engine
from tests.training.tiny import ring

# ---------------------------------------------------------------- whatever is thrown at it

CAP = 200
CONFIG = TrainConfig(iterations=1_000_000, densify=DensifyConfig(cap=CAP))
DEFAULTS = flatten(CONFIG)
JUNK = (float("nan"), float("inf"), "text", None, -1.0, -1e30, object())
NAMES = ("main", "one", "two", "run-2", "")   # of branches
QUANTITIES = ("mean2d_grad", "opacity", "age", "adam_means", "adam_logit_opacities", "sh0_grad", "nope")
LEFT_ALONE = ("densify.cap", "densify.taming_budget", "init_points", "raster.max_intersection_bytes")


class Monkey:
    """Draws commands; `wild` option values may be of any size, else those that are taken lie within their sliders."""

    def __init__(self, seed: int, folder: str, *, wild: bool) -> None:
        self.rng, self.folder, self.wild = random.Random(seed), folder, wild

    # ---------------------------------------------------------- things

    def camera(self) -> Camera:
        rng = self.rng
        camera = ring(4, rng.choice([8, 24, 33]), rng.choice([8, 16, 31]))[rng.randrange(4)]
        if rng.random() < 0.05:   # a camera that sees nothing, and one that is far inside
            camera = Camera(np.diag([1.0, 1, -1, 1]) if rng.random() < 0.5 else np.eye(4), camera.K, 16, 16)
        return camera

    def view(self) -> m.ViewRequest:
        rng = self.rng
        return m.ViewRequest(self.camera(), rng.choice(m.VIEW_MODES), rng.choice(QUANTITIES),
                             rng.choice([None, (0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (-1e300, 1e300)]),
                             rng.choice([None, 0, 3, 99, -1]), rng.random() < 0.3, rng.random() < 0.1, rng.random() < 0.5,
                             rng.choice([None, True, False]), moment=rng.choice([None, None, self.moment()]))

    def moment(self) -> m.Moment:
        return m.Moment(self.rng.choice(NAMES), self.rng.randrange(-2, 60))

    def questions(self) -> m.InspectRequest:
        rng, sight = self.rng, Sight.of(self.camera())
        known = {"xray": XRayQuestion(sight, rng.randrange(40), rng.randrange(40), rng.choice([None, 0, 99])),
                 "chain": ChainQuestion(rng.randrange(60), sight), "histogram": HistogramQuestion(rng.choice(QUANTITIES)),
                 "table": TableQuestion(rng.choice(QUANTITIES), sight=sight), "summary": SummaryQuestion(QUANTITIES[:3]),
                 "optimiser": UpdatesQuestion(), "nobody": UpdatesQuestion()}
        return m.InspectRequest({name: known[name] for name in rng.sample(sorted(known), rng.randrange(4))})

    def option(self) -> tuple[str, object]:
        rng = self.rng
        if self.wild and rng.random() < 0.3:
            name = rng.choice(["raster.alpha_max", "raster.cutoff", "iterations", "means_lr", "seed", "nope", "raster",
                               "densify.cap", "micro_batch", "raster.eps2d", "sh_every", "densify.strategy"])
            return name, rng.choice([0.0, 0.5, 1e30, True, 3, 10**12, *JUNK])
        path = rng.choice([path for path in DEFAULTS if path not in LEFT_ALONE])
        if rng.random() < 0.2:
            return path, rng.choice(JUNK)
        meta, default = find_field(path)[1].metadata, DEFAULTS[path]
        if meta["choices"]:
            return path, rng.choice(meta["choices"])
        if isinstance(default, bool):
            return path, rng.random() < 0.5
        lo, hi = meta["lo"] or 0, meta["hi"] or 100
        value = lo * (hi / lo) ** rng.random() if meta["log"] else rng.uniform(lo, hi)
        return path, type(default)(value)

    def options(self) -> m.SetOptions:
        rng = self.rng
        if rng.random() < 0.3:
            preset = rng.choice(SHIPPED)
            return m.SetOptions(preset.complete(), f"The preset {preset.name}")
        return m.SetOptions(dict(self.option() for _ in range(rng.randrange(4))), rng.choice(["", "mine"]))

    def region(self) -> m.SelectRegion:
        path = np.array([[self.rng.uniform(-5, 40) for _ in range(2)] for _ in range(self.rng.choice([0, 1, 2, 5]))])
        return m.SelectRegion(self.camera(), path.reshape(-1, 2), self.rng.choice([None, 3.0, 0.0]),
                              self.rng.choice(["replace", "add", "remove"]))

    # ---------------------------------------------------------- commands

    @property
    def makers(self) -> dict[type[m.Command], Callable[[], m.Command]]:
        rng, folder = self.rng, self.folder
        number = rng.choice([0, 1, 0.05, 25, -3, 300, float("nan"), "x"])
        rules = Rule(), rng.choice([Rule(0.999), Rule(alpha_gradient="straight_through"), Rule(1e-9)])
        return {
            m.Play: m.Play, m.Pause: m.Pause, m.Reset: m.Reset, m.Evaluate: m.Evaluate, m.CancelJob: m.CancelJob,
            m.Undo: m.Undo, m.Redo: m.Redo, m.DensifyNow: m.DensifyNow, m.SaveCheckpoint: m.SaveCheckpoint,
            m.MeasureViews: m.MeasureViews, m.SetOptions: self.options, m.SelectRegion: self.region,
            m.Step: lambda: m.Step(rng.choice([1, 2, 5, 0, -3])),
            m.OpenScene: lambda: m.OpenScene(rng.choice([".", "nowhere", folder]), rng.random() < 0.5),
            m.SetOption: lambda: m.SetOption(*self.option()),
            m.SetBackend: lambda: m.SetBackend(rng.choice(["reference", "auto", "nonsense"])),
            m.SavePly: lambda: m.SavePly(rng.choice([f"{folder}/a.ply", f"{folder}/missing/b.ply", folder])),
            m.Select: lambda: rng.choice([m.Select(self.camera(), rng.uniform(-50, 50), rng.uniform(-50, 50)),
                                          m.Select(uid=rng.randrange(40)), m.Select()]),
            m.SelectRange: lambda: m.SelectRange(rng.choice(QUANTITIES), rng.uniform(-1, 0.5), rng.uniform(0, 2)),
            m.SelectMore: lambda: m.SelectMore(rng.choice(["all", "none", "invert", "grow"])),
            m.Operate: lambda: m.Operate(rng.choice(["freeze", "unfreeze", "unfreeze_all", "hide", "isolate", "show_all",
                                                     "delete", "reset_opacity"])),
            m.CompareRules: lambda: m.CompareRules(*rules, rng.choice([None, 0, 99])),
            m.RunLanes: lambda: m.RunLanes(*rules, rng.choice([2, 0, 10**9])),
            m.CheckGradients: lambda: m.CheckGradients(uids=(rng.randrange(20),), parameters=("means",), sweep=False),
            m.AuditRasterizer: lambda: m.AuditRasterizer("nowhere.to_be:found"),
            m.SavePicture: lambda: m.SavePicture(rng.choice([f"{folder}/a.png", folder]), self.view()),
            m.ExportVideo: lambda: m.ExportVideo(
                rng.choice([f"{folder}/films/{rng.random()}", f"{folder}/a.avi", f"{folder}/b.mp4"]),
                CameraPath((Key.of(self.camera()), Key.of(ring(4)[1], 0.1))[:rng.randrange(3)]), self.view(),
                rng.choice([16, 0]), 12, rng.choice([24.0, 0.0])),
            m.Replay: lambda: m.Replay(self.moment()), m.SwitchBranch: lambda: m.SwitchBranch(rng.choice(NAMES)),
            m.BranchFrom: lambda: m.BranchFrom(self.moment(), rng.choice([*NAMES, "a/b"])),
            m.RenameBranch: lambda: m.RenameBranch(rng.choice(NAMES), rng.choice(["", "short", "x" * 99])),
            m.DeleteBranch: lambda: m.DeleteBranch(rng.choice(NAMES), True),
            m.TakePart: lambda: m.TakePart(rng.choice(["forward", "backward", "optimiser", "densify", "sideways"])),
            m.RunUntil: lambda: m.RunUntil(rng.choice([*m.GOALS, "weather"]), number, rng.choice([0, 0, 3, -1])),
            m.SetPace: lambda: m.SetPace(PaceConfig(rng.uniform(0.05, 0.5)), rng.random() < 0.3)}

    def draw(self) -> m.Command | m.ViewRequest | m.InspectRequest:
        kind = self.rng.random()
        if kind < 0.1:
            return self.view()
        if kind < 0.15:
            return self.questions()
        makers = self.makers
        often = [m.TakePart, m.TakePart, m.TakePart, m.Step, m.SetOption, m.SetOption, m.SetOptions, m.Operate, m.RunUntil]
        return makers[self.rng.choice([*makers, *often])]()


def test_every_command_there_is_is_thrown(tmp_path):
    assert Monkey(1, str(tmp_path), wild=True).makers.keys() == HANDLERS.keys() - {m.Shutdown}


class Whole(QuickTrainer):
    """Parts of a step are the real trainer's."""

    def step(self):
        self.stepping.phase = ""
        return super().step()


@pytest.mark.parametrize("seed, trainer, backend", [
    (1, Whole, "reference"), pytest.param(3, Trainer, "cpu", marks=pytest.mark.thorough),
    pytest.param(2, Whole, "reference", marks=pytest.mark.thorough),
    pytest.param(4, Trainer, "cpu", marks=pytest.mark.slow),
    pytest.param(5, Trainer, "reference", marks=pytest.mark.slow)])
def test_a_thousand_random_commands_never_stop_the_engine(seed, trainer, backend, tmp_path):
    monkey = Monkey(seed, str(tmp_path), wild=trainer is Whole)
    with running_engine(CONFIG, make_trainer=trainer, backend=backend,
                        load_backend=lambda name, report: Ready(backend) if name != "nonsense" else nonsense(name)) as window:
        window.open()
        thrown: set[type] = set()
        for _ in range(1000):
            command = monkey.draw()
            if isinstance(command, m.ViewRequest):
                window.look(command)
            elif isinstance(command, m.InspectRequest):
                window.engine.inspect_requests.put(command)
            else:
                window.send(command)
                thrown.add(type(command))
            if monkey.rng.random() < 0.25:
                window.sync()
                time.sleep(monkey.rng.uniform(0.0, 0.02))   # the engine may get to do something, or not
            assert not window.of(m.EngineFailed), f"{command}\n{window.of(m.EngineFailed)[0].traceback}"
        window.sync()
        assert window.engine.alive
        assert not window.of(m.EngineFailed), window.of(m.EngineFailed)[0].traceback
        assert thrown == HANDLERS.keys() - {m.Shutdown}
        assert window.of(m.ViewForwarded) and window.of(m.OptionChanged) and window.of(m.Densified)   # they had effects
        assert max(snapshot.iteration for snapshot in window.snapshots) > 3
        window.send(m.Pause(), m.SetPace())
        window.look(m.ViewRequest(monkey.camera()))   # the hand is still: what gave way to it goes on
        window.sync()
        window.until(lambda: window.snapshot.job is None)   # scenes and branches that were still to be taken up
        window.send(m.SetOptions(DEFAULTS))
        window.sync()
        assert flatten(window.engine.config) == DEFAULTS
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        assert window.snapshot.gaussians <= CAP
        if trainer is Trainer:
            window.send(m.TakePart("backward"))
            window.until(lambda: window.snapshot.steering.phase == "backward")
            window.send(m.Step())
            window.until(lambda: window.snapshot.iteration == 4 and window.snapshot.steering.phase == "")
        assert not window.of(m.EngineFailed), window.of(m.EngineFailed)[0].traceback
        assert all("\n" not in n.text for n in window.of(m.Notice))
        assert list(tmp_path.glob("*.tmp")) == []


def nonsense(name: str) -> Ready:
    raise ValueError(f"backend is {name!r}; choose one of auto, cpu, reference")
