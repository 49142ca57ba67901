"""`splatscope gradcheck SCENE_OR_RUN`: central differences against the gradient that training uses, on the user's scene."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from app.commands.errors import UsageError, check_output
from app.commands.train import MOST_THREADS, require_threads
from app.config import TrainConfig
from app.data.scene import SceneError
from render.config import Backend, Loss, RasterConfig, setting
from render.types import PARAM_GROUPS

if TYPE_CHECKING:
    from app.inspection.gradcheck_results import GradientReport, ParameterReport


@dataclass(frozen=True)
class GradcheckArgs:
    """Check gradients by central differences in float64."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SCENE_OR_RUN")] = setting(
        "", "Folder of a scene, whose first Gaussians are perturbed by the seed, or of a run, or a Gaussian PLY of one.")
    gaussians: int = setting(50, "Visible Gaussians to check, drawn by the seed.")
    seed: int = setting(0, "Seed of the perturbation, of the choice and of a random cotangent.")
    report: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Also write everything that was found as JSON, "
                                                                        "in place of an older file.")
    backend: Backend = setting("auto", "Whose gradient is checked: auto takes the fastest that runs here.")
    dtype: Literal["float64", "float32"] = setting(
        "float64", "Precision of the gradient that is checked; training uses float32. Differences are always float64.")
    view: str = setting("", "Name or number of the view; otherwise the first training view.")
    parameters: tuple[str, ...] = setting((), f"Only these of {', '.join(PARAM_GROUPS)}.")
    resolution: Annotated[int, tyro.conf.arg(aliases=["-r"])] = setting(
        -1, "1, 2, 4 or 8 divides the size of the images, more is a width in px; -1 = at most 1600 px wide.")
    photographs: str = setting("", "Folder of the scene that a run was trained on, for its photographs.")
    cotangent: bool = setting(False, "A fixed random cotangent of the picture instead of the training loss.")
    loss: Loss = setting("l1_ssim", "Training loss.")
    lambda_dssim: float = setting(0.2, "Weight of 1-SSIM in the loss; the rest is L1.")
    white_background: bool = setting(False, "White instead of black background.")
    sh_degree: int = setting(3, "Highest spherical-harmonics degree.")
    sweep: bool = setting(False, "Also the U-curve of each parameter: the error over the step h, with its two slopes.")
    threads: int = setting(0, "CPU threads; 0 = all.", lo=0, hi=MOST_THREADS)
    quiet: bool = setting(False, "No progress and no table; the exit code says it.")
    raster: RasterConfig = field(default_factory=RasterConfig)


def run(args: GradcheckArgs) -> int:
    """0 when every parameter is all right, 1 when one fails. SceneError and UsageError mean that it could not run."""
    if not args.source:
        raise UsageError("splatscope gradcheck needs a scene or a run: splatscope gradcheck SCENE_OR_RUN.")
    if args.gaussians < 1:
        raise UsageError(f"--gaussians is {args.gaussians}; it must be at least 1.")
    if args.seed < 0:
        raise UsageError(f"--seed is {args.seed}; it must be at least 0.")
    require_threads(args.threads)
    unknown = [name for name in args.parameters if name not in PARAM_GROUPS]
    if unknown:
        raise UsageError(f"--parameters {unknown[0]} is no parameter; choose of {', '.join(PARAM_GROUPS)}.")
    if not 0 <= args.sh_degree <= 3:
        raise UsageError(f"--sh_degree is {args.sh_degree}; choose 0, 1, 2 or 3.")
    if args.report:
        check_output("report", args.report)
    report, notes = _check(args)
    if not report.parameters:
        raise UsageError(f"Nothing was checked: {' '.join(report.notes) or 'choose parameters that are in use.'}")
    if args.report:
        _write(report, args, notes)
    if not args.quiet:
        print("\n".join([*notes, "", *table(report)]))
    return 0 if report.ok else 1


def _check(args: GradcheckArgs) -> tuple[GradientReport, list[str]]:
    from app.inspection.gradcheck import CheckOptions, finished, gradient_check
    from app.inspection.subject import choose_visible, open_subject
    from app.training.backend import ready_backend, set_threads, usable_cores

    try:
        config = TrainConfig(loss=args.loss, lambda_dssim=args.lambda_dssim, white_background=args.white_background,
                             sh_degree=args.sh_degree, raster=args.raster)
        ready = ready_backend(args.backend)
    except ValueError as error:
        raise SceneError(str(error)) from None
    set_threads(args.threads or usable_cores(), ready.name)
    subject = open_subject(args.source, config, view=args.view, resolution=args.resolution, photographs=args.photographs,
                           cotangent=args.cotangent, seed=args.seed)
    indices = choose_visible(subject.problem, args.gaussians, args.seed)
    options = CheckOptions(backend=ready.name, dtype=args.dtype,
                           parameters=tuple(dict.fromkeys(args.parameters)) or PARAM_GROUPS, sweep=args.sweep)
    shown = None if args.quiet or not sys.stderr.isatty() else _progress
    report = finished(gradient_check(subject.problem, indices, options), shown)
    if shown:
        print("\r" + " " * 78 + "\r", end="", file=sys.stderr)
    return report, ([ready.sentence] if ready.sentence else []) + subject.notes


def _progress(fraction: float, text: str) -> None:
    print(f"\r{fraction:4.0%} {text:<70}", end="", file=sys.stderr, flush=True)


def _write(report: GradientReport, args: GradcheckArgs, notes: list[str]) -> None:
    from app.data.atomic import write_atomic

    values = {"source": args.source, "seed": args.seed, "notes_on_input": notes, **report.to_json()}
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    write_atomic(Path(args.report).expanduser(), lambda stream: stream.write(text.encode()))


def table(report: GradientReport) -> list[str]:
    """The report for people: a line per parameter, then what needs saying."""
    lines = [f"{report.backend}, {report.dtype}, alpha gradient {report.alpha_gradient}, SH degree {report.sh_degree}: "
             f"{len(report.gaussians)} Gaussians in {report.view}, {report.width}x{report.height} px, "
             f"{'a random cotangent' if report.loss == 'cotangent' else report.loss}, {report.seconds:.1f} s", ""]
    lines.append(f"{'parameter':<16}{'checked':>13}{'max error':>11}{'median':>10}{'frozen':>10}  verdict")
    for row in report.parameters:
        checked = f"{row.checked} of {row.entries}"
        lines.append(f"{row.parameter:<16}{checked:>13}{_number(row.max_error):>11}{_number(row.median_error):>10}"
                     f"{_number(row.max_rechecked_error):>10}  {_verdict(row)}")
    kinked = {name: count for row in report.parameters for name, count in row.kinks.items()}
    if kinked:
        from app.inspection.gradcheck_results import KINKS

        lines += ["", "Entries with a kink between x - h and x + h, checked with smaller h and with masks and order frozen:"]
        lines += [f"  {name}: {sum(row.kinks.get(name, 0) for row in report.parameters)} ({meaning})"
                  for name, meaning in KINKS.items() if name in kinked]
    if report.sweeps:
        lines += ["", "U-curves, error over step with everything frozen (truncation ~ h^2, rounding ~ 1/h):"]
        lines += [f"  {s.parameter}[{s.component}] of {s.uid}: slopes {_slope(s.truncation_slope)} and "
                  f"{_slope(s.rounding_slope)}, least error {np_min(s.frozen):.1e} at h = {s.best_step:.1e}"
                  for s in report.sweeps]
    lines += ["", *report.notes] if report.notes else []
    failed = [row.parameter for row in report.parameters if not row.ok]
    lines += ["", f"Gradients disagree: {', '.join(failed)}." if failed else "All gradients agree."]
    return lines


def np_min(values) -> float:
    return float(min(v for v in values if math.isfinite(v)))


def _verdict(row: ParameterReport) -> str:
    if row.ok:
        return "ok"
    at = f"; worst: component {row.worst.component} of Gaussian {row.worst.uid}, {row.worst.analytic:.6g} " \
         f"instead of {row.worst.expected:.6g}" if row.worst is not None else ""
    return f"FAILS: {row.problem}{at}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}"


def _slope(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.2f}"
