"""A film along a camera path: one state of the model, drawn in bites between training steps, encoded in a helper thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
LONGEST = 3600.0   # seconds of a film
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
    if not command.along.keys:
        raise SceneError("the camera path has no keys; add a view to it")
    if not 1 <= min(command.width, command.height) <= max(command.width, command.height) <= LARGEST_SIDE:
        raise SceneError(f"a frame may be 1 to {LARGEST_SIDE} px wide and high, not {command.width} x {command.height}")
    if command.along.duration > LONGEST:
        raise SceneError(f"{command.along.duration:g} seconds are too long for a film; raise the speed")
    mode = MODES.get(command.request.mode)
    if mode is None or mode.needs_photograph:
        shown = mode.label if mode is not None else command.request.mode
        raise SceneError(f"{shown} exists only at a photograph's camera; choose another mode, such as Colour")
    check_film(command.path, command.fps)


def _film(engine: Engine, command: ExportVideo) -> Work:
    from app.engine.drawing import Bites, coloured, in_bites, spread
    from app.engine.frozen_model import freeze
    from app.engine.photographs import Photographs

    if engine.model is None:
        raise Refused("The scene is gone, so it is not filmed.")
    engine.steps.settle()
    width, height = film_size(command.path, command.width, command.height)
    times = command.along.frame_times(command.fps)

    def camera_at(k: int) -> Camera:
        return command.along.cameras_at(times[k:k + 1], width, height)[0]

    path, photographs, bites = Path(command.path).expanduser().absolute(), Photographs(), Bites()
    request = replace(as_shown(engine, command.request), camera=camera_at(0), beside=None, view_index=None)
    model = freeze(engine.timeline.looks.models(request)[0], [request], (HIDDEN,))
    chosen = [replace(request, camera=camera_at(k)) for k in spread(len(times))]
    found = yield from coloured(model, chosen, photographs)
    request = found.of(request)
    feed: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
    writer = engine.background(encoder(path, width, height, command.fps, len(times), feed), FILMING)
    ended = False
    try:
        for k in range(len(times)):
            pixels = np.empty((height, width, 3), np.uint8)
            for share in in_bites(model, [(request, 0, width)], camera_at(k), photographs, bites, pixels):
                yield None if share is None else ((k + share) / len(times), f"frame {k + 1} of {len(times)}")
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
    said = _sentences(path, len(times), (width, height), command.fps, model.iteration, found.legend, found.note)
    engine.notice(" ".join(said))


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


def _sentences(path: Path, frames: int, size: tuple[int, int], fps: float, iteration: int, legend: Legend | None,
               note: str) -> list[str]:
    rate = f" at {fps:g} per second" if is_video(path) else ""
    said = [f"Saved {path}: {frames} frame{'s' if frames > 1 else ''} of {size[0]} x {size[1]} px{rate}, "
            f"iteration {iteration:,}."]
    if legend is not None:
        unit = f" {legend.unit}" if legend.unit else ""
        said.append(f"Its colours show {legend.label} from {legend.lo:.3g} to {legend.hi:.3g}{unit}.")
    return [*said, note] if note else said
