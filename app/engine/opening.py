"""From a path to a model: a scene folder gets a trainer, a PLY or a finished run is only looked at."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.data.checkpoints import is_run, run_of
from app.data.gaussians import GaussianArrays, LoadedGaussians, read_gaussians, write_gaussians
from app.data.open import find_gaussians
from app.data.orient import scene_center, scene_extent, scene_up
from app.data.scene import Scene, SceneError, View
from app.demo import demo_folder
from app.engine.background import Report
from app.engine.checkpoints import camera_of
from app.engine.jobs import Work
from app.engine.pacing import Pace
from app.messages import ConfigChanged, OpenScene, SceneOpened, ViewInfo
from app.options import OptionError, config_from, flatten, is_live, with_option
from app.records.lock import RunLock, take
from app.training.memory import is_out_of_memory

if TYPE_CHECKING:
    from app.config import TrainConfig
    from app.engine.loop import Engine
    from app.engine.model import Model
    from app.engine.settings import EngineSettings
    from app.training.checkpoint import Checkpoint
    from app.training.trainer import Trainer

PREFETCH_BYTES = 1 << 30
"""Photographs are decoded ahead of training up to this many bytes of pixels."""


@dataclass(frozen=True)
class Opened:
    """What reading a path gave: a scene, with a checkpoint where a run goes on, or Gaussians."""

    path: str
    scene: Scene | None = None
    gaussians: LoadedGaussians | None = None
    opening: Mapping[str, Any] = field(default_factory=dict)   # how the scene was opened
    found: Checkpoint | None = None
    notice: str = ""


def read_path(command: OpenScene, settings: EngineSettings, report: Report) -> Opened:
    """Read a scene folder, a run, a checkpoint or a PLY. Raises SceneError. Runs in a helper thread."""
    path = command.path
    report(0.0, f"opening {path}")
    where = Path(path).expanduser()
    if not where.exists():
        raise SceneError(f"{path} does not exist; name a scene folder or a Gaussian PLY")
    notice = ""
    if command.resume and is_run(where):
        try:
            return read_run(where, settings, report)
        except SceneError as error:
            if find_gaussians(where) is None or where.is_file():
                raise
            notice = f"The run can only be looked at: {error}."
    file = find_gaussians(where)
    if file is not None:
        return Opened(str(file), gaussians=read_gaussians(file), notice=notice)
    how = {"resolution": settings.resolution, "long_side": settings.long_side, "images": "",
           "eval_every": settings.eval_every}
    return Opened(str(where), open_as(str(where), how, settings, report), opening=how)


def read_run(where: Path, settings: EngineSettings, report: Report) -> Opened:
    """The newest checkpoint of a run, or the one named, and the scene that it was trained on. Raises SceneError."""
    from app.training.checkpoint import newest

    report(0.0, f"reading {where.name}")
    found = newest(where)
    how = dict(found.extra.get("scene") or {})
    path = str(demo_folder()) if how.get("kind") == "demo" else str(how.get("path", ""))
    if not path or not Path(path).exists():
        raise SceneError(f"{found.path} was trained on {path or 'a scene that it does not name'}, which is not there; put the "
                         "scene back")
    return Opened(path, open_as(path, how, settings, report), opening=how, found=found)


def open_as(path: str, how: Mapping[str, Any], settings: EngineSettings, report: Report) -> Scene:
    return settings.open_scene(path, resolution=int(how.get("resolution", -1)), long_side=int(how.get("long_side", 0)),
                               images=str(how.get("images") or "") or None, eval_every=int(how.get("eval_every", 0)),
                               progress=report)


def open_work(engine: Engine, command: OpenScene) -> Work:
    """The job behind OpenScene. The old model stays until the new one is complete."""
    done, held = False, None
    before = engine.config
    try:
        reader = engine.background(lambda report: read_path(command, engine.settings, report), "open")
        opened = yield from reader.wait((0.0, 0.8))
        if opened.found is not None:
            held = claim(engine, opened.found)
            engine.config = config_of(opened.found, command.changes)
        model, event = yield from build(engine, opened)
        said = take_up(model, opened.found, engine.config) if opened.found is not None else []
        install(engine, model, event, opened)
        done = True
        for sentence in said:
            engine.notice(sentence)
    finally:
        if not done:   # refused or cancelled: the old model, if there is one, stands still until the user plays it
            engine.running, engine.steps_left = False, None
            engine.config = before
        if held is not None:
            held.release()   # the recorder has its own by now
    if opened.scene is not None:
        views = opened.scene.train + opened.scene.test
        engine.background(lambda report: prefetch(views, report), "decode")


def claim(engine: Engine, found: Checkpoint) -> RunLock | None:
    """The lock of the run that is to go on, where the window records runs. Raises SceneError where another process has it."""
    run = run_of(found.path) if found.path is not None and engine.settings.record is not None else None
    return None if run is None else take(run)


def build(engine: Engine, opened: Opened) -> Generator[tuple[float, str] | None, None, tuple[Model, SceneOpened]]:
    """Part of a job: make a model of what was read in a helper thread: many points take seconds."""
    from app.engine.model import Model
    from app.training.arrays import to_params

    if opened.scene is not None:
        event = yield from engine.background(lambda report: describe(opened), "describe").wait((0.8, 0.0))
        trainer = yield from build_trainer(engine, opened.scene, (0.8, 0.2), opened.found)
        opening = {"path": str(Path(opened.path).absolute()), "kind": event.kind, **opened.opening}
        return Model(opened.path, trainer, opened.scene, opening=opening), replace(event, extent=float(trainer.extent))
    gaussians = opened.gaussians
    assert gaussians is not None

    def still(report: Report) -> tuple[Model, SceneOpened]:
        report(0.0, "placing Gaussians")
        return Model(opened.path, fixed_params=to_params(gaussians.gaussians, opened.path)), describe(opened)

    return (yield from engine.background(still, "build").wait((0.8, 0.2)))


def build_trainer(engine: Engine, scene: Scene, scale: tuple[float, float], found: Checkpoint | None = None
                  ) -> Generator[tuple[float, str] | None, None, Trainer]:
    """Part of a job: a trainer that starts with the options as they are when it is ready; `scale` as Background.wait."""
    while True:
        config, backend = engine.config, engine.backend

        def make(report: Report, config: TrainConfig = config, backend: str = backend) -> Trainer:
            report(0.0, "placing Gaussians")
            params = {} if found is None else {"params": found.state.params()}
            return engine.settings.make_trainer(scene, config, backend=backend, progress=report, **params)

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


def config_of(found: Checkpoint, changes: Mapping[str, Any]) -> TrainConfig:
    """The options that a run goes on with. Raises SceneError for a change that cannot be."""
    config, _ = config_from(found.state.meta.get("config", {}))   # what is wrong with it is said by take_up()
    try:
        for path, value in changes.items():
            config = with_option(config, path, value)
    except OptionError as error:
        raise SceneError(str(error)) from None
    return config


def take_up(model: Model, found: Checkpoint, config: TrainConfig) -> list[str]:
    """Put the trainer where the checkpoint was; sentences for the user. Raises SceneError when it is of another scene."""
    from app.training.saving import resume

    assert model.trainer is not None
    before = flatten(config_from(found.state.meta.get("config", {}))[0])
    changes = {path: value for path, value in flatten(config).items() if value != before[path]}
    said = resume(model.trainer, found, changes)
    return [*said, f"The run goes on at iteration {model.trainer.iteration:,}, where it was saved."]


def install(engine: Engine, model: Model, event: SceneOpened, opened: Opened) -> None:
    """Make what was built the engine's model and tell the window."""
    from render.backends import buffers

    if model.trainer is None:
        model.fixed_config = engine.config
        model.use_backend(engine.backend)
        engine.running, engine.steps_left = False, None
    playing = engine.running, engine.steps_left
    engine.steps.settle()   # what a GPU's last step left unsaid is of the run that is left
    engine.recorder.complete()
    engine.checkpoints.leave()
    engine.running, engine.steps_left = playing   # whatever became of that one
    engine.model = model
    engine.pace = Pace.for_backend(model.backend).follow(engine.control.pace)
    engine.failed = False
    engine.start_over()
    engine.viewer.forget()
    engine.inspector.forget()
    engine.publisher.start_over()
    buffers.release()
    found, run = opened.found, None
    if found is not None and found.path is not None:
        run = run_of(found.path)
        event = replace(event, run=str(run or ""), camera=camera_of(found.extra), view_index=found.extra.get("view_index"))
    engine.emit(event)
    if opened.notice:
        engine.notice(opened.notice, "warning", aloud=True)
    if found is not None:
        if run is not None:
            engine.recorder.resume_in(run)
        engine.checkpoints.resumed(found)
        engine.emit(ConfigChanged(flatten(engine.config)))
    engine.steps.say_notices()


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
