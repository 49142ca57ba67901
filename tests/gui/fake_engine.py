"""An engine that only pretends: numbers and pictures come from formulas, so that the window can be tested by itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import numpy as np

from app.config import TrainConfig
from app.mailbox import Fifo, Latest
from app.messages import (
    Command,
    ConfigChanged,
    Curve,
    Densified,
    Evaluated,
    Event,
    Frame,
    GaussianReport,
    Histogram,
    JobProgress,
    Legend,
    Notice,
    OpenScene,
    Pause,
    Play,
    Quantity,
    Reset,
    SceneOpened,
    Select,
    SetOption,
    Shutdown,
    Snapshot,
    Steering,
    Step,
    ViewInfo,
    ViewRequest,
)
from app.options import flatten
from render.types import Camera

LEGENDS = {
    "depth": Legend("depth", "world units", 1.0, 6.0, "turbo"),
    "transmittance": Legend("transmittance", "", 0.0, 1.0, "viridis"),
    "error": Legend("|render - photograph|", "of full scale", 0.0, 0.3, "turbo"),
    "contributors": Legend("contributors per pixel", "Gaussians", 0.0, 180.0, "viridis"),
    "heatmap": Legend("|dL/dmean2D| signed sum, last step", "per NDC", 1e-6, 1e-2, "viridis", True, True)}


def ring_of_views(count: int = 24, width: int = 320, height: int = 240) -> tuple[ViewInfo, ...]:
    """Cameras on a circle of radius 4 around the origin, looking inwards; up is +z."""
    views = []
    for i in range(count):
        angle = 2 * math.pi * i / count
        eye = np.array([4 * math.cos(angle), 4 * math.sin(angle), 1.2])
        forward = -eye / np.linalg.norm(eye)
        right = np.cross(forward, [0, 0, 1.0])
        right /= np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forward, right), forward])
        viewmat = np.eye(4)
        viewmat[:3, :3], viewmat[:3, 3] = rotation, -rotation @ eye
        K = np.array([[300.0, 0, width / 2], [0, 300.0, height / 2], [0, 0, 1]])
        views.append(ViewInfo(f"view_{i:03d}.png", Camera(viewmat, K, width, height), "test" if i % 8 == 0 else "train"))
    return tuple(views)


def scene(path: str = "/somewhere/fake scene ä", views: tuple[ViewInfo, ...] | None = None) -> SceneOpened:
    return SceneOpened(path, "colmap", ring_of_views() if views is None else views, np.array([0, 0, 1.0]), np.zeros(3), 4.4,
                       quantities=(Quantity("mean2d_grad", "|∂L/∂mean2D| signed sum", "per NDC", "Norm of the gradient."),
                                   Quantity("opacity", "opacity", "", "Activated opacity.")))


class FakeEngine:
    """Same mailboxes as the real one. `busy` burns a core in numpy, to stand for training."""

    def __init__(self, *, play: bool = True, busy: bool = False, steps_per_second: float = 60.0) -> None:
        self.commands: Fifo[Command] = Fifo()
        self.view_requests: Latest[ViewRequest] = Latest()
        self.events: Fifo[Event] = Fifo()
        self.snapshots: Latest[Snapshot] = Latest()
        self.received: list[Command] = []
        self.playing, self.busy, self.speed = play, busy, steps_per_second
        self.iteration, self.iterations = 0.0, 30000
        self.turn_seconds, self.publish_seconds = 0.004, 0.02
        self.selected: GaussianReport | None = None
        self.phase = ""              # of a step that is taken in parts
        self.config = flatten(TrainConfig())
        self.opened: SceneOpened | None = None
        self._stop = threading.Event()
        self._seen = self._sequence = 0
        self._frame: Frame | None = None
        self._thread = threading.Thread(target=self._run, name="fake engine", daemon=True)

    def start(self, opened: SceneOpened | None = None) -> FakeEngine:
        if opened is not None:
            self.open(opened)
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def open(self, opened: SceneOpened) -> None:
        self.opened = opened
        self.events.put(opened)
        self.events.put(ConfigChanged(dict(self.config)))

    # ------------------------------------------------------------------------------------------ thread
    def _run(self) -> None:
        last, published = time.monotonic(), 0.0
        handlers: dict[type, Callable[..., None]] = {
            Play: self._play, Pause: self._pause, Step: self._step, Reset: self._reset, SetOption: self._option,
            Select: self._select, OpenScene: self._open_path, Shutdown: lambda c: self._stop.set()}
        while not self._stop.is_set():
            for command in self.commands.drain():
                self.received.append(command)
                handlers.get(type(command), lambda c: None)(command)
            now = time.monotonic()
            if self.playing:
                self._advance(now - last)
            last = now
            self._view()
            if now - published > self.publish_seconds and self.opened is not None:
                published = now
                self.snapshots.put(self._snapshot())
            if self.busy and self.playing:
                np.linalg.svd(np.random.default_rng(0).random((160, 160)))
            else:
                self._stop.wait(self.turn_seconds)

    def _advance(self, seconds: float) -> None:
        before = int(self.iteration)
        self.iteration = min(self.iteration + seconds * self.speed, self.iterations)
        for i in range(before + 1, int(self.iteration) + 1):
            if i % 100 == 0:
                self.events.put(Densified(i, 120 + i % 70, 80 + i % 30, 30 + i % 17, count=self._count()))
            if i % 1000 == 0:
                self.events.put(Densified(i, reset=self._count(), count=self._count()))
                self.events.put(Evaluated(i, 24.5, 0.87))

    def _count(self) -> int:
        return 5000 + int(self.iteration) * 3

    def _view(self) -> None:
        self._seen, request = self.view_requests.newer_than(self._seen)
        if request is None or request.hidden:
            return
        begin = time.monotonic()
        camera = request.camera
        x = (np.arange(camera.width) + 0.5 - camera.K[0, 2]) / camera.K[0, 0]
        y = (np.arange(camera.height) + 0.5 - camera.K[1, 2]) / camera.K[1, 1]
        rays = np.stack(np.broadcast_arrays(x[None, :], y[:, None], 1.0), axis=-1) @ camera.viewmat[:3, :3]
        rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
        eye = camera.center
        b = rays @ eye
        hit = b * b - (eye @ eye - 1.0)
        sphere = eye + (-b - np.sqrt(np.maximum(hit, 0)))[..., None] * rays
        rgba = np.ones((camera.height, camera.width, 4), np.float32)
        checks = (np.floor(sphere * 4).sum(-1) % 2) * 0.25
        rgba[..., :3] = np.where((hit > 0)[..., None], 0.35 + 0.3 * sphere + checks[..., None], 0.08 + 0.05 * rays)
        np.clip(rgba, 0, 1, out=rgba)
        self._sequence += 1
        self._frame = Frame(rgba, camera, request.mode, LEGENDS.get(request.mode), 1e3 * (time.monotonic() - begin),
                            self._sequence, int(self.iteration), request=request)

    def _snapshot(self) -> Snapshot:
        n = int(self.iteration)
        x = np.linspace(0, max(n, 1), 400)
        noise = np.sin(x * 1.7) * 0.004
        curves = {"loss": Curve(x, 0.02 + 0.28 * np.exp(-x / 900) + np.abs(noise)),
                  "train_psnr": Curve(x, 27 - 14 * np.exp(-x / 900) + 60 * noise),
                  "test_psnr": Curve(x[::80], 26 - 14 * np.exp(-x[::80] / 900)), "count": Curve(x, 5000 + 3 * x)}
        edges = np.geomspace(1e-7, 1e-2, 49)
        middle = np.sqrt(edges[1:] * edges[:-1])
        counts = np.round(4000 * np.exp(-(np.log10(middle) + 4.6) ** 2 / 0.5)).astype(int)
        state = "running" if self.playing else "paused"
        return Snapshot(
            state, n, self.iterations, loss=float(curves["loss"].y[-1]), psnr=float(curves["train_psnr"].y[-1]),
            gaussians=self._count(), cap=500000, sh_degree=min(3, n // 1000),
            steps_per_second=self.speed if self.playing else 0.0, backend="fake",
            backends=("auto", "cpu", "reference"), device="test double", frame=self._frame,
            curves=curves, histogram=Histogram(edges, counts, float(self.config["densify.grad_threshold"]),
                                               "|dL/dmean2D| signed sum, averaged", 0.12),
            stage_ms={"project": 1.2, "sh": 0.5, "binning": 2.1, "rasterize": 6.0, "loss": 2.2, "backward": 11.0, "adam": 1.4,
                      "other": 0.8},
            memory={"parameters": 5 << 20, "adam": 10 << 20, "images": 60 << 20, "intersections": 3 << 20, "rss": 700 << 20},
            selected=self.selected, threads=1, view_name="view_003.png", densify_window=(500, 15000),
            steering=Steering(self.phase))

    # ------------------------------------------------------------------------------------------ commands
    def _play(self, command: Play) -> None:
        self.playing = True

    def _pause(self, command: Pause) -> None:
        self.playing = False

    def _step(self, command: Step) -> None:
        self.playing = False
        self.iteration += command.count

    def _reset(self, command: Reset) -> None:
        self.iteration, self.playing = 0.0, False

    def _option(self, command: SetOption) -> None:
        self.config[command.name] = command.value
        self.events.put(ConfigChanged(dict(self.config)))

    def _open_path(self, command: OpenScene) -> None:
        for i in range(5):
            self.events.put(JobProgress("Loading images", i / 5, f"{i * 5} of 25", done=False))
        self.events.put(JobProgress("Loading images", 1.0, done=True))
        self.open(scene(command.path))
        self.events.put(Notice(f"Opened {command.path}."))

    def _select(self, command: Select) -> None:
        if command.camera is None and command.uid is None:
            self.selected = None
            return
        rng = np.random.default_rng(int(command.x) + 1)
        self.selected = GaussianReport(
            command.uid or 4711, 123, 42,
            {"means": rng.normal(size=3), "quats": rng.normal(size=4), "log_scales": rng.normal(size=3) - 4,
             "logit_opacities": rng.normal(size=1), "sh0": rng.normal(size=(1, 3)), "shN": rng.normal(size=(15, 3))},
            {"scales": np.exp(rng.normal(size=3) - 4), "opacity": np.array([0.73]), "quat": rng.normal(size=4),
             "color": rng.random(3)},
            {"means": 1e-5 * rng.normal(size=3), "quats": 1e-5 * rng.normal(size=4), "log_scales": 1e-4 * rng.normal(size=3),
             "logit_opacities": 1e-4 * rng.normal(size=1), "sh0": 1e-4 * rng.normal(size=(1, 3)),
             "v_means2d": 1e-6 * rng.normal(size=2), "v_conics": 1e-6 * rng.normal(size=3)},
            {"gradient average": 2.3e-4, "threshold": 2e-4, "times seen": 23.0, "age": 1234.0},
            np.array([command.x, command.y, 0.004, 0.001, 0.002]))
