"""The audit, from the name of a function to the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from app.inspection.audit import alpha_rule, backward, conventions, probes
from app.inspection.audit.findings import Findings
from app.inspection.audit.target import Target, load, prepare
from app.inspection.audit.types import Flaws, Probe, Report

Say = Callable[[str], None]


def audit(name: str, *, function: Callable[..., Any] | None = None, dtype: str | None = None, scenes: tuple[Probe, ...] = (),
          speed: bool = False, say: Say = lambda text: None) -> Report:
    """Audit the function `name` (module:function or a shipped adapter's short name), or `function` under that name.

    `scenes` are compared beside the standard ones; `dtype` asks for "float64" or "float32", None takes what works;
    `say` is told what is being done. Raises AuditError, one sentence, when it cannot run.
    """
    with one_thread():
        target, report = examine(name, function or load(name), dtype, scenes, say)
    if speed:
        from app.inspection.audit.speed import measure

        say("measuring speed")
        report.speed = measure(target)
    return report


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: the pictures are so small that threads wait for each other more than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def examine(name: str, function: Callable[..., Any], dtype: str | None, scenes: tuple[Probe, ...], say: Say
            ) -> tuple[Target, Report]:
    """(the function as it can be called, all that was found but its speed)."""
    notes: list[str] = []
    say("trying the function")
    target = prepare(name, function, probes.crowd("crowd", 1), dtype, notes)
    report = Report(name, str(target.dtype).removeprefix("torch."), str(target.device), notes=notes)
    f = Findings(target, report)
    f.set_precision(report.dtype)
    say("measuring the alpha rule")
    on_black = probes.crowd("crowd on black", 2, background=(0.0, 0.0, 0.0))
    standard = [probes.crowd("crowd", 1), on_black, probes.dense("dense", 3)]
    if alpha_rule.measure_shape(f):
        judge(f, standard, say)
    say("comparing scenes")
    for seed, probe in enumerate([*standard, *scenes]):
        report.comparisons.append(backward.compare(f, probe, seed))
    judge_own(f, len(standard))
    return target, report


def judge(f: Findings, standard: list[Probe], say: Say) -> None:
    """Modes, conventions, then gradients under what was found."""
    alpha_rule.measure_alpha_max(f)
    alpha_rule.measure_cutoff(f)
    alpha_rule.measure_footprint(f)
    say("asking about the conventions")
    conventions.ask_all(f)
    alpha_rule.measure_stop(f)
    explained = conventions.compare_pictures(f, standard)
    say("comparing gradients")
    alpha_rule.measure_gradient_mode(f)
    unclamped, saturated = ([p for p in part if p in explained] for part in (standard[:2], standard[2:]))
    if not unclamped:
        f.report.notes.append("Gradients were not judged, since the picture is wrong for a reason that could not be reproduced "
                              f"({', '.join(dict.fromkeys(f.unexplained))}).")
        return
    flaws = backward.explain(f, unclamped)
    backward.ask_quat_length(f)
    told = f.report.gradient_mode != "unknown" and "mixed" not in f.report.gradient_mode
    if saturated and told and flaws == Flaws() and not f.report.faults:
        backward.explain(f, saturated)   # what shows only where alpha is clamped or transmittance runs out


def judge_own(f: Findings, first: int) -> None:
    """A user's scene that deviates though every standard scene agreed is a fault without a known cause."""
    for c in f.report.comparisons[first:]:
        if f.report.faults:
            return
        if c.image_error > 10 * f.report.image_tolerance:
            f.report.add("image", "image", c.image_error, f"The picture of {c.name} is wrong, though the standard scenes "
                         "agree.")
        for name, error in c.gradient_errors.items():
            if error is not None and error > 10 * f.report.gradient_tolerance:
                f.report.add(f"gradient_{name}", name, error, f"The gradient of {name} is wrong in {c.name}, though the "
                             "standard scenes agree.")


