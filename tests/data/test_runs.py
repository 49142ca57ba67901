"""A run with checkpoints is recognised, by the command line too, and without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.__main__ import main
from app.commands.window import WindowArgs, resumed
from app.data.checkpoints import place
from app.data.open import recognise
from app.data.scene import SceneError
from app.records.place import recent_runs, runs_root
from app.training.checkpoint import write
from tests.training.test_checkpoint import some


@pytest.fixture
def run(tmp_path):
    for iteration in (3, 12):
        write(place(tmp_path / "run", iteration), some(iteration), {"scene": {"path": "somewhere"}})
    return tmp_path / "run"


def test_info_tells_of_the_checkpoints_of_a_run_and_of_damaged_ones(run, capsys):
    found = recognise(run)
    assert (found.kind, found.iterations, found.gaussians) == ("run", [3, 12], 5)
    assert recognise(place(run, 3)).iterations == [3]
    place(run, 12).write_bytes(b"half")
    assert main(["info", "--json", str(run)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["iterations"] == [3] and "iteration_12" in told["warnings"][0]
    place(run, 3).write_bytes(b"half")
    with pytest.raises(SceneError, match="damaged"):
        recognise(run)


def test_headers_are_read_without_torch(run):
    code = "import sys; from app.data.open import recognise; recognise(sys.argv[1]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(run)], cwd=Path(__file__).parents[2], timeout=60).returncode == 0


def test_the_newest_run_is_the_one_saved_last(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(SceneError, match="no run to go on with yet"):
        resumed(WindowArgs(resume=True), lambda defaults: defaults)
    root = runs_root()
    for age, name in ((300, "b"), (100, "a"), (200, "c")):
        write(place(root / name, 1), some(1))
        os.utime(place(root / name, 1), (10**9 - age,) * 2)
    (root / "empty").mkdir()
    assert [path.name for path in recent_runs(2)] == ["a", "c"]
    args, changes = resumed(WindowArgs(resume=True), lambda defaults: defaults)
    assert args.path == str(root / "a") and changes == {}


def test_flags_of_the_window_change_the_options_of_the_run(run):
    args, changes = resumed(WindowArgs(path=str(run)), lambda defaults: WindowArgs(iterations=77, opacity_lr=0.3))
    assert args.path == str(run) and changes == {"iterations": 77, "opacity_lr": 0.3}
    with pytest.raises(SceneError, match="no checkpoint to resume"):
        resumed(WindowArgs(resume=True, model_path=str(run.parent)), lambda defaults: defaults)
    assert resumed(WindowArgs(path=str(run.parent)), lambda defaults: defaults) == (WindowArgs(path=str(run.parent)), {})
