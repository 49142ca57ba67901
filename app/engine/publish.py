"""What the window gets to see: one Snapshot at a time, never more often than it can be drawn."""

from __future__ import annotations

import platform
import sys
from collections import deque
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.full import out_of_memory
from app.engine.memory import memory_bytes
from app.messages import Curve, GaussianReport, Histogram, Snapshot

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.engine.model import Model
    from app.training.trainer import Trainer

INTERVAL = 1.0 / 60.0
"""Seconds between two snapshots, at least."""
STEP_INTERVAL = 1.0 / 15.0
"""The same where only the step counter moved."""
HEADLESS_INTERVAL = 0.5
"""The same where the window yields."""
CURVE_INTERVAL = 0.2
PANEL_INTERVAL = 0.25
"""For histogram, memory and the rate."""
RATE_SECONDS = 2.0
"""The rate is that of the steps of so many seconds."""


class Publisher:
    """Keeps the costly parts of the snapshot and renews each at its own pace."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dirty = True                    # something changed that the user waits for
        self._moved = False                  # a step was taken
        self._last = -1e9
        self._curves: dict[str, Curve] = {}
        self._curves_at = self._panel_at = -1e9
        self._curves_stale = False
        self._histogram: Histogram | None = None
        self._memory: dict[str, int] = {}
        self._report: GaussianReport | None = None
        self._report_of: tuple | None = None
        self._report_held: tuple = ()        # what _report_of names by id, kept so that no id is given out again
        self._steps: deque[float] = deque(maxlen=4096)

    # ------------------------------------------------------------------ told by the engine

    def stepped(self) -> None:
        self._moved = self._curves_stale = True
        self._steps.append(self._engine.clock())

    def frame_ready(self) -> None:
        self.dirty = True

    def curves_changed(self) -> None:
        self._curves_stale = self.dirty = True

    def selection_changed(self) -> None:
        self._report_of = None
        self.dirty = True

    def start_over(self) -> None:
        """Another run: nothing of the old one is shown on."""
        self._curves, self._histogram, self._memory, self._report = {}, None, {}, None
        self._report_of, self._report_held = None, ()   # let the old model go
        self._steps.clear()
        self._curves_at = self._panel_at = -1e9
        self._curves_stale = self.dirty = True

    # ------------------------------------------------------------------ publishing

    def due(self) -> float | None:
        """When the next snapshot should go out; None when nothing changed."""
        if self.dirty:
            return self._last + INTERVAL
        return self._last + (HEADLESS_INTERVAL if self._engine.control.headless else STEP_INTERVAL) if self._moved else None

    def publish_if_due(self) -> None:
        due = self.due()
        if due is not None and due <= self._engine.clock():
            self.publish()

    def publish(self) -> None:
        engine = self._engine
        self._last = engine.clock()
        self.dirty = self._moved = False
        if not engine.training:
            self._steps.clear()
        try:
            snapshot = self._snapshot()
        except Exception as error:  # noqa: BLE001 - shown to the user; the next snapshot goes without what failed
            engine.selected_uid = None
            if not out_of_memory(engine, error):
                engine.fail("Describing the run", error)
            snapshot = Snapshot(state="failed", iterations=engine.config.iterations, backend=engine.backend)
        engine.snapshots.put(snapshot)

    def _snapshot(self) -> Snapshot:
        engine, model = self._engine, self._engine.model
        base = Snapshot(state=engine.state, iterations=engine.config.iterations, backend=engine.backend,  # type: ignore
                        backends=engine.usable_backends, device=device_name(engine.backend),
                        threads=engine.threads_in_use, job=engine.jobs.progress, commands_done=engine.commands_done,
                        run_folder=str(engine.run_folder or ""),
                        autosave=(engine.settings.autosave.seconds, engine.settings.autosave.iterations))
        if model is None:
            return base
        self._renew_panels(model)
        trainer = model.trainer
        return replace(
            base, iteration=model.iteration, iterations=model.options.iterations, loss=engine.last_loss,
            psnr=engine.last_psnr, gaussians=len(model.params), cap=trainer.cap if trainer is not None else 0,
            sh_degree=model.sh_degree, steps_per_second=self.rate(), backend=model.backend,
            device=device_name(model.backend), frame=engine.viewer.frame, curves=self._curves,
            histogram=self._histogram, stage_ms=dict(engine.stage_ms.values), memory=self._memory,
            selected=self._selected(model), answers=engine.inspector.answers, seconds=engine.seconds,
            view_name=engine.view_name, timeline=engine.timeline.state(),
            branch_curves=engine.timeline.branch_curves(), steering=engine.control.state(), selection=engine.selection.state(),
            densify_window=None if trainer is None else densify_window(trainer))

    def rate(self) -> float:
        """Steps per second of the last RATE_SECONDS, or of the last few steps where they are slower."""
        steps, now = self._steps, self._engine.clock()
        while len(steps) > 4 and steps[0] < now - RATE_SECONDS:
            steps.popleft()
        return (len(steps) - 1) / (steps[-1] - steps[0]) if len(steps) > 1 and steps[-1] > steps[0] else 0.0

    def _renew_panels(self, model: Model) -> None:
        engine, now, still = self._engine, self._last, not self._engine.training
        if self._curves_stale and (still or now >= self._curves_at + CURVE_INTERVAL):
            self._curves, self._curves_at, self._curves_stale = engine.history.curves(), now, False
        if not still and now < self._panel_at + PANEL_INTERVAL:
            return
        self._panel_at = now
        self._memory = memory_bytes(model) | {"timeline": engine.timeline.ring.nbytes}
        request = engine.viewer.request
        if model.trainer is None or request is None or not request.histogram or request.hidden or engine.control.headless:
            self._histogram = None
        else:
            from app.training.probes import histogram

            self._histogram = histogram(model.trainer)

    def _selected(self, model: Model) -> GaussianReport | None:
        """The card of the selected Gaussian, renewed when the model or the camera moved."""
        engine = self._engine
        uid, request = engine.selected_uid, engine.viewer.request
        if uid is None or request is None:
            self._report = self._report_of = None
            return None
        of = (uid, id(model), model.version, id(request.camera))
        if of != self._report_of:
            from app.engine.selection import index_of, report

            index = index_of(model, uid)
            if index is None:
                heir = engine.selected_uid = engine.selection.heir(uid)
                index = None if heir is None else index_of(model, heir)
                engine.notice(f"Gaussian {uid} was split; this is its child {heir}." if heir is not None else
                              f"Gaussian {uid} is gone: it was pruned or split.")
            if index is None:
                self._report = None
            else:
                self._report = report(model, index, request.camera)
            self._report_of, self._report_held = of, (model, request.camera)
        return self._report


def densify_window(trainer: Trainer) -> tuple[int, ...]:
    """The first and the last iteration that densify before the run ends; empty where none does."""
    if trainer.config.densify.strategy == "none":
        return ()
    return trainer.schedule.first_and_last(trainer.config.iterations) or ()


def device_name(backend: str) -> str:
    """The chip that the backend computes on, in words; empty for a GPU that nothing runs on yet."""
    if backend != "cuda":
        return _processor()
    cuda = sys.modules.get("render.backends.cuda")   # importing it would load PyTorch in the engine's thread
    return cuda.device_name() if cuda is not None else ""


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "CPU"
