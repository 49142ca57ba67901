"""Central differences in float64 on the user's own scene, against the gradient that training uses.

    numeric = (f(x + h) - f(x - h)) / ((x + h) - (x - h)),   h = cbrt(eps) max(1, |x|)

with the step as it is stored, not as it was meant. f is the loss of one view; only the tiles that the Gaussian touches are
rendered again (local_picture.py). What lies between x - h and x + h is looked at as well (kinks.py): across a kink a
difference says nothing, so such an entry is compared with smaller steps, and with every decision held (frozen.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from app.inspection.frozen import FrozenGaussian, freeze
from app.inspection.gradcheck_results import ROUNDINGS, Entry, GradientReport, Sweep, judge
from app.inspection.kinks import clamped_pixels, kinks_between
from app.inspection.local_picture import BasePicture, LocalPicture, base_picture
from app.inspection.problem import Problem, analytic_gradients, in_float64
from app.inspection.ucurve import slopes
from render import interrupt
from render.types import PARAM_GROUPS

DTYPES = {"float64": torch.float64, "float32": torch.float32}
STEP = float(np.cbrt(np.finfo(np.float64).eps))
SMALLER = (8.0, 64.0)
"""Steps are divided by these, in turn, while a kink lies between x - h and x + h: most kinks are near x, few are at it."""
SWEEP = tuple(float(h) for h in np.logspace(-1, -11, 31))
"""Steps of the U-curve, times max(1, |x|)."""
Progress = tuple[float, str]
T = TypeVar("T")


@dataclass(frozen=True)
class CheckOptions:
    backend: str = "cpu"                            # whose gradient is checked; resolved, not "auto"
    dtype: str = "float64"                          # in which it is computed; differences are always float64
    parameters: tuple[str, ...] = PARAM_GROUPS
    step: float = STEP                              # h for |x| <= 1
    sweep: bool = True                              # a U-curve of each parameter's largest entry


@dataclass
class _Check:
    """The state of one check; its methods are parts of the generator."""

    problem: Problem
    options: CheckOptions
    base: BasePicture
    analytic: Mapping[str, Tensor]
    entries: list[Entry] = field(default_factory=list)

    def components(self, group: str) -> int:
        """How many numbers of a Gaussian's row are in use; SH bands above the degree are not."""
        if group == "shN":
            return 3 * ((self.problem.sh_degree + 1) ** 2 - 1)
        return getattr(self.problem.params, group)[0].numel()

    def gradient(self, group: str, index: int, component: int) -> float:
        found = self.analytic.get(group)
        return 0.0 if found is None else float(found[index].reshape(-1)[component])

    def gaussian(self, index: int) -> Generator[None, None, None]:
        """Check every entry of a Gaussian."""
        local = LocalPicture(self.base, index)
        here = local.evaluate("means", 0, local.entry("means", 0))
        frozen: FrozenGaussian | None = None
        passed_on: Mapping[str, Tensor] = {}
        unit = ROUNDINGS * np.finfo(np.float64).eps * local.loss.magnitude(here.surrounding, here.value)
        if self.problem.raster.alpha_gradient != "exact" and clamped_pixels(local, here):
            frozen = yield from freeze(local, here)
            passed_on = frozen.gradients()
        for group in self.options.parameters:
            for component in range(self.components(group)):
                try:
                    numeric, taken, kinks, clean = self._difference(local, group, component)
                except ValueError:   # at large coordinates the step leaves the Gaussian's tiles
                    wide = LocalPicture(self.base, index, whole=True)
                    numeric, taken, kinks, clean = self._difference(wide, group, component)
                if kinks and frozen is None:
                    frozen = yield from freeze(local, here)
                again = math.nan
                if kinks and frozen is not None and (frozen.exact or "projection_clamp" not in kinks):
                    again = frozen_difference(frozen, group, component, self.options.step)
                self.entries.append(Entry(
                    uid=int(self.problem.params.uids[index]), index=index, parameter=group, component=component,
                    value=local.entry(group, component), step=taken,
                    analytic=self.gradient(group, index, component), numeric=numeric, kinks=kinks, clean=clean, frozen=again,
                    reference=float(passed_on[group][component]) if passed_on else math.nan,
                    rounding=float(unit / taken) if taken > 0 else 0.0))
                yield

    def _difference(self, local: LocalPicture, group: str, component: int) -> tuple[float, float, dict[str, int], bool]:
        """(central difference, its step, kinks within the default step, whether none is within this step)."""
        numeric, taken, kinks = difference(local, group, component, self.options.step)
        for divisor in SMALLER if kinks else ():
            closer, shorter, left = difference(local, group, component, self.options.step / divisor)
            if not left:
                return closer, shorter, kinks, True
        return numeric, taken, kinks, not kinks

    def sweep(self, group: str) -> Generator[None, None, Sweep | None]:
        """The U-curve of the group's largest entry without a kink."""
        candidates = [e for e in self.entries if e.parameter == group and not e.kinks and math.isnan(e.reference)]
        entry = max(candidates, key=lambda e: abs(e.analytic), default=None)
        if entry is None or entry.analytic == 0:
            return None
        local = LocalPicture(self.base, entry.index)
        frozen = yield from freeze(local, local.evaluate("means", 0, local.entry("means", 0)))
        scale = max(1.0, abs(entry.value))
        errors, held, flipped = [], [], []
        for h in SWEEP:
            try:
                numeric, _, kinks = difference(local, group, entry.component, h)
            except ValueError:   # so large a step leaves the Gaussian's tiles
                local = LocalPicture(self.base, entry.index, whole=True)
                numeric, _, kinks = difference(local, group, entry.component, h)
            errors.append(abs(numeric - entry.analytic) / abs(entry.analytic))
            again = frozen_difference(frozen, group, entry.component, h)
            held.append(abs(again - entry.analytic) / abs(entry.analytic))
            flipped.append(sum(kinks.values()))
            yield
        steps = np.array(SWEEP) * scale
        truncation, rounding = slopes(steps, np.array(held))
        return Sweep(entry.uid, group, entry.component, entry.analytic, steps, np.array(errors), np.array(held),
                     np.array(flipped), truncation, rounding, self.options.step * scale)


def sides(x: float, step: float) -> tuple[float, float, float]:
    """(x - h, x + h, the distance between the two as stored), h = step max(1, |x|)."""
    h = step * max(1.0, abs(x))
    minus, plus = x - h, x + h
    return minus, plus, plus - minus


def difference(local: LocalPicture, group: str, component: int, step: float) -> tuple[float, float, dict[str, int]]:
    """(central difference of the rendered loss, the step taken, kinks between the two sides)."""
    low, high, taken = sides(local.entry(group, component), step)
    minus, plus = local.evaluate(group, component, low), local.evaluate(group, component, high)
    return _quotient(plus.value, minus.value, taken), taken, kinks_between(local, minus, plus, group)


def frozen_difference(frozen: FrozenGaussian, group: str, component: int, step: float) -> float:
    """The same with every decision held as at x."""
    low, high, taken = sides(frozen.local.entry(group, component), step)
    return _quotient(frozen.value(group, component, high), frozen.value(group, component, low), taken)


def _quotient(plus: float, minus: float, taken: float) -> float:
    return (plus - minus) / taken if taken > 0 else math.nan   # a step that rounds away says nothing


def persevere(work: Callable[[], T], text: str) -> Generator[Progress, None, T]:
    """The result of work that may be given up for somebody who waits for the thread; it is done again in a later turn."""
    while True:
        try:
            return work()
        except interrupt.Interrupted:
            yield 0.0, text


def gradient_check(problem: Problem, indices: Sequence[int], options: CheckOptions
                   ) -> Generator[Progress, None, GradientReport]:
    """A job to be advanced turn by turn: yields (share done, what is being done), returns the report.

    `indices` are rows of the Gaussians to check; those that the view does not show are reported as unseen. A turn takes
    milliseconds, but for the first ones, which are one training step. Nothing may change the problem while it runs.
    """
    begun = time.monotonic()
    yield 0.0, f"analytic gradient, {options.backend}, {options.dtype}"
    analytic = yield from persevere(lambda: analytic_gradients(problem, options.backend, DTYPES[options.dtype]), "gradient")
    yield 0.0, "the picture in float64"
    exact = in_float64(problem)
    base = yield from persevere(lambda: base_picture(exact), "picture")
    seen = [i for i in indices if float(base.output.projected.extents[i, 0]) > 0]
    groups = tuple(g for g in options.parameters if g != "shN" or problem.sh_degree > 0)
    options = CheckOptions(options.backend, options.dtype, groups, options.step, options.sweep)
    check = _Check(exact, options, base, analytic)
    total = max(1, len(seen) * sum(check.components(g) for g in groups))
    for number, index in enumerate(seen, start=1):
        for _ in check.gaussian(index):
            yield round(0.95 * len(check.entries) / total, 3), f"Gaussian {number} of {len(seen)}"
    sweeps = []
    for group in groups if options.sweep else ():
        work = check.sweep(group)
        found: Sweep | None = None
        while True:
            try:
                next(work)
            except StopIteration as end:
                found = end.value
                break
            yield 0.95, f"U-curve of {group}"
        if found is not None:
            sweeps.append(found)
    return _report(check, indices, seen, tuple(sweeps), time.monotonic() - begun)


def _report(check: _Check, indices: Sequence[int], seen: Sequence[int], sweeps: tuple[Sweep, ...], seconds: float
            ) -> GradientReport:
    problem, options = check.problem, check.options
    uids = problem.params.uids.tolist()
    parameters = tuple(judge(group, [e for e in check.entries if e.parameter == group], options.dtype)
                       for group in options.parameters if seen)
    notes = [f"{p.parameter}: {p.straight_through} entries differ from finite differences because of straight-through at "
             "clamped pixels; they are judged by the reference's analytic gradient of the same mode."
             for p in parameters if p.straight_through]
    if problem.sh_degree == 0:
        notes.append("shN is not checked: the SH degree in use is 0.")
    return GradientReport(
        view=problem.view, width=problem.camera.width, height=problem.camera.height, loss=problem.loss_name,
        backend=options.backend, dtype=options.dtype, alpha_gradient=problem.raster.alpha_gradient,
        sh_degree=problem.sh_degree, gaussians=tuple(uids[i] for i in seen),
        unseen=tuple(uids[i] for i in indices if i not in set(seen)), parameters=parameters,
        entries=tuple(check.entries), sweeps=sweeps, notes=tuple(notes), seconds=seconds)


def finished(job: Generator[Progress, None, T], progress: Callable[[float, str], None] | None = None) -> T:
    """The whole job at once."""
    while True:
        try:
            news = next(job)
        except StopIteration as end:
            return end.value
        if progress is not None:
            progress(*news)
