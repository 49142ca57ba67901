"""The real thing: `python -m app SCENE` in a process and on an X server of its own, closed while it trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.gui.x11 import Display, ask_to_close, need
from tests.training.tiny import make_scene

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
TO_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


@pytest.fixture(scope="module")
def scene_folder(tmp_path_factory) -> Path:
    """A transforms.json scene of a few small photographs."""
    folder = tmp_path_factory.mktemp("scène")   # not ASCII, on purpose (D06)
    scene = make_scene(6, 20, size=40)
    frames = []
    for view in scene.views:
        Image.fromarray(view.load()).save(folder / view.name)
        frames.append({"file_path": view.name,
                       "transform_matrix": (np.linalg.inv(view.camera.viewmat) @ TO_OPENGL).tolist()})
    K = scene.views[0].camera.K
    header = {"w": 40, "h": 40, "fl_x": K[0, 0], "fl_y": K[1, 1], "cx": K[0, 2], "cy": K[1, 2]}
    (folder / "transforms.json").write_text(json.dumps(header | {"frames": frames}))
    return folder


class App:
    def __init__(self, display: Display, *words: str, folder: Path) -> None:
        self.trace = folder / "trace.jsonl"
        self.display = display
        environment = {**os.environ, "DISPLAY": display.name, "XDG_CONFIG_HOME": str(folder / "config")}
        self.process = subprocess.Popen([sys.executable, "-m", "app", *words, "--trace", str(self.trace)], cwd=ROOT,
                                        env=environment, stderr=subprocess.PIPE, text=True)

    def rows(self) -> list[dict]:
        if not self.trace.exists():
            return []
        lines = self.trace.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]   # the last may be half written

    def wait_for(self, true, what: str) -> dict:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the program ended: {self.process.communicate()[1]}"
            found = [row for row in self.rows() if true(row)]
            if found:
                return found[0]
            time.sleep(0.05)   # polls a file that another process writes; bounded by the deadline
        raise AssertionError(f"{what} never came; last {self.rows()[-1:]}")

    def close(self) -> tuple[int, str]:
        found = subprocess.run([need("xdotool"), "search", "--name", "Splatscope"], text=True, capture_output=True,
                               env={**os.environ, "DISPLAY": self.display.name}, timeout=20).stdout.split()
        ask_to_close(self.display.name, int(found[-1]))
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def display():
    server = Display(1280, 800)
    yield server
    server.stop()


def test_g14_a_scene_trains_in_the_window_and_closing_it_ends_the_program(scene_folder, tmp_path, display):
    """G14, D06: opened by one command, trained by the kernels, closed mid-training with exit code 0."""
    app = App(display, str(scene_folder), "--init_points", "300", folder=tmp_path)
    try:
        first = app.wait_for(lambda row: True, "the first frame")
        trained = app.wait_for(lambda row: row["iteration"] >= 30 and row["state"] == "running", "training")
        assert trained["backend"] == "cpu" and trained["gaussians"] > 0 and trained["loss"] < 1
        assert first["iteration"] < trained["iteration"]
        code, errors = app.close()
        assert code == 0, errors
        assert "Traceback" not in errors
    finally:
        app.kill()


@pytest.mark.thorough
def test_g14_closing_while_everything_still_loads_ends_the_program(scene_folder, tmp_path, display):
    """G14, U07: the window can be closed while PyTorch loads and the scene is opened."""
    app = App(display, str(scene_folder), folder=tmp_path)
    try:
        app.wait_for(lambda row: True, "the first frame")
        code, errors = app.close()
        assert code == 0, errors
        assert "Traceback" not in errors
    finally:
        app.kill()
