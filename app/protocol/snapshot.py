"""The state of the run and of the instruments: newest wins, either way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from app.protocol.control import Steering
from app.protocol.events import JobProgress
from app.protocol.timeline import TimelineState
from app.protocol.view import Frame


@dataclass(frozen=True)
class InspectRequest:
    """What the panels that can be seen want to know, by instrument; what is not asked costs nothing.

    Questions are frozen dataclasses of app/inspection/questions.py that compare by value.
    """
    questions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Histogram:
    edges: np.ndarray       # [B+1]
    counts: np.ndarray      # [B]
    threshold: float
    label: str              # which statistic: signed sum or sum of absolutes
    never_seen: float       # share of Gaussians no view has seen since the last densification
    path: str = "densify.grad_threshold"   # the configuration field that the threshold is
    below: bool = False     # those at or below the threshold are concerned, not those above
    found: int | None = None   # iteration of the densification that found it so; None = as it is now
    unit: str = ""


@dataclass(frozen=True)
class Curve:
    """At most 2,000 points."""
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class GaussianReport:
    """Everything about one selected Gaussian; arrays are copies, gradients are those of the last step."""
    uid: int
    index: int
    parent: int | None
    parameters: Mapping[str, np.ndarray]   # raw, by group name
    activated: Mapping[str, np.ndarray]    # scales, opacity, unit quat, colour ...
    gradients: Mapping[str, np.ndarray]    # dL/d raw parameter, and v_means2d, v_conics, v_colors, v_opacities
    statistics: Mapping[str, float]        # densification statistic, threshold, times seen, age ...
    ellipse: np.ndarray | None = None      # [5] px: centre x, y, conic a, b, c in the requested camera


@dataclass(frozen=True)
class Answer:
    """What an instrument found: `value` is a frozen dataclass of app/inspection/results.py, None where it has none."""
    question: Any
    value: Any = None
    problem: str = ""       # why there is none, one sentence
    iteration: int = 0      # of the model that was asked
    cost_ms: float = 0.0


@dataclass(frozen=True)
class SelectionState:
    """How many Gaussians carry the user's marks, and what undo and redo would do; an empty text = nothing."""
    selected: int = 0
    frozen: int = 0
    hidden: int = 0
    undo: str = ""
    redo: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The state of the run after a turn."""
    state: Literal["empty", "loading", "running", "paused", "finished", "failed"] = "empty"
    iteration: int = 0
    iterations: int = 0
    loss: float = float("nan")
    psnr: float = float("nan")
    gaussians: int = 0
    cap: int = 0
    sh_degree: int = 0
    steps_per_second: float = 0.0
    backend: str = ""
    backends: tuple[str, ...] = ()         # those that SetBackend takes here, "auto" included
    device: str = ""
    frame: Frame | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)      # loss, train_psnr, test_psnr, count
    histogram: Histogram | None = None
    stage_ms: Mapping[str, float] = field(default_factory=dict)    # project, sh, binning, rasterize, loss, ... adam, other
    memory: Mapping[str, int] = field(default_factory=dict)        # bytes: parameters, adam, images, intersections, rss
    selected: GaussianReport | None = None
    commands_done: int = 0                 # how many commands the engine has carried out since it started
    threads: int = 0                       # kernel threads that training may use now
    seconds: float = 0.0                   # spent training since iteration 0, pauses left out
    view_name: str = ""                    # photograph of the last step
    job: JobProgress | None = None         # the long job that runs now
    densify_window: tuple[int, ...] | None = None   # first and last iteration that densify; () = none does, None = no run
    answers: Mapping[str, Answer] = field(default_factory=dict)    # to the newest InspectRequest, by instrument
    selection: SelectionState = SelectionState()
    steering: Steering = Steering()        # the step under way, and what the run goes on for
    run_folder: str = ""                   # where the run is recorded; empty where it is not
    autosave: tuple[float, int] = (0.0, 0)     # seconds and iterations after which it saves itself; 0 = not by them
    timeline: TimelineState = TimelineState()
    branch_curves: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)   # of the other branches, by name
