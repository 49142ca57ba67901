"""The training figures: loss, quality, schedule."""

from __future__ import annotations

import math
import time

from app.gui import formatting
from app.gui.panels.copied import Copied
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Rows, Ui, head, heading, put, show
from app.messages import SaveCheckpoint


class TrainingPanel:
    title = "Training"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Training", first=True)
            self._scene = int(dpg.add_text("", color=Palette.muted, wrap=0))
            rows = self._rows = Rows(ui, 96)
            rows.add("state", "State", "What the engine is doing")
            rows.add("job", "Job", "The long task that runs now, such as loading or an evaluation, and how far it is")
            self._cancel = rows.add_button("job", "×", ui.actions.cancel, "Stop it")
            rows.add("speed", "Speed", "Training steps per second, smoothed")
            rows.add("loss", "Loss", "Loss of the last step, on one photograph")
            rows.add("psnr", "PSNR", "Of the last training photograph, before the update")
            rows.add("test", "Held-out", "PSNR and SSIM of the held-out views at the last evaluation")
            rows.add("gaussians", "Gaussians", "Count now, and the cap that densification never exceeds")
            rows.add("sh", "SH degree", "Active spherical-harmonics degree; it rises with the iterations")
            rows.add("window", "Densify", "First and last iteration that may densify, with the schedule applied")
            rows.add("saved", "Saved", "Iteration of the newest checkpoint, and how long ago. A run saves itself each minute, "
                     "when it stops and when the window closes; open its folder to go on.")
            self._save = rows.add_button("saved", "↓", self._on_save, "Save a checkpoint now")
            self._folder = Copied(ui, rows, "run", "Run", "Where the run is recorded: options, curves, events, plots")
            rows.add("threads", "Threads", "Kernel threads that training may use now; dragging leaves one to the window")

    def update(self) -> None:
        model, s, rows = self.ui.model, self.ui.model.snapshot, self._rows
        scene = model.scene
        if scene is not None:
            name = scene.path.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
            train = sum(v.split == "train" for v in scene.views)
            views = f"{train} training, {len(scene.views) - train} held-out views" if scene.views else "no photographs"
            put(self._scene, f"{name}  ({scene.kind})\n{views}")
        job = model.job
        rows.put("state", model.state_text)
        rows.put("job", formatting.NONE if job is None else f"{head(job.name, 13)} {job.fraction:.0%}")
        show(self._cancel, job is not None)
        rows.put("speed", formatting.rate(s.steps_per_second) if model.playing else formatting.NONE)
        rows.put("loss", formatting.number(s.loss, 4))
        rows.put("psnr", formatting.decibel(s.psnr))
        tested = model.evaluated
        rows.put("test", formatting.NONE if tested is None or math.isnan(tested.psnr)
                 else f"{tested.psnr:.2f} dB  {tested.ssim:.4f}")
        cap = f" / {formatting.count(s.cap)}" if s.cap else ""
        rows.put("gaussians", formatting.count(s.gaussians) + cap)
        limit = model.config.get("sh_degree")
        rows.put("sh", f"{s.sh_degree} of {limit}" if limit is not None else str(s.sh_degree))
        first, last = s.densify_window
        window = f"{formatting.count(first)} to {formatting.count(last)}" if first < last else "not in this run"
        rows.put("window", window if last else formatting.NONE)
        self._show_saved()
        self._folder.put(s.run_folder)
        rows.put("threads", str(s.threads) if s.threads else formatting.NONE)

    def _show_saved(self) -> None:
        model = self.ui.model
        saved, kept = model.saved, bool(model.snapshot.run_folder)
        if saved is not None:
            text = f"{formatting.count(saved.iteration)}, {formatting.duration(max(0.0, time.time() - saved.at))} ago"
        else:
            text = "not yet" if kept else formatting.NONE
        self._rows.put("saved", text)
        show(self._save, kept and model.snapshot.iteration > 0)

    def _on_save(self) -> None:
        self.ui.send(SaveCheckpoint())
