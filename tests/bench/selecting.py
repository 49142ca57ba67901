"""How long the window waits for its selection: python -m tests.bench.selecting [Gaussians]. Prints ms per command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.data.scene import Scene
from app.engine import commands
from app.engine.drawn import drawn, outlines, tinted
from app.engine.loop import Engine
from app.engine.model import Model
from app.inspection.quantities import histogram, summary, table
from app.inspection.questions import HistogramQuestion, Sight, SummaryQuestion, TableQuestion
from app.training.trainer import Trainer
from render.backends import cpu
from render.types import Camera
from tests.training.tiny import make_params, make_scene, ring


def timed(name: str, action: Callable[[], object], repeats: int = 5) -> None:
    """The median of some runs, and the best: on a machine with other work they differ. The first warms up."""
    action()
    spent = []
    for _ in range(repeats):
        begun = time.perf_counter()
        action()
        spent.append(1e3 * (time.perf_counter() - begun))
    print(f"{name:44} {np.median(spent):8.1f} ms  best {min(spent):8.1f} ms")


def trained(count: int) -> Model:
    """A trainer with so many small Gaussians, one step on."""
    scene: Scene = make_scene(4, 40, size=256, points=60)
    params = make_params(count, scale=0.15 * (40 / count) ** (1 / 3), sh_degree=3, opacity=0.3)
    trainer = Trainer(scene, TrainConfig(iterations=1000, densify=DensifyConfig(strategy="none")), backend="cpu", params=params)
    trainer.step()
    return Model("bench", trainer, scene)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    half, threads = count // 2, 2
    torch.set_num_threads(threads)
    cpu.set_threads(threads)
    engine = Engine()
    engine.model = model = trained(count)
    camera: Camera = ring(1, 960, 540)[0]
    request = m.ViewRequest(camera)
    engine.viewer.request = request
    whole = np.array([[0.0, 0.0], [960.0, 0.0], [960.0, 540.0], [0.0, 540.0]])
    angle = np.linspace(0, 2 * np.pi, 300)
    lasso = np.stack([480 + 260 * np.cos(angle), 270 + 250 * np.sin(angle)], axis=1)

    def send(command: m.Command) -> Callable[[], None]:
        return lambda: commands.handle(engine, command)

    print(f"{count:,} Gaussians, {threads} threads, half of them selected where one speaks of the selection\n")
    timed("rectangle over all", send(m.SelectRegion(camera, whole)))
    print(f"    selected: {int(engine.selection.mask().sum()):,}")
    timed("lasso of 300 points", send(m.SelectRegion(camera, lasso)))
    timed("brush stroke of 300 points", send(m.SelectRegion(camera, lasso, 20.0)))
    timed("range of values", send(m.SelectRange("opacity", 0.0, 1.0)))
    timed("all, then invert", lambda: (send(m.SelectMore("all"))(), send(m.SelectMore("invert"))()))
    timed("a click", send(m.Select(camera, 480, 270)))
    mask = np.arange(count) < half
    model.set_mark("mark.selected", mask)
    timed("freeze, unfreeze", lambda: (send(m.Operate("freeze"))(), send(m.Operate("unfreeze"))()))
    timed("hide, show all", lambda: (send(m.Operate("hide"))(), send(m.Operate("show_all"))()))
    timed("undo and redo of one of these", lambda: (send(m.Undo())(), send(m.Redo())()))
    timed("delete and undo", lambda: (send(m.Operate("delete"))(), send(m.Undo())()))
    timed("grow", lambda: (send(m.SelectMore("grow"))(), send(m.Undo())()), 2)
    model.set_mark("mark.selected", mask)
    timed("counts for the snapshot", engine.selection.state)
    timed("outlines of the frame (none: too many)", lambda: outlines(model, request))
    plain = model.render(camera)
    picture = plain.colors.numpy()
    timed("the picture without a selection, 960x540", lambda: model.render(camera))
    timed("the tint over it", lambda: tinted(model, picture, drawn(model, request), camera, numbers_shown=False))
    sight = Sight.of(camera)

    def fresh(action: Callable[[], object]) -> Callable[[], object]:
        return lambda: (model.moved(), model.gaussians(), action())

    timed("instrument: histogram", fresh(lambda: histogram(model, HistogramQuestion("mean2d_grad_average"))))
    timed("instrument: table", fresh(lambda: table(model, TableQuestion("mean2d_grad_average", ("opacity", "largest_scale")))))
    timed("instrument: card of the selection", fresh(lambda: summary(model, SummaryQuestion(
        ("opacity", "largest_scale", "age", "mean2d_grad_average", "means_grad", "adam_means"), sight))))
    timed("quantity: contribution, 960x540", fresh(lambda: model.reading("contribution", camera)), 3)


if __name__ == "__main__":
    main()
