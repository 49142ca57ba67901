"""The training figures: loss, quality, schedule."""

from __future__ import annotations

import math
import time

from app.gui import formatting
from app.gui.moment_values import values_at
from app.gui.panels.copied import Copied
from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Rows, Ui, head, heading, put, show
from app.messages import SaveCheckpoint

OFFSET = 84           # px at 100 % of the value column
TIPS = {"loss": "Loss of the last step, before its update: the mean over its photographs, one where micro_batch is 1",
        "psnr": "Of the same photographs",
        "test": "Mean PSNR of the held-out views at the last evaluation",
        "ssim": "Mean SSIM of the held-out views at the last evaluation; 1 = the same picture",
        "gaussians": "How many there are now"}
CAP = "Limit that densification never exceeds: densify.cap, or, where that is 0, what free memory allows"
BACK = "Of the moment that is looked at, as the curves of the run have it; press End for now"


class TrainingPanel:
    title = "Training"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._back = False    # whether figures of a moment of the past are shown
        self._saves: object = None

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(parent=parent):
            heading(ui, "Training", first=True)
            self._scene = int(dpg.add_text("", color=Palette.muted, wrap=0))
            rows = self._rows = Rows(ui, OFFSET)
            rows.add("state", "State", "What the engine is doing")
            rows.add("job", "Job", "The long task that runs now, such as loading or an evaluation, and how far it is")
            self._cancel = rows.add_button("job", "×", ui.actions.cancel, "Stop it")
            rows.add("speed", "Speed", "Training steps per second, smoothed")
            rows.add("loss", "Loss", TIPS["loss"])
            rows.add("psnr", "PSNR", TIPS["psnr"])
            rows.add("test", "Held-out", TIPS["test"])
            rows.add("ssim", "   SSIM", TIPS["ssim"])
            rows.add("gaussians", "Gaussians", TIPS["gaussians"])
            rows.add("cap", "   at most", CAP)
            rows.add("sh", "SH degree", "Active spherical-harmonics degree; it rises with the iterations")
            rows.add("window", "Densify", "First and last iteration that densify, with the schedule applied")
            rows.add("saved", "Saved", "")
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
        rows.show("job", job is not None)
        rows.put("job", formatting.NONE if job is None else f"{head(job.name, 13)} {job.fraction:.0%}")
        show(self._cancel, job is not None)
        rows.put("speed", formatting.rate(s.steps_per_second) if model.playing else formatting.NONE)
        self._show_figures()
        now = " now" if self.ui.view.moment is not None else ""
        rows.put("cap", formatting.count(s.cap) + now if s.cap else formatting.NONE)
        limit = model.config.get("sh_degree")
        rows.put("sh", (f"{s.sh_degree} of {limit}" if limit is not None else str(s.sh_degree))
                 + now)
        rows.put("window", densifies(s.densify_window))
        self._show_saved()
        self._folder.put(s.run_folder)
        rows.put("threads", str(s.threads) if s.threads else formatting.NONE)

    def _show_figures(self) -> None:
        """Of now; in amber those of the moment that is looked at."""
        model, s, rows, moment = self.ui.model, self.ui.model.snapshot, self._rows, self.ui.view.moment
        if moment is None:
            tested = model.evaluated
            known = tested is not None and not math.isnan(tested.psnr)
            rows.put("loss", formatting.number(s.loss, 4))
            rows.put("psnr", formatting.decibel(s.psnr))
            rows.put("test", formatting.decibel(tested.psnr) if known and tested is not None else formatting.NONE)
            rows.put("ssim", f"{tested.ssim:.4f}" if known and tested is not None else formatting.NONE)
            rows.put("gaussians", formatting.count(s.gaussians))
        else:
            then, color = values_at(s, model.curves, moment), Palette.second
            rows.put("loss", formatting.number(then.get("loss", math.nan), 4), color)
            rows.put("psnr", formatting.decibel(then.get("train_psnr", math.nan)), color)
            rows.put("test", formatting.decibel(then.get("test_psnr", math.nan)), color)
            rows.put("ssim", f"{then['test_ssim']:.4f}" if "test_ssim" in then else formatting.NONE, color)
            rows.put("gaussians", formatting.count(round(then["count"])) if "count" in then else formatting.NONE, color)
        if (moment is not None) is not self._back:
            self._back = moment is not None
            for name in ("loss", "psnr", "test", "ssim", "gaussians"):
                rows.explain(name, BACK if self._back else TIPS[name])

    def _show_saved(self) -> None:
        model = self.ui.model
        saved, kept = model.saved, bool(model.snapshot.run_folder)
        if (saves := (kept, model.snapshot.autosave)) != self._saves:
            self._saves = saves
            self._rows.explain("saved", saved_tip(*saves))
        if saved is not None:
            text = saved_text(saved.iteration, time.time() - saved.at)
        else:
            text = "not yet" if kept else formatting.NONE
        self._rows.put("saved", text)
        show(self._save, kept and model.snapshot.iteration > 0)

    def _on_save(self) -> None:
        self.ui.send(SaveCheckpoint())


def densifies(window: tuple[int, ...] | None) -> str:
    """Which iterations densify: the first and the last, as the snapshot tells them."""
    if window is None:
        return formatting.NONE
    if not window:
        return "not in this run"
    first, last = map(formatting.count, window)
    return f"{first} to {last}" if first != last else f"once, at {first}"


def saved_tip(kept: bool, autosave: tuple[float, int]) -> str:
    """What the row of checkpoints is, and when one is written."""
    if not kept:
        return "Nothing is recorded, so there are no checkpoints"
    seconds, iterations = autosave
    often = [f"every {seconds:g} s"] * (seconds > 0) + [
        f"every {formatting.count(iterations)} iterations"] * (iterations > 0)
    when = ", ".join([*often, "at its end", "when it is left"])
    return (f"Iteration of the newest checkpoint, and how long ago. A run saves itself {when} and when the window closes; open "
            "its folder to go on.")


def saved_text(iteration: int, seconds: float) -> str:
    """What finds room before the button: iteration and age."""
    short = formatting.count(iteration) if iteration < 100_000 else f"{iteration // 1000}k"
    return f"{short} · {age(seconds)}"


def age(seconds: float) -> str:
    """The largest unit alone."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h"
