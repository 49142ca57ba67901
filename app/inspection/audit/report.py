"""The report for people and for programs."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from app.inspection.audit.types import PARAMETERS, Comparison, Report, number

LONGEST_NAME = 24
"""Letters of a scene's name that fit the table."""


def to_json(report: Report) -> dict[str, Any]:
    """Everything, JSON-ready: faults, modes by their own names, errors of each scene. null = could not be measured, or
    for alpha_max, footprint_sigmas: there is no such limit."""
    return {
        "target": report.target, "dtype": report.dtype, "device": report.device, "precision": report.precision,
        "faults": [fault.to_json() for fault in report.faults],
        "gradient_mode": report.gradient_mode, **report.modes,
        "image_tolerance": number(report.image_tolerance), "gradient_tolerance": number(report.gradient_tolerance),
        "scenes": [{"name": c.name, "gaussians": c.gaussians, "width": c.width, "height": c.height,
                    "image_error": number(c.image_error),
                    "gradient_errors": {name: number(e) for name, e in c.gradient_errors.items()},
                    "set_aside": number(c.set_aside)} for c in report.comparisons],
        "speed": [{**vars(s), "forward_ms": number(s.forward_ms), "backward_ms": number(s.backward_ms)} for s in report.speed],
        "notes": report.notes,
    }


def as_json(report: Report) -> str:
    return json.dumps(to_json(report), indent=1)


NARROW = 44   # characters of a line in a narrow window


def as_text(report: Report, narrow: bool = False) -> str:
    """The report for a terminal, or, `narrow`, for a panel of NARROW characters."""
    single = f" (computes in {report.precision})" if report.precision != report.dtype else ""
    lines = [f"{report.target}: {report.dtype} on {report.device}{single}", "", *_rules(report, narrow), "",
             *(_narrow_errors(report) if narrow else _errors(report))]
    if report.speed:
        lines += ["", f"{'speed':<24}{'forward ms':>12}{'backward ms':>13}"]
        lines += [f"{f'{s.gaussians:,} in {s.width}x{s.height}':<24}{s.forward_ms:>12.1f}{s.backward_ms:>13.1f}"
                  for s in report.speed]
    def wrapped(text: str, indent: str = "") -> list[str]:
        return textwrap.wrap(text, NARROW, initial_indent=indent, subsequent_indent=indent) if narrow else [indent + text]

    lines += ["", *(line for note in report.notes for line in wrapped(f"! {note}"))] if report.notes else []
    if not report.faults:
        return "\n".join([*lines, "", "No fault was found."])
    lines += ["", "1 fault:" if len(report.faults) == 1 else f"{len(report.faults)} faults:"]
    for fault in report.faults:
        lines += wrapped(f"{fault.id} ({fault.parameter}, relative error {fault.relative_error:.2g})", "  ")
        lines += wrapped(fault.explanation, "      ")
    return "\n".join(lines)


def _rules(report: Report, narrow: bool) -> list[str]:
    """Label and value of each mode, two columns or one."""
    modes = report.modes

    def said(name: str, none: str = "not measured") -> str:
        value = modes.get(name)
        return none if value is None else ("yes" if value else "no") if isinstance(value, bool) else (
            f"{value:.6g}" if isinstance(value, float) else str(value))

    clamped = report.gradient_mode != "unknown"
    cutoff = modes.get("cutoff")
    rows = [
        ("alpha max", said("alpha_max", "none" if clamped else "not measured")), ("gradient mode", report.gradient_mode),
        ("cutoff", "1/255" if cutoff == 1 / 255 else "none" if cutoff == 0 else said("cutoff")),
        ("smooth cutoff", said("smooth_cutoff")),
        ("transmittance min", "none" if modes.get("transmittance_min") == 0 else said("transmittance_min")),
        ("stop rule", said("stop_rule", "none" if modes.get("transmittance_min") == 0 else "not measured")),
        ("low-pass eps2d", said("eps2d") + (" px^2" if modes.get("eps2d") is not None else "")),
        ("antialiased", said("antialiased")),
        ("footprint ends", said("footprint_sigmas", "at the cutoff") + (" sigma" if modes.get("footprint_sigmas") else "")),
        ("sorted by", said("sort_key")), ("depth ties", said("depth_ties")),
        ("normalises quats", said("quats_normalized")), ("SH degree", said("sh_degree")),
        ("colour clamp", {"zero": "max(0, .)", "unit": "to [0, 1]", "none": "none"}.get(str(modes.get("color_clamp")), "?")),
        ("nearest depth drawn", said("nearest_depth_drawn")), ("background gradient", said("background_gradient")),
    ]
    if narrow:
        return ["rules, measured", *(f"  {label:<21}{value}" for label, value in rows)]
    half = (len(rows) + 1) // 2
    lines = ["rules, measured"]
    for i in range(half):
        left, right = rows[i], rows[i + half] if i + half < len(rows) else ("", "")
        lines.append(f"  {left[0]:<18}{left[1]:<38}{right[0]:<21}{right[1]}".rstrip())
    return lines


def _errors(report: Report) -> list[str]:
    """Relative errors, a scene a row."""
    width = max(20, *(len(_label(c)) + 2 for c in report.comparisons)) if report.comparisons else 20
    header = "".join(f"{name:>12}" for name in ("image", *PARAMETERS))
    lines = [f"{'max relative error':<{width}}{header}"]
    for c in report.comparisons:
        cells = [_cell(c.image_error, report.image_tolerance)]
        cells += [_cell(c.gradient_errors[name], report.gradient_tolerance) for name in PARAMETERS]
        lines.append(f"{_label(c):<{width}}" + "".join(f"{cell:>12}" for cell in cells))
    allowed = f"allowed: image {report.image_tolerance:.0e}, gradients {report.gradient_tolerance:.0e}"
    aside = max((c.set_aside for c in report.comparisons), default=0.0)
    return [*lines, allowed + (f"; up to {100 * aside:.1f} % of a picture was set aside, where rounding decides"
                               if aside > 0 else "") + ("; * = above" if any("*" in line for line in lines) else "")]


def _narrow_errors(report: Report) -> list[str]:
    """Relative errors, a parameter a row, a block of them for each scene."""
    lines = ["max relative error"]
    for c in report.comparisons:
        lines.append(f"  {_label(c)}")
        cells = {"image": _cell(c.image_error, report.image_tolerance)} | {
            name: _cell(c.gradient_errors[name], report.gradient_tolerance) for name in PARAMETERS}
        named = [f"{name:<11}{cell:>8}" for name, cell in cells.items()]
        lines += [f"    {'  '.join(named[i:i + 2])}" for i in range(0, len(named), 2)]
    return [*lines, f"  allowed: image {report.image_tolerance:.0e}, gradients {report.gradient_tolerance:.0e}"]


def _label(c: Comparison) -> str:
    name = c.name if len(c.name) <= LONGEST_NAME else c.name[:LONGEST_NAME - 3] + "..."
    return f"{name}, {c.gaussians} in {c.width}x{c.height}"


def _cell(error: float | None, allowed: float) -> str:
    return "none" if error is None else f"{error:.1e}" + ("*" if error > allowed else "")
