"""Auditing somebody else's rasterizer from the window: in a process of its own, which foreign code may take down."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.background import Report
from app.engine.jobs import Job, Refused, Work
from app.messages import Audited, AuditRasterizer

if TYPE_CHECKING:
    from app.engine.loop import Engine

AUDITING = "audit"
POLL = 0.1   # seconds between two looks at whether nobody waits any more


def audit(engine: Engine, command: AuditRasterizer) -> None:
    """Answers with Audited. Training goes on meanwhile, at half the speed."""
    target = command.target.strip()
    if not target or target.startswith("-"):
        engine.notice("Name the rasterizer to audit as module:function, or cpu, reference, plain.", "warning")
    elif not engine.jobs.has(AUDITING):
        engine.jobs.add(Job(AUDITING, _audit(engine, command), exclusive=False))


def _audit(engine: Engine, command: AuditRasterizer) -> Work:
    words = [sys.executable, "-m", "app", "audit", command.target.strip(), "--narrow",
             *(["--speed"] if command.speed else [])]
    write = _snapshot(engine) if command.own_scene and engine.model is not None else None

    def work(report: Report) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as folder:   # in this thread: nobody writes into it any more when it is removed
            return _run([*words, *(["--scene", write(Path(folder), report)] if write is not None else [])], report)

    code, text, said = yield from engine.background(work, "audit").wait()
    if code not in (0, 1) or "fault" not in text:   # the command line's own sentence; a report names its faults, or none
        raise Refused(next((line.removeprefix("splatscope: ") for line in reversed(said.splitlines()) if line.strip()),
                           f"{command.target.strip()} ended the process before there was a report (exit code {code})"))
    engine.emit(Audited(command.target.strip(), code == 0, text))


def _snapshot(engine: Engine) -> Callable[[Path, Report], str]:
    """What writes a run folder into another: the Gaussians as they are now, with the scene's cameras where it has any."""
    from app.data.cameras_json import write_cameras_json
    from app.data.gaussians import write_gaussians
    from app.training.arrays import to_arrays

    model = engine.model
    assert model is not None
    name = Path(model.path).name or "scene"
    arrays, views, iteration = to_arrays(model.params), model.scene.views if model.scene is not None else None, model.iteration

    def write(folder: Path, report: Report) -> str:
        run = folder / f"{name} at iteration {iteration}"
        report(0.1, "writing the Gaussians")
        write_gaussians(run / "point_cloud" / f"iteration_{iteration}" / "point_cloud.ply", arrays)
        if views is not None:
            write_cameras_json(run / "cameras.json", views)
        return str(run)

    return write


def _run(words: list[str], report: Report) -> tuple[int, str, str]:
    """(exit code, stdout, stderr). A report that raises, since the job was cancelled, ends the process."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    try:
        while True:
            report(0.5, "asking the rasterizer")
            try:
                out, said = process.communicate(timeout=POLL)
                return process.returncode, out, said
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
