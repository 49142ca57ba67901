"""A run as its folder tells it, also while it goes on or after it was killed."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from app.data import user_files
from app.data.cameras_json import read_cameras_json
from app.data.scene import SceneError
from app.records.about import FORMAT
from app.records.lines import EVALUATIONS, EVENTS, METRICS, branches, current, read_lines
from app.records.place import CONFIG, runs_root

RESULTS, CAMERAS = "results.json", "cameras.json"
BEGINNINGS = ("started", "restarted", "resumed")
"""Events at which config.json was written."""


@dataclass(frozen=True)
class Run:
    """What is known of a run; a run without a record has only `results`."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)          # config.json
    results: dict[str, Any] = field(default_factory=dict)        # results.json
    steps: list[dict[str, Any]] = field(default_factory=list)    # every line of metrics.jsonl, cuts too
    tests: list[dict[str, Any]] = field(default_factory=list)    # of eval.jsonl
    log: list[dict[str, Any]] = field(default_factory=list)      # of events.jsonl, likewise

    @property
    def name(self) -> str:
        return self.folder.resolve().name or str(self.folder)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The logged steps of the branch that the run is on; iterations rise."""
        return current(self.steps)

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """The same for evaluations."""
        return current(self.tests)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Events of the branch that the run is on, in order."""
        return current(self.log, steps=False)

    def branches(self) -> dict[str, list[dict[str, Any]]]:
        """The logged steps of every branch by its name, the one that the run is on last."""
        return branches(self.steps)

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """(iterations, values) of a column of the metrics; NaN where a step has none."""
        rows = self.metrics
        return [row["iteration"] for row in rows], [number(row.get(name)) for row in rows]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The options in force at the end: those that the run or its branch went on with last, and what was changed since."""
        values = started = dict(self.about.get("config") or {})
        for event in self.events:
            if event.get("event") in BEGINNINGS:
                values = dict(started)
            elif event.get("event") == "branch" and isinstance(event.get("config"), dict):
                values = dict(event["config"])
            elif event.get("event") == "option" and "name" in event and event.get("live") is not False:
                values[str(event["name"])] = event.get("new")
        return values


def number(value: Any) -> float:
    """NaN for null and for what is no number."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def has_record(folder: Path) -> bool:
    """Whether a folder holds the record or the results of a run."""
    return any((folder / name).is_file() for name in (METRICS, RESULTS))


def newest_runs(limit: int, root: Path | None = None) -> list[Path]:
    """The runs that nobody named, the one written to last first."""
    folder = root or runs_root()
    found = [(max(file.stat().st_mtime for name in (METRICS, RESULTS) if (file := run / name).is_file()), run)
             for run in (folder.iterdir() if folder.is_dir() else ()) if has_record(run)]
    return [run for _, run in sorted(found, reverse=True)[:limit]]


def read_run(path: str | Path) -> Run:
    """Raises SceneError, one sentence, for a folder that is no run's or whose files cannot be read."""
    folder = Path(path).expanduser()
    if not folder.exists():
        raise SceneError(f"{path} does not exist; name the folder of a run")
    if not has_record(folder):
        raise SceneError(f"{path} is not the folder of a run: it has neither {METRICS} nor {RESULTS}; "
                         "name a folder that `splatscope train -m` wrote, or one that the window shows beside Run")
    try:
        about, results = read_about(folder), read_results(folder)
        steps, tests, log = (read_lines(folder / name) for name in (METRICS, EVALUATIONS, EVENTS))
    except OSError as error:
        raise SceneError(f"{folder} cannot be read ({(error.strerror or str(error)).lower()}); check its permissions") from None
    if not results and not current(steps):
        raise SceneError(f"{path} holds no step that can be read: the run ended before its first was written, or "
                         f"{METRICS} is damaged; choose another run")
    return Run(folder, about, results, steps, tests, log)


def read_results(folder: Path) -> dict[str, Any]:
    """results.json of a run; empty where there is none. Raises SceneError for one that is damaged or of something else."""
    results = _object(folder / RESULTS)
    if results and not math.isfinite(number(results.get("iterations"))):
        raise SceneError(f"{folder / RESULTS} is not of a run of splatscope: it names no iterations; choose another folder")
    return results


def read_about(folder: Path) -> dict[str, Any]:
    """config.json of a run; empty where there is none. Raises SceneError for one that is damaged or of something else."""
    about = _object(folder / CONFIG)
    if number(about.get("format")) > FORMAT:
        raise SceneError(f"{folder / CONFIG} is of format {about['format']}, and this version reads up to {FORMAT}; "
                         "install a newer splatscope")
    if about and not (isinstance(about.get("config"), dict) and isinstance(about.get("scene"), dict)):
        raise SceneError(f"{folder / CONFIG} is not of a run of splatscope: it has no config or no scene; "
                         "choose another folder")
    return about


def set_aside(folder: Path) -> list[str]:
    """Rename what a run that begins in the folder would overwrite though it cannot be read as a run's; a sentence about each.

    Raises SceneError where that cannot be done.
    """
    sentences = []
    for name, read in ((CONFIG, read_about), (RESULTS, read_results), (CAMERAS, _read_cameras)):
        try:
            read(folder)
        except (SceneError, OSError) as error:
            why = str(error).split("; ")[0] if isinstance(error, SceneError) else f"{folder / name} cannot be read"
            sentences.append(f"{why}; it is called {user_files.set_aside(folder / name).name} now.")
    return sentences


def _read_cameras(folder: Path) -> None:
    if (folder / CAMERAS).is_file():
        read_cameras_json(folder / CAMERAS)


def _object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no file. Raises SceneError for a damaged one."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SceneError(f"{path} is damaged: it holds no JSON object; restore it or choose another run")
    return found


@dataclass(frozen=True)
class Summary:
    """The figures of a run where it stands now; None = not known."""

    name: str
    scene: str | None = None
    strategy: str | None = None
    backend: str | None = None
    iterations: int | None = None
    seconds: float | None = None
    rate: float | None = None        # it/s over the whole run
    gaussians: int | None = None
    psnr: float | None = None        # of the last evaluation
    ssim: float | None = None
    lpips: float | None = None
    measured: int | None = None      # the iteration of that evaluation


def summarise(run: Run) -> Summary:
    """From results.json where the record says that the run ended so, or where there is no record; else from the record."""
    scene, machine = run.about.get("scene") or {}, run.about.get("machine") or {}
    strategy = run.config.get("densify.strategy")
    row, test, results = (run.metrics or [{}])[-1], (run.evaluations or [{}])[-1], run.results
    common = dict(name=run.name, scene=scene.get("name"), strategy=strategy,
                  backend=machine.get("backend") or results.get("backend"))
    ended = [event["iteration"] for event in run.events if event.get("event") == "finished"]
    if results and (not run.metrics or results["iterations"] in ended[-1:]):   # else it is of an earlier run in the folder
        given = {key: _known(results.get(key)) for key in ("psnr", "ssim", "lpips", "gaussians", "iterations", "seconds")}
        measured = given["iterations"] if given["psnr"] is not None else None
        return Summary(**common, **given, rate=_known(results.get("iterations_per_second")), measured=measured)
    seconds = _known(row.get("seconds"))
    reached = max([entry.get("iteration") or 0 for entry in (row, test, *run.events[-1:])])   # not every step is logged
    return Summary(**common, iterations=reached, seconds=seconds,
                   rate=row["iteration"] / seconds if seconds else None, gaussians=_known(row.get("gaussians")),
                   measured=test.get("iteration"), **{key: _known(test.get(key)) for key in ("psnr", "ssim", "lpips")})


def _known(value: Any) -> Any:
    with contextlib.suppress(TypeError):
        return value if math.isfinite(value) else None
    return None
