"""Pictures and tables that leave the engine: a view with its legend as a PNG, the loss of every view."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.colormaps import colorize
from app.data.atomic import write_atomic
from app.data.scene import SceneError
from app.engine.jobs import Job, Refused, Work
from app.engine.view import alike, in_colours_of, right_of
from app.inspection.losses import ViewLoss
from app.messages import Legend, MeasureViews, SavePicture, ViewRequest, ViewsMeasured
from app.training.marks import MARKS
from render import interrupt

if TYPE_CHECKING:
    from PIL.Image import Image

    from app.engine.loop import Engine

MEASURING = "losses"
LARGEST_SIDE = 8192
STRIP = 46          # px of the legend below a picture
TEXT = 13
TICKS = 5


# ---------------------------------------------------------------- a picture


def save_picture(engine: Engine, command: SavePicture) -> None:
    """Draw a request anew, whole, and write it with its legend."""
    camera = command.request.camera if engine.model is not None else None
    if camera is None:
        engine.notice("There is nothing to save; open a scene first.", "warning")
    elif not 1 <= min(camera.width, camera.height) <= max(camera.width, camera.height) <= LARGEST_SIDE:
        engine.notice(f"A picture may be at most {LARGEST_SIDE} px wide and high; choose a smaller one.", "error")
    else:
        engine.jobs.add(Job("picture", _save_picture(engine, command), exclusive=False))


def _save_picture(engine: Engine, command: SavePicture) -> Work:
    from app.engine.drawing import Bites, coloured, in_bites
    from app.engine.frozen_model import freeze
    from app.engine.photographs import Photographs

    if engine.model is None:
        raise Refused("The scene is gone, so its picture is not saved.")
    path = Path(command.path).expanduser()
    if path.is_dir():
        raise SceneError(f"{path} is a folder; name a file that ends in .png")
    request, camera, photographs = as_shown(engine, command.request), command.request.camera, Photographs()
    left_of, right_of = engine.timeline.looks.models(request)
    frozen = freeze(left_of, [request], MARKS)   # training goes on while it is drawn
    models = [frozen, frozen if right_of is left_of else freeze(right_of, [request], MARKS)]
    parts, legends, notes = [], [], []
    for part, left, width in halves(request):
        model = models[part is not request]
        part = alike(request, legends[0], part) if legends else part
        found = yield from coloured(model, [part], photographs)
        parts.append((model, found.of(part), left, width))
        legends += [found.legend] if found.legend is not None else []
        notes += [found.note] if found.note and found.note not in notes else []
    pixels = np.empty((camera.height, camera.width, 3), np.uint8)
    done = 0.0
    for model, part, left, width in parts:
        for share in in_bites(model, [(part, left, width)], camera, photographs, Bites(), pixels):
            yield None if share is None else (0.9 * (done + share), f"{camera.width} x {camera.height} px")
        done += width / camera.width

    def write(report) -> None:
        data = io.BytesIO()
        with_legend(pixels, *legends).save(data, "PNG")
        write_atomic(path, lambda stream: stream.write(data.getvalue()))

    yield from engine.background(write, "picture").wait((0.9, 0.1))
    engine.notice(" ".join([f"Saved {path.absolute()}.", *notes[:1]]))


def as_shown(engine: Engine, request: ViewRequest) -> ViewRequest:
    """In the colours of the window, where that shows the same quantity and the request leaves them open."""
    frame = engine.viewer.frame
    if frame is not None and frame.legend is not None and request.value_range is None and frame.request is not None \
            and (frame.request.mode, frame.request.quantity) == (request.mode, request.quantity):
        return in_colours_of(request, frame.legend)
    return request


def halves(request: ViewRequest) -> list[tuple[ViewRequest, int, int]]:
    """(request, left, width) of the picture's parts: one, or two modes beside each other."""
    width = request.camera.width
    if request.beside is None:
        return [(request, 0, width)]
    column = min(max(round(request.beside.share * width), 0), width)
    return [part for part in ((request, 0, column), (right_of(request), column, width - column)) if part[2] > 0]


def with_legend(rgb: np.ndarray, *legends: Legend) -> Image:
    """rgb [H,W,3], uint8 or in [0,1], below it a colour bar with its numbers for each legend."""
    from PIL import Image as images

    from app.engine.drawing import to_bytes

    picture = images.fromarray(rgb if rgb.dtype == np.uint8 else to_bytes(rgb))
    whole = images.new("RGB", (picture.width, picture.height + STRIP * len(legends)), (14, 16, 19))
    whole.paste(picture, (0, 0))
    for place, legend in enumerate(legends):
        _draw_legend(whole, picture.height + STRIP * place, legend)
    return whole


def _draw_legend(whole: Image, top: int, legend: Legend) -> None:
    from PIL import Image as images
    from PIL import ImageDraw, ImageFont

    from app.fonts import font_folder

    draw = ImageDraw.Draw(whole)
    font = ImageFont.truetype(str(font_folder() / "DejaVuSans.ttf"), TEXT)
    title = f"{legend.label}{f'  [{legend.unit}]' if legend.unit else ''}{'  log' if legend.log else ''}"
    if legend.entries:
        _draw_entries(draw, font, top, title, legend)
        return
    margin, bar = 10, max(80, min(300, whole.width // 2))
    shares = np.linspace(0.0, 1.0, bar)
    values = _at(legend, shares)
    strip = (colorize(values, legend.colormap, legend.lo, legend.hi, legend.log)[None].repeat(10, 0) * 255).astype(np.uint8)
    whole.paste(images.fromarray(strip), (margin, top + 8))
    for share in np.linspace(0.0, 1.0, TICKS if bar >= 250 else 3):
        text = f"{float(_at(legend, np.array([share]))[0]):.3g}"
        x = margin + share * (bar - 1)
        width = draw.textlength(text, font=font)
        draw.text((min(max(x - width / 2, 2), margin + bar - width), top + 22), text, fill=(217, 222, 230), font=font)
    draw.text((margin + bar + 12, top + 5), title, fill=(217, 222, 230), font=font)


def _draw_entries(draw: Any, font: Any, top: int, title: str, legend: Legend) -> None:
    """A square of each colour with its name and how many there are, in a row."""
    x = 10.0
    for name, color, count in legend.entries:
        draw.rectangle((x, top + 9, x + 10, top + 19), fill=tuple(round(255 * c) for c in color))
        text = f"{name} {count:,}"
        draw.text((x + 15, top + 5), text, fill=(217, 222, 230), font=font)
        x += 15 + draw.textlength(text, font=font) + 16
    draw.text((10, top + 24), title, fill=(217, 222, 230), font=font)


def _at(legend: Legend, shares: np.ndarray) -> np.ndarray:
    if legend.log:
        return 10.0 ** (np.log10(legend.lo) + shares * (np.log10(legend.hi) - np.log10(legend.lo)))
    return legend.lo + shares * (legend.hi - legend.lo)


# ---------------------------------------------------------------- the loss of every view


def measure_views(engine: Engine, command: MeasureViews) -> None:
    """Answers with ViewsMeasured."""
    if engine.model is None or engine.model.trainer is None or engine.model.scene is None:
        engine.notice("There are no photographs to compare with; open a scene folder first.", "warning")
    elif not engine.jobs.has(MEASURING):
        engine.jobs.add(Job(MEASURING, _measure(engine)))


def _measure(engine: Engine) -> Work:
    from app.training.verdict import psnr_of
    from app.training.views import load_target
    from render.stages.ssim import photometric_loss

    engine.steps.settle()
    model = engine.model
    if model is None or model.trainer is None or model.scene is None:
        raise Refused("The run is gone, so there are no views to measure.")
    trainer, views = model.trainer, model.scene.views
    rows: list[ViewLoss] = []
    while len(rows) < len(views):
        view = views[len(rows)]
        yield len(rows) / len(views), view.name
        view.load()   # decoding has a turn of its own
        yield (len(rows) + 0.5) / len(views), view.name
        try:
            with interrupt.interruptible():
                image, target = trainer.render(view.camera).colors, load_target(view, trainer.background)
                loss, terms = photometric_loss(image, target, kind=trainer.config.loss,
                                               lambda_dssim=trainer.config.lambda_dssim, backend=trainer.backend)
                _, clamped = photometric_loss(image.clamp(0.0, 1.0), target, kind="l1_ssim", lambda_dssim=0.2,
                                              backend=trainer.backend)
                l1, _, ssim = terms.tolist()
                rows.append(ViewLoss(len(rows), view.name, view.split, float(loss), l1, psnr_of(float(clamped[1])), ssim))
        except interrupt.Interrupted:   # somebody waits for the thread; the view is measured in the next turn
            yield None
    engine.emit(ViewsMeasured(trainer.iteration, tuple(rows)))
