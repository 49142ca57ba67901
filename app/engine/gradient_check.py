"""The gradient check as a job of the engine: on chosen Gaussians of the model as it is now."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.engine.background import Report
from app.engine.jobs import Job, Refused, Work
from app.messages import CheckGradients, GradientsChecked
from render import interrupt
from render.types import PARAM_GROUPS, Camera

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.inspection.problem import Problem

CHECKING = "check"
MOST_GAUSSIANS = 200
"""Of one check: some thirty seconds of two cores each hundred."""


def check_gradients(engine: Engine, command: CheckGradients) -> None:
    """Answers with GradientsChecked."""
    if engine.model is None:
        engine.notice("There is nothing to check yet; open a scene first.", "warning")
        return
    uids = command.uids or _selected(engine)
    if not uids and command.count < 1:
        engine.notice("Select the Gaussians whose gradients are to be checked.", "warning")
        return
    if len(uids) > MOST_GAUSSIANS:
        engine.notice(f"{len(uids):,} Gaussians are selected; {MOST_GAUSSIANS} of them, drawn at random, are checked.")
        uids = tuple(sorted(random.Random(0).sample(uids, MOST_GAUSSIANS)))
    if not engine.jobs.has(CHECKING):
        engine.jobs.add(gradient_check(
            engine, uids, count=min(command.count, MOST_GAUSSIANS), view_index=command.view_index, camera=command.camera,
            parameters=command.parameters, backend=command.backend, dtype=command.dtype, sweep=command.sweep))


def _selected(engine: Engine) -> tuple[int, ...]:
    """uids of the selection, or the one Gaussian that is inspected."""
    from app.training.arrays import host

    assert engine.model is not None
    mask = engine.selection.mask()
    if mask.any():
        return tuple(int(uid) for uid in host(engine.model.params.uids)[mask])
    return () if engine.selected_uid is None else (engine.selected_uid,)


def gradient_check(engine: Engine, uids: Sequence[int], *, count: int = 0, view_index: int | None = None,
                   camera: Camera | None = None, parameters: Sequence[str] = PARAM_GROUPS, backend: str = "",
                   dtype: str = "float64", sweep: bool = True) -> Job:
    """Check the Gaussians of these uids; training stands still meanwhile. The report comes as GradientsChecked.

    Without uids `count` are drawn that the view shows. The loss is that of scene view `view_index` (None = the view of the
    last step); with a `camera` instead, or without photographs, it is a fixed random cotangent there. `backend` "" is that
    of the model. The job ends with one sentence for the user where there is nothing to check, an unknown parameter, or a
    backend that cannot run here.
    """

    def run() -> Work:
        from app.inspection.gradcheck import DTYPES, CheckOptions
        from app.inspection.gradcheck import gradient_check as check

        yield from engine.background(_prepare, "kernels").wait((0.0, 0.0))
        wanted = [name for name in PARAM_GROUPS if name in parameters]
        if not wanted or dtype not in DTYPES:
            raise Refused(f"A gradient check takes parameters of {', '.join(PARAM_GROUPS)} and float64 or float32.")
        problem, indices, gone = _problem(engine, uids, view_index, camera)
        if not uids:
            from app.inspection.subject import choose_visible

            seed, indices = engine.model.iteration if engine.model is not None else 0, None
            while indices is None:
                try:
                    with interrupt.interruptible():
                        indices = choose_visible(problem, count, seed)
                except interrupt.Interrupted:   # somebody waits for the thread
                    yield None
        if not indices:
            raise Refused("None of the Gaussians to be checked exists any more; select others.")
        options = CheckOptions(_backend(engine, backend), dtype, tuple(wanted), sweep=sweep)
        report = yield from check(problem, indices, options)
        if not report.gaussians:
            raise Refused(f"None of the selected Gaussians is in the view {problem.view}; choose another view or others.")
        engine.emit(GradientsChecked(report.without(gone)))

    return Job(CHECKING, run())


def _prepare(report: Report) -> None:
    """Build the kernels in double precision, in a helper thread: the first check compiles them."""
    import torch

    from render.backends import cpu

    report(0.0, "loading the kernels in double precision")
    if cpu.available():
        cpu.kernels(torch.float64, lambda text: report(0.0, text))


def _backend(engine: Engine, name: str) -> str:
    from render.pipeline import resolve_backend

    assert engine.model is not None
    try:
        return resolve_backend(name or engine.model.backend)
    except ValueError as error:
        raise Refused(str(error)) from error


def _problem(engine: Engine, uids: Sequence[int], view_index: int | None, camera: Camera | None
             ) -> tuple[Problem, list[int], list[int]]:
    """(the problem on copies of the parameters, rows of the uids, uids that are gone)."""
    import torch

    from app.inspection.problem import converted
    from app.inspection.subject import of_camera, of_view

    model = engine.model
    if model is None:
        raise Refused("There is no model any more, so no gradient to check.")
    params = converted(model.params, torch.float32, torch.device("cpu"))
    params.uids = model.params.uids.cpu().clone()
    row_of = {uid: row for row, uid in enumerate(params.uids.tolist())}
    indices, gone = [row_of[uid] for uid in uids if uid in row_of], [uid for uid in uids if uid not in row_of]
    views, trainer = (model.scene.views if model.scene is not None else []), model.trainer
    if camera is not None:
        return of_camera(params, camera, "the camera", model.options, model.sh_degree, 0), indices, gone
    if view_index is not None and 0 <= view_index < len(views):
        view = views[view_index]
    elif trainer is not None:
        view = trainer.views[trainer.last_view_index or 0]
    else:
        raise Refused("These Gaussians have no photographs; check their gradients at a camera.")
    return of_view(params, view, model.options, model.sh_degree), indices, gone
