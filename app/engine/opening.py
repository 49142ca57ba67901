"""From a path to a model: a scene folder gets a trainer, a PLY or a finished run is only looked at."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.data.gaussians import GaussianArrays, LoadedGaussians, read_gaussians, write_gaussians
from app.data.open import find_gaussians
from app.data.orient import scene_center, scene_extent, scene_up
from app.data.scene import Scene, SceneError, View
from app.demo import demo_folder
from app.engine.background import Report
from app.engine.jobs import Work
from app.engine.pacing import Pace
from app.messages import SceneOpened, ViewInfo
from app.options import flatten, is_live
from app.training.memory import is_out_of_memory

if TYPE_CHECKING:
    from app.config import TrainConfig
    from app.engine.loop import Engine
    from app.engine.model import Model
    from app.training.trainer import Trainer

PREFETCH_BYTES = 1 << 30
"""Photographs are decoded ahead of training up to this many bytes of pixels."""


@dataclass(frozen=True)
class Opened:
    """What reading a path gave; one of the two."""

    path: str
    scene: Scene | None = None
    gaussians: LoadedGaussians | None = None


def read_path(path: str, open_scene: Callable[[Report], Scene], report: Report) -> Opened:
    """Read a scene folder, a PLY, or the last PLY of a run folder. Raises SceneError. Runs in a helper thread."""
    report(0.0, f"opening {path}")
    where = Path(path).expanduser()
    if not where.exists():
        raise SceneError(f"{path} does not exist; name a scene folder or a Gaussian PLY")
    file = find_gaussians(where)
    if file is not None:
        return Opened(str(file), gaussians=read_gaussians(file))
    return Opened(str(where), scene=open_scene(report))


def open_work(engine: Engine, path: str) -> Work:
    """The job behind OpenScene. The old model stays until the new one is complete."""
    settings = engine.settings
    done = False

    def read(report: Report) -> Opened:
        return read_path(path, lambda progress: settings.open_scene(
            path, resolution=settings.resolution, long_side=settings.long_side, eval_every=settings.eval_every,
            progress=progress), report)

    try:
        opened = yield from engine.background(read, "open").wait((0.0, 0.8))
        model, event = yield from build(engine, opened)
        install(engine, model, event)
        done = True
    finally:
        if not done:   # refused or cancelled: the old model, if there is one, stands still until the user plays it
            engine.running, engine.steps_left = False, None
    if opened.scene is not None:
        views = opened.scene.train + opened.scene.test
        engine.background(lambda report: prefetch(views, report), "decode")


def build(engine: Engine, opened: Opened) -> Generator[tuple[float, str] | None, None, tuple[Model, SceneOpened]]:
    """Part of a job: make a model of what was read in a helper thread: many points take seconds."""
    from app.engine.model import Model
    from app.training.arrays import to_params

    if opened.scene is not None:
        event = yield from engine.background(lambda report: describe(opened), "describe").wait((0.8, 0.0))
        trainer = yield from build_trainer(engine, opened.scene, (0.8, 0.2))
        return Model(opened.path, trainer, opened.scene), replace(event, extent=float(trainer.extent))
    gaussians = opened.gaussians
    assert gaussians is not None

    def still(report: Report) -> tuple[Model, SceneOpened]:
        report(0.0, "placing Gaussians")
        return Model(opened.path, fixed_params=to_params(gaussians.gaussians, opened.path)), describe(opened)

    return (yield from engine.background(still, "build").wait((0.8, 0.2)))


def build_trainer(engine: Engine, scene: Scene, scale: tuple[float, float]
                  ) -> Generator[tuple[float, str] | None, None, Trainer]:
    """Part of a job: a trainer that starts with the options as they are when it is ready; `scale` as Background.wait."""
    while True:
        config, backend = engine.config, engine.backend

        def make(report: Report, config: TrainConfig = config, backend: str = backend) -> Trainer:
            report(0.0, "placing Gaussians")
            return engine.settings.make_trainer(scene, config, backend=backend, progress=report)

        try:
            trainer = yield from engine.background(make, "build").wait(scale)
        except Exception as error:
            if backend != "cuda" or not is_out_of_memory(error):
                raise
            engine.backend = next(name for name in ("cpu", "reference") if name in engine.usable_backends)
            engine.notice(f"The first Gaussians do not fit into the GPU's memory, so the backend {engine.backend} trains: "
                          "open the scene smaller, then choose cuda again.", "error", aloud=True)
            continue
        before, now = flatten(config), flatten(engine.config)
        changed = [path for path in now if now[path] != before[path]]
        if all(is_live(path) for path in changed):   # else it was built on options that only act at the start
            for path in changed:
                trainer.set_option(path, now[path])
            return trainer


def install(engine: Engine, model: Model, event: SceneOpened) -> None:
    """Make what was built the engine's model and tell the window."""
    from render.backends import buffers

    if model.trainer is None:
        model.fixed_config = engine.config
        model.use_backend(engine.backend)
        engine.running, engine.steps_left = False, None
    engine.model = model
    engine.pace = Pace.for_backend(model.backend)
    engine.failed = False
    engine.start_over()
    engine.viewer.forget()
    engine.inspector.forget()
    engine.publisher.start_over()
    buffers.release()
    engine.emit(event)
    engine.say_notices()


def describe(opened: Opened) -> SceneOpened:
    from app.training.probes import quantities

    scene = opened.scene
    if scene is None:
        assert opened.gaussians is not None
        center, extent = _middle(opened.gaussians.gaussians.means)
        # Reconstructions mostly keep the first camera's axes, and its y points down.
        return SceneOpened(opened.path, "ply", (), np.array([0.0, -1.0, 0.0]), center, extent,
                           opened.gaussians.notices, trainable=False,
                           quantities=quantities(trained=False))
    views = tuple(ViewInfo(view.name, view.camera, view.split) for view in scene.views)
    center = scene_center(scene.views, scene.points)
    kind = "demo" if Path(opened.path).resolve() == demo_folder().resolve() else scene.kind
    return SceneOpened(opened.path, kind, views, scene_up(scene.views), center, float(scene_extent(scene.views)),
                       tuple(scene.warnings), quantities=quantities())


def _middle(means: np.ndarray) -> tuple[np.ndarray, float]:
    """(median centre [3], radius that holds 90 % of the Gaussians): far outliers do not move the first view."""
    if len(means) == 0:
        return np.zeros(3), 1.0
    center = np.median(means, axis=0).astype(np.float64)
    return center, float(np.quantile(np.linalg.norm(means - center, axis=1), 0.9)) or 1.0


def prefetch(views: Sequence[View], report: Report) -> None:
    """Decode photographs before a step has to wait for one. What cannot be decoded is left to the step to say."""
    held = 0
    for index, view in enumerate(views):
        report(index / len(views), "")   # ends here when the engine closes
        held += view.camera.width * view.camera.height * 3
        if held > PREFETCH_BYTES:
            return
        try:
            view.load()
        except (SceneError, OSError):
            continue


def write_arrays(path: str, arrays: GaussianArrays) -> Any:
    """Write the PLY; a sentence about Gaussians that were left out, or ''. Runs in a helper thread."""
    where = Path(path).expanduser()
    if where.is_dir():
        raise SceneError(f"{path} is a folder; name a file that ends in .ply")
    dropped = write_gaussians(where, arrays)
    return f"{dropped:,} Gaussians whose values are not finite were left out." if dropped else ""
