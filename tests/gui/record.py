"""`python -m tests.gui.record FOLDER`: opens the demo, uses each tool by mouse and keys, and keeps a picture of it.

About a minute, on a display of its own (Xvfb). The README's pictures are made by this.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import ImageGrab

from tests.gui.conftest import Window
from tests.gui.test_camera_path import drag
from tests.gui.test_laboratory import START, open_tab, press
from tests.gui.test_timeline import spot

SIZE = (1280, 720)
QUALITY = 88   # of the JPEGs, colours at full resolution so that text stays sharp


def panel(name: str) -> str:
    return f"next(p for n, p in shell._tabs.values() if n == {name!r})"


class Recorder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = tempfile.TemporaryDirectory()
        self.window = Window(Path(self._scratch.name), demo=True)

    def keep(self, name: str) -> None:
        """The window as it is on the screen, the pointer out of the way."""
        self.window.point(SIZE[0] // 2, SIZE[1] - 6)
        self.window.frames(30)
        assert self.window.display is not None
        shot = ImageGrab.grab(xdisplay=self.window.display.name).convert("RGB").crop((0, 0, *SIZE))
        path = self.folder / f"{name}.jpg"
        shot.save(path, quality=QUALITY, subsampling=0, optimize=True)
        print(f"{path.name} {path.stat().st_size // 1024} KiB", flush=True)

    def spot(self, x: float, y: float) -> tuple[float, float]:
        """Screen px of a place in the picture, as shares of its width and height."""
        fit = self.window.get("[shell.viewport.fit.x, shell.viewport.fit.y, shell.viewport.fit.shown_width, "
                              "shell.viewport.fit.shown_height]")
        left, top = self.window.get("dpg.get_item_rect_min(shell.viewport.canvas)")
        return left + fit[0] + x * fit[2], top + fit[1] + y * fit[3]

    def close(self) -> int:
        code = self.window.close()
        self._scratch.cleanup()
        return code


def record(folder: Path) -> int:
    r = Recorder(folder)
    window = r.window
    window.run("from app.messages import SetOption; engine.commands.put(SetOption('densify.strategy', 'adc'))")
    window.peek_for("shell.model.snapshot.iteration > 1250", START)
    open_tab(window, "densify")
    r.keep("window")
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")
    window.run("shell.preferences.axes = False")

    window.run("shell.view.set_beside('truth')")
    open_tab(window, "views")
    press(window, "Measure now")
    window.wait_for("shell.model.measured is not None")
    r.keep("split")

    window.run("shell.view.set_beside(None)")
    open_tab(window, "numbers")
    window.input("key", "9")
    window.wait_for("shell.model.frame.mode == 'heatmap'")
    r.keep("heatmap")
    window.input("key", "1")

    open_tab(window, "xray")
    window.point(*r.spot(0.62, 0.35))
    window.frames(10)
    window.input("key", "k")
    window.wait_for("'xray' in shell.model.snapshot.answers and shell.model.snapshot.answers['xray'].value is not None")
    r.keep("xray")
    window.input("key", "k")

    open_tab(window, "gaussian")
    window.click(*r.spot(0.62, 0.35))
    window.wait_for("shell.model.snapshot.selected is not None")
    r.keep("gaussian")

    open_tab(window, "select")
    window.input("key", "t")   # a lasso around the vase
    corners = [(0.52, 0.25), (0.74, 0.25), (0.76, 0.62), (0.5, 0.62), (0.5, 0.3)]
    window.point(*r.spot(*corners[0]))
    window.input("mousedown", 1)
    window.frames(2)
    for corner in corners[1:]:
        window.point(*r.spot(*corner))
    window.input("mouseup", 1)
    window.wait_for("shell.model.snapshot.selection.selected > 3")
    r.keep("select")
    window.input("key", "v")
    window.input("key", "Escape")

    open_tab(window, "lab")
    press(window, "Compare on this view")
    window.wait_for("shell.model.comparison is not None")
    r.keep("lab")
    open_tab(window, "check")
    window.click(*window.middle(f"{panel('check')}.check"))
    window.peek_for("shell.model.checked is not None", 150)
    r.keep("check")
    open_tab(window, "audit")
    window.run(f"dpg.set_value({panel('audit')}.target, 'plain')")
    window.click(*window.middle(f"{panel('audit')}.go"))
    window.peek_for("shell.model.audited is not None", 150)
    r.keep("audit")
    control_room(r)
    return r.close()


def control_room(r: Recorder) -> None:
    """The run is paused."""
    window = r.window
    open_tab(window, "densify")
    window.click(*window.middle(f"{panel('densify')}.preview.toggle"))
    window.wait_for("shell.model.frame.mode == 'candidates'")
    r.keep("densify")
    window.input("key", "1")

    open_tab(window, "control")
    press(window, "2  Backward")
    window.wait_for("shell.model.snapshot.steering.phase == 'backward'")
    r.keep("control")

    open_tab(window, "optimiser")
    window.input("key", "space")
    window.peek_for("shell.model.snapshot.iteration > 1500", START)
    r.keep("optimiser")
    window.input("key", "space")
    window.wait_for("shell.model.snapshot.state == 'paused'")

    window.point(*spot(window, 1.0))
    window.input("mousedown", 1, "sleep", "0.1", "mousemove", *map(round, spot(window, 0.2)), "sleep", "0.3")
    window.wait_for("shell.view.moment is not None")
    window.input("mouseup", 1)
    window.input("key", "m")
    window.wait_for("shell.view.comparing and shell.model.frame.request.beside is not None and shell.model.job is None")
    r.keep("timeline")
    window.input("key", "End")

    window.run("shell.view.set_beside(None)")
    open_tab(window, "camera")
    for item, name in (("_film._path", "film.mp4"), ("_path", "path.json")):
        window.run(f"dpg.set_value({panel('camera')}.{item}, {name!r})")
    for dx in (0, 130, 130, 130):
        drag(window, dx, 10 if dx else 0)
        press(window, "Add view")
    drag(window, -260, 120)
    window.frames(20)
    r.keep("camera")


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")))
