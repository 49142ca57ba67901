"""`splatscope audit module:function`: is somebody else's differentiable rasterizer right, and by which rules does it draw?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from app.commands.errors import UsageError, check_output, say
from render.config import setting


@dataclass(frozen=True)
class AuditArgs:
    """Audit a rasterizer."""

    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODULE:FUNCTION")] = setting(
        "", "The function render(means, quats, scales, opacities, sh, viewmat, K, width, height, background), which returns "
        "the image [H,W,3]; or a shipped one: cpu, reference, plain, gsplat, diff_gaussian_rasterization.")
    json: bool = setting(False, "Print one JSON object instead of text.")
    report: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Write the JSON object to this file too, in place "
                                                                        "of an older one.")
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = setting("", "Write images, error maps and bars to this PNG, in "
                                                                     "place of an older one.")
    scene: Annotated[str, tyro.conf.arg(metavar="SCENE_OR_RUN")] = setting(
        "", "Compare on this scene, training run or splat PLY as well.")
    dtype: Literal["auto", "float64", "float32"] = setting(
        "auto", "Type of the tensors: auto takes float64 where the function does.")
    speed: bool = setting(False, "Measure how long forward and backward take.")
    narrow: bool = setting(False, "The text in one column, for narrow windows.")


def run(args: AuditArgs) -> int:
    """0 without a fault, 1 with one, 2 with one sentence where the audit could not run."""
    if not args.target:
        raise UsageError("splatscope audit needs a rasterizer: splatscope audit module:function, or splatscope audit cpu.")
    for flag, path in (("report", args.report), ("png", args.png)):
        if path:
            check_output(flag, path)

    # the slow imports come after the flags are known to be right
    from app.inspection.audit.own_scene import own_scene
    from app.inspection.audit.report import as_json, as_text
    from app.inspection.audit.run import audit
    from app.inspection.audit.types import AuditError

    own, notes = [], []
    if args.scene:
        probe, notes = own_scene(args.scene)
        own.append(probe)
    try:
        with redirect_stdout(sys.stderr):   # whatever the rasterizer prints is no part of the report
            report = audit(args.target, dtype=None if args.dtype == "auto" else args.dtype, scenes=tuple(own), speed=args.speed)
    except AuditError as error:
        say(str(error))
        return 2
    report.notes += notes
    print(as_json(report) if args.json else as_text(report, args.narrow))
    if args.report:
        from app.data.atomic import write_atomic

        write_atomic(Path(args.report).expanduser(), lambda stream: stream.write((as_json(report) + "\n").encode("utf-8")))
    if args.png:
        from app.inspection.audit.picture import save_png

        save_png(report, Path(args.png).expanduser())
    return report.exit_code
