"""A film along a camera path: one state of the model, drawn in bites between training steps, encoded in a helper thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.camera_path import framed
from app.data.films import check_film, film_size, frame_names, is_video, open_film
from app.data.scene import SceneError
from app.engine.background import Cancelled, Report
from app.engine.jobs import Job, Refused, Work
from app.engine.pictures import LARGEST_SIDE, as_shown
from app.messages import MODES, ExportVideo, Legend
from app.training.marks import HIDDEN

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from render.types import Camera

FILMING = "film"
QUEUED = 3
"""Frames that may wait for the encoder: more would only cost memory."""


def export_video(engine: Engine, command: ExportVideo) -> None:
    """Begin the job, or say why it cannot be."""
    if engine.model is None:
        engine.notice("There is nothing to film; open a scene first.", "warning")
    elif engine.jobs.has(FILMING):
        engine.notice("A film is being written already; wait for it or cancel it.", "warning")
    else:
        try:
            _check(command)
        except SceneError as error:
            engine.notice(f"No film: {error}", "error")
        else:
            engine.jobs.add(Job(FILMING, _film(engine, command), exclusive=False, gives_way=True))


def _check(command: ExportVideo) -> None:
    if not command.cameras:
        raise SceneError("the camera path has no keys; add a view to it")
    sides = {side for camera in command.cameras for side in (camera.width, camera.height)}
    if not 1 <= min(sides) <= max(sides) <= LARGEST_SIDE:
        raise SceneError(f"a frame may be at most {LARGEST_SIDE} px wide and high; choose a smaller one")
    if len({(camera.width, camera.height) for camera in command.cameras}) > 1:
        raise SceneError("its frames differ in size; make them all of one")
    mode = MODES.get(command.request.mode)
    if mode is None or mode.needs_photograph:
        shown = mode.label if mode is not None else command.request.mode
        raise SceneError(f"{shown} exists only at a photograph's camera; choose another mode, such as Colour")
    check_film(command.path, command.fps)


def _film(engine: Engine, command: ExportVideo) -> Work:
    from app.engine.drawing import Bites, coloured, in_bites
    from app.engine.frozen_model import freeze
    from app.engine.photographs import Photographs

    if engine.model is None:
        raise Refused("The scene is gone, so it is not filmed.")
    engine.settle()
    first = command.cameras[0]
    width, height = film_size(command.path, first.width, first.height)
    cameras = [camera if (camera.width, camera.height) == (width, height) else framed(camera, width, height)
               for camera in command.cameras]
    path, photographs, bites = Path(command.path).expanduser().absolute(), Photographs(), Bites()
    request = replace(as_shown(engine, command.request), camera=cameras[0], beside=None, view_index=None)
    model = freeze(engine.timeline.looks.models(request)[0], [request], (HIDDEN,))
    found = yield from coloured(model, [replace(request, camera=camera) for camera in cameras], photographs)
    request = found.of(request)
    feed: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
    writer = engine.background(encoder(path, width, height, command.fps, len(cameras), feed), FILMING)
    ended = False
    try:
        for k, camera in enumerate(cameras):
            pixels = np.empty((height, width, 3), np.uint8)
            for share in in_bites(model, [(request, 0, width)], camera, photographs, bites, pixels):
                yield None if share is None else ((k + share) / len(cameras), f"frame {k + 1} of {len(cameras)}")
                while engine.viewer.moving:   # the hand goes first
                    yield None
            feed.put(pixels)
            while feed.qsize() >= QUEUED and not writer.done.is_set():
                yield None
            if writer.done.is_set():
                break   # it failed; wait() says why
        feed.put(None)
        ended = True
        yield from writer.wait((1.0, 0.0))
    finally:
        if not ended:   # cancelled, the scene or the window closed
            writer.cancel()
            feed.put(None)
    engine.notice(" ".join(_sentences(path, cameras, command.fps, model.iteration, found.legend, found.note)))


def encoder(path: Path, width: int, height: int, fps: float, count: int, feed: queue.SimpleQueue[np.ndarray | None]
            ) -> Callable[[Report], None]:
    """The helper thread's work: write the frames that come through `feed`; None ends the film, or gives it up once the
    work was cancelled."""

    def write(report: Report) -> None:
        film = open_film(path, frame_names(count), width, height, fps)
        try:
            while (frame := feed.get()) is not None:
                film.add(frame)
                report(1.0, "writing")   # ends here when cancelled, and lets the next frame be drawn
            report(1.0, "writing")
            film.finish()
        except BaseException as error:
            film.abort()
            if not isinstance(error, Cancelled):
                raise

    return write


def _sentences(path: Path, cameras: list[Camera], fps: float, iteration: int, legend: Legend | None, note: str) -> list[str]:
    size = f"{cameras[0].width} x {cameras[0].height} px"
    rate = f" at {fps:g} per second" if is_video(path) else ""
    said = [f"Saved {path}: {len(cameras)} frame{'s' if len(cameras) > 1 else ''} of {size}{rate}, iteration {iteration:,}."]
    if legend is not None:
        unit = f" {legend.unit}" if legend.unit else ""
        said.append(f"Its colours show {legend.label} from {legend.lo:.3g} to {legend.hi:.3g}{unit}.")
    return [*said, note] if note else said
