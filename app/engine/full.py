"""When memory runs out: the run goes on elsewhere, or waits, and the user is told what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.engine import work
from app.training.memory import is_out_of_memory

if TYPE_CHECKING:
    from app.engine.loop import Engine


def out_of_memory(engine: Engine, error: BaseException) -> bool:
    """Whether that is what went wrong. On a GPU the run then goes on on the CPU, elsewhere it pauses; said aloud."""
    if not is_out_of_memory(error):
        return False
    model = engine.model
    count = len(model.params) if model is not None else 0
    if model is None or model.backend != "cuda":
        engine.running, engine.steps_left = False, None
        what = f"{count:,} Gaussians at this size" if count else "this"
        engine.notice(f"There is not enough memory for {what}: lower densify.cap, or open the scene smaller (-r 2).",
                    "error", aloud=True)
    elif not engine.jobs.has(work.SWITCHING):
        instead = next(name for name in ("cpu", "reference") if name in engine.usable_backends)
        engine.notice(f"The GPU's memory is used up with {count:,} Gaussians, so the backend {instead} goes on: lower "
                    "densify.cap or open the scene smaller, then choose cuda again.", "error", aloud=True)
        engine.jobs.add(work.switch_backend(engine, instead))
    return True
