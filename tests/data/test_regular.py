"""A pipe in the place of a file is one sentence: nobody waits for somebody who writes into it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import app.__main__ as cli
from app.commands.render_cameras import views_of
from app.data import ply
from app.data.camera_paths import load_path
from app.data.cameras_json import read_cameras_json
from app.data.checkpoints import describe, find
from app.data.open import recognise
from app.data.scene import SceneError
from app.data.user_files import Unreadable, read_object
from app.records.place import prune_demos
from app.records.read import read_run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


def at_once(work: Callable[[], object]) -> object:
    """What `work` returns or raises; a failure where it waits."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except (Exception, SystemExit) as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20.0)
    assert found, "it waits for somebody who writes into the pipe"
    return found[0]


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(("name", "read"), [
    ("camera_path.json", load_path), ("cameras.json", read_cameras_json), ("presets.json", read_object),
    ("cloud.ply", ply.read_header), ("iteration_3.safetensors", describe)])
def test_a_pipe_is_not_read(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    error = at_once(lambda: read(pipe(tmp_path / name)))
    assert isinstance(error, (SceneError, Unreadable)) and "it is not a regular file" in str(error)
    assert name in str(error) or isinstance(error, Unreadable)   # whoever reads an object names its file


def test_a_pipe_among_the_lines_of_a_record_is_a_sentence_of_compare(tmp_path: Path,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"iterations": 3}))
    pipe(tmp_path / "metrics.jsonl")
    assert isinstance(at_once(lambda: read_run(tmp_path)), SceneError)
    assert at_once(lambda: cli.main(["compare", str(tmp_path)])) == 2
    said = capsys.readouterr().err
    assert "metrics.jsonl is not a regular file" in said and said.count("\n") == 1


def test_pipes_in_the_folder_of_a_run_are_passed_over_or_said(tmp_path: Path) -> None:
    pipe(tmp_path / "demo" / "config.json")
    assert at_once(lambda: views_of(tmp_path / "demo", None)) == ([], "no cameras are known")
    assert at_once(lambda: prune_demos(tmp_path, tmp_path / "other")) == []
    file = pipe(tmp_path / "run" / "checkpoints" / "main" / "iteration_3.safetensors")
    found, complaints = at_once(lambda: find(tmp_path / "run"))   # type: ignore[misc]
    assert found == [] and complaints == [f"{file} is no checkpoint or is damaged (it is not a regular file); choose another"]


@pytest.mark.parametrize("name", ["cloud.ply", "scene"])
def test_a_pipe_is_no_scene(tmp_path: Path, name: str) -> None:
    found = at_once(lambda: recognise(pipe(tmp_path / name)))
    assert found.kind == "unknown" and "neither a regular file nor a folder" in found.warnings[0]   # type: ignore[attr-defined]
