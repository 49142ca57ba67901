"""What the window knows: reduced from events and snapshots. No Dear PyGui, no clock of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from app import messages
from app.gui import formatting
from app.gui.change_log import ChangeLog
from app.gui.population import Population
from app.inspection.rules import Comparison, Lanes
from app.messages import Curve, Densified, Frame, Histogram, Snapshot

WAITED_FOR = {"lanes": "the lanes", "compare": "a comparison", "check": "a check", "losses": "the losses",
              "replay": "a replay", "branch": "another branch"}
"""Jobs during which training stands still, in words; short evaluations are not worth one."""
UNDER_WAY = {"backward": "gradients known, update pending", "update": "updated, the step is not over"}
"""Where a step that is taken in parts stands."""
MORE = 3000              # iterations that a button adds at the end of a run
MORE_TEXT = formatting.count(MORE)
EVENT_LIMIT = 500        # densification events kept for the table; totals count all of them
NOTICE_SECONDS = 7.0
NOTICE_LIMIT = 100


@dataclass
class ShownNotice:
    text: str
    level: str
    since: float
    dismissed: bool = False

    def visible(self, now: float) -> bool:
        """Errors stay until they are dismissed."""
        return not self.dismissed and (self.level == "error" or now - self.since < NOTICE_SECONDS)


@dataclass
class Totals:
    cloned: int = 0
    split: int = 0
    pruned: int = 0
    relocated: int = 0
    added: int = 0
    resets: int = 0         # opacity resets, not the Gaussians in them
    events: int = 0

    def add(self, event: Densified) -> None:
        self.cloned += event.cloned
        self.split += event.split
        self.pruned += event.pruned
        self.relocated += event.relocated
        self.added += event.added
        self.resets += bool(event.reset)
        self.events += 1


@dataclass
class ViewModel:
    """`changed` counts reductions, so that a panel can tell whether anything moved since it last looked."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    scene: messages.SceneOpened | None = None
    scene_version: int = 0
    frame: Frame | None = None
    curves: dict[str, Curve] = field(default_factory=dict)
    curves_version: int = 0
    histogram: Histogram | None = None
    job: messages.JobProgress | None = None
    densified: list[Densified] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    densified_version: int = 0
    population: Population = field(default_factory=Population)
    evaluated: messages.Evaluated | None = None
    saved: messages.RunSaved | None = None     # the newest checkpoint of the run and branch of now
    failure: messages.EngineFailed | None = None
    comparison: Comparison | None = None    # of the laboratory
    lanes: Lanes | None = None
    measured: messages.ViewsMeasured | None = None
    checked: messages.GradientsChecked | None = None
    audited: messages.Audited | None = None
    forwarded: messages.ViewForwarded | None = None   # the last one; Steering says whether it is of now
    options: ChangeLog = field(default_factory=ChangeLog)   # what was changed
    config: dict[str, Any] = field(default_factory=dict)
    config_version: int = 0
    notices: list[ShownNotice] = field(default_factory=list)
    changed: int = 0

    # ------------------------------------------------------------------------------------------ reduction
    def apply(self, event: messages.Event, now: float) -> None:
        """One event. Unknown kinds are shown rather than dropped."""
        self.changed += 1
        match event:
            case messages.Notice():
                self.notify(event.text, event.level, now)
            case messages.SceneOpened():
                self._open(event, now)
            case messages.JobProgress():
                self.job = None if event.done else event
            case messages.Densified():
                self._densify(event)
            case messages.Evaluated():
                self.evaluated = event
            case messages.BranchChanged():
                self._branch(event)
            case messages.RunSaved():
                self.saved = self.saved if event.left else event
            case messages.EngineFailed():
                self.failure = event
                self.notify(event.summary, "error", now)
            case messages.RulesCompared():
                self.comparison = event.comparison
            case messages.GradientsChecked():
                self.checked = event
            case messages.Audited():
                self.audited = event
            case messages.OptionChanged():
                self.options.add(event, now)
            case messages.ViewForwarded():
                self.forwarded = event
            case messages.ViewsMeasured():
                self.measured = event
            case messages.LanesMoved():
                self.lanes = event.lanes
            case messages.ConfigChanged():
                if dict(event.values) != self.config:
                    self.config = dict(event.values)
                    self.config_version += 1
            case _:
                self.notify(f"The window does not know the event {type(event).__name__}.", "warning", now)

    def observe(self, snapshot: Snapshot) -> None:
        """The newest snapshot. Parts that it leaves out keep their last value."""
        self.changed += 1
        if snapshot.iteration < self.snapshot.iteration:
            self._rewind(snapshot.iteration)
        self.snapshot = snapshot
        if snapshot.frame is not None:
            self.frame = snapshot.frame
        if snapshot.curves and any(self.curves.get(k) is not c for k, c in snapshot.curves.items()):
            self.curves = dict(snapshot.curves)
            self.curves_version += 1
        if snapshot.histogram is not None:
            self.histogram = snapshot.histogram
        if self.failure is not None and snapshot.state in ("running", "loading"):
            self.failure = None

    def notify(self, text: str, level: str, now: float) -> None:
        """A notice of the engine or of the window itself; a repeated one is shown again, not twice."""
        for shown in self.notices:
            if shown.text == text and shown.visible(now):
                shown.since = now
                return
        self.notices.append(ShownNotice(text, level, now))
        del self.notices[:-NOTICE_LIMIT]

    def _open(self, event: messages.SceneOpened, now: float) -> None:
        self.scene = event
        self.scene_version += 1
        self.frame = self.histogram = self.evaluated = self.failure = self.saved = None
        self.comparison = self.lanes = self.measured = self.checked = self.forwarded = None
        self._rewind(0)
        self.options.begin()
        self.curves = {}
        self.curves_version += 1
        for warning in event.warnings:
            self.notify(warning, "warning", now)

    def _densify(self, event: Densified) -> None:
        self.densified.append(event)
        del self.densified[:-EVENT_LIMIT]
        self.totals.add(event)
        self.population.add(event)
        self.densified_version += 1

    def _branch(self, event: messages.BranchChanged) -> None:
        """The events are those of the branch that the run goes on as; of its checkpoints nothing is known yet."""
        self.densified, self.totals, self.population = [], Totals(), Population()
        for densified in event.densified:
            self._densify(densified)
        self.densified_version += 1
        self.evaluated, self.saved = event.evaluated, None
        self.options.begin(event.options)

    def _rewind(self, iteration: int) -> None:
        """After a reset the densifications of the abandoned future are no longer history."""
        kept = [e for e in self.densified if e.iteration <= iteration]
        if len(kept) != len(self.densified) or iteration == 0:
            self.densified = kept
            self.totals = Totals()
            for event in kept:
                self.totals.add(event)
            self.population.rewind(iteration)
            self.densified_version += 1
        self.options.rewind(iteration)
        if self.evaluated is not None and self.evaluated.iteration > iteration:
            self.evaluated = None

    # ------------------------------------------------------------------------------------------ what panels ask
    @property
    def playing(self) -> bool:
        return self.snapshot.state == "running"

    @property
    def can_train(self) -> bool:
        return self.scene is not None and self.scene.trainable and self.snapshot.state != "loading"

    @property
    def at_end(self) -> bool:
        """Whether all iterations are done, so that nothing can train before there are more."""
        s = self.snapshot
        return self.can_train and s.state != "running" and 0 < s.iterations <= s.iteration and not s.steering.phase

    @property
    def end_text(self) -> str:
        """Why nothing trains at the end, and what can be done."""
        done = formatting.count(self.snapshot.iterations)
        return f"All {done} iterations are done. Train {MORE_TEXT} more, or go back with Reset or the timeline." \
            if self.at_end else ""

    @property
    def fraction(self) -> float:
        s = self.snapshot
        return min(s.iteration / s.iterations, 1.0) if s.iterations > 0 else 0.0

    @property
    def eta(self) -> float:
        """Seconds until the last iteration at the present rate; NaN when nothing is running."""
        s = self.snapshot
        if not self.playing or not s.steps_per_second > 0:
            return math.nan
        return max(s.iterations - s.iteration, 0) / s.steps_per_second

    @property
    def progress_texts(self) -> tuple[str, ...]:
        """What stands in the progress bar, longest first; empty without a scene."""
        s = self.snapshot
        if s.iterations <= 0 or self.scene is None:
            return ()
        if not self.scene.trainable:
            return "View only: no photographs to train on", "View only"
        text, share = f"{formatting.count(s.iteration)} / {formatting.count(s.iterations)}", f"{self.fraction:.0%}"
        under_way = UNDER_WAY.get(s.steering.phase)
        if under_way is not None and not self.playing:
            return f"{text}   {under_way}", under_way.split(",")[0], text, share
        left = () if math.isnan(self.eta) else (f"{text}   {formatting.duration(self.eta)} left",)
        return (*left, text, share)

    def job_text(self, name: str) -> str:
        """How far the long task of this name is, for the panel that began it; empty while it does not run."""
        job = self.job
        return f"Working: {job.fraction:.0%}. × beside Job stops it." if job is not None and job.name == name else ""

    @property
    def state_text(self) -> str:
        """One word or phrase for the training state."""
        if self.scene is not None and not self.scene.trainable and self.snapshot.state != "failed":
            return "View only"
        if self.job is not None and self.job.name in WAITED_FOR and self.snapshot.state == "running":
            return f"Waits for {WAITED_FOR[self.job.name]}"
        if self.snapshot.state == "paused" and self.snapshot.steering.phase in UNDER_WAY:
            return sentence(UNDER_WAY[self.snapshot.steering.phase].split(",")[0])
        return {"empty": "No scene", "loading": "Loading", "running": "Training", "paused": "Paused",
                "finished": "Finished", "failed": "Stopped by an error"}[self.snapshot.state]

    @property
    def empty_text(self) -> tuple[str, str] | None:
        """(headline, detail) to show where the picture would be; None when there is a picture."""
        if self.job is not None and self.frame is None:
            return sentence(self.job.name), f"{sentence(self.job.text)}   {self.job.fraction:.0%}".strip()
        if self.snapshot.state == "failed" and self.frame is None:
            return "The engine stopped", self.failure.summary if self.failure else "See the notices."
        if self.snapshot.state == "loading" and self.frame is None:
            return "Loading", "Reading cameras and images"
        if self.scene is None:
            return "No scene is open", "Press Open, or Ctrl+O, and choose a folder, a run or a PLY."
        if self.frame is None:
            return "Preparing the first picture", self.scene.path
        return None

    def visible_notices(self, now: float, limit: int = 4) -> list[ShownNotice]:
        """Newest last."""
        return [n for n in self.notices if n.visible(now)][-limit:]

    def threshold_path(self) -> str:
        """The configuration field that the histogram's threshold stands for."""
        if self.histogram is not None:
            return self.histogram.path
        return "densify.absgrad_threshold" if self.config.get("densify.absgrad") else "densify.grad_threshold"


def sentence(text: str) -> str:
    """First letter large, the rest as written."""
    return text[:1].upper() + text[1:]
