"""The wheel: it holds what the program needs and nothing else, and works from a place that knows no checkout."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.packaging]


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    result = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what the repository holds, so that the checkout stays as it is."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listing = run("git", "-c", "core.quotepath=off", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    for line in listing.splitlines():
        if (ROOT / line).is_file():
            (copy / line).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / line, copy / line)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, ".", cwd=copy)
    return next(out.glob("splatscope-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of another environment: the wheel is installed there, its dependencies are borrowed from here."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    target = Path(paths["purelib"])
    # a path line borrows the packages but runs none of their .pth files: the editable install here stays out
    borrowed = [p for p in {*site.getsitepackages(), sysconfig.get_path("purelib")} if Path(p).is_dir()]
    (target / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    made = Path(paths["scripts"]) / ("python.exe" if os.name == "nt" else "python")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        made,
        "install",
        "-q",
        "--no-deps",
        "--ignore-installed",
        wheel,
        cwd=folder,
    )
    return made


def test_the_wheel_holds_the_four_packages_with_their_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    top = {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert top == {"app", "render", "cuda_src", "assets"}
    assert not [n for n in names if n.endswith(".pyc") or "__pycache__" in n or n.split("/")[-1].startswith("test_")]
    for folder in ("cuda_src", "assets", "app", "render"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so"):
                assert path.relative_to(ROOT).as_posix() in names
    assert {"app/py.typed", "render/py.typed", "assets/demo/points.ply", "assets/icon.png"} <= names
    assert wheel.stat().st_size < 8e6


def test_an_installed_wheel_opens_the_demo_and_finds_the_kernels(python: Path, tmp_path: Path) -> None:
    code = """
import pathlib, sys
import app, render
from app.commands.window import demo_path
from app.data.open import open_scene
from render.backends.compile import PARTS, source_folder
base = pathlib.Path(sys.prefix).resolve()
for module in (app, render):
    assert base in pathlib.Path(module.__file__).resolve().parents, module.__file__
assert base in demo_path().resolve().parents and base in source_folder().resolve().parents
assert all((source_folder() / name).is_file() for part in PARTS for name in part)
scene = open_scene(str(demo_path()), eval_every=8)
view = scene.train[0]
print(len(scene.train), len(scene.test), view.load().shape, len(scene.points.positions))
"""
    train, test, *_ = run(python, "-c", code, cwd=tmp_path, PYTHONPATH="").split()
    assert (int(train), int(test)) == (60, 8)


def test_an_installed_wheel_brings_the_command(python: Path, tmp_path: Path) -> None:
    script = python.parent / ("splatscope.exe" if os.name == "nt" else "splatscope")
    assert run(script, "--version", cwd=tmp_path, PYTHONPATH="").startswith("splatscope ")
    assert "points" in run(script, "info", "--json", _installed_demo(python, tmp_path), cwd=tmp_path, PYTHONPATH="")


def _installed_demo(python: Path, cwd: Path) -> str:
    code = "from app.commands.window import demo_path; print(demo_path())"
    return run(python, "-c", code, cwd=cwd, PYTHONPATH="").strip()
