"""`splatscope doctor` finds what is there, says what will be used and how to get more, and never fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from app.commands import doctor

ROOT = Path(__file__).resolve().parents[2]
HEALTHY: dict[str, Any] = {
    "splatscope": "0.1.0",
    "python": "3.12.0",
    "platform": "Linux",
    "compiler": {"name": "g++", "path": "g++", "version": "g++ 13"},
    "cxx_problem": "",
    "cpu": {"model": "a CPU", "cores": 2, "features": ["avx2", "fma"]},
    "gpu": {"devices": [], "driver_cuda": None, "nvcc": None, "pycuda": None, "missing": []},
    "display": {"name": ":1", "problem": None},
    "packages": {"torch": "2.13.0", "dearpygui": "2.3.1"},
    "missing_packages": [],
    "cache": {"path": "cache", "files": 2, "bytes": 3_000_000, "writable": True},
    "uses": {"backend": "cpu", "meaning": "compiled C++ kernels on all cores"},
}


def report(**changed: Any) -> dict[str, Any]:
    made = {**HEALTHY, **changed}
    return {**made, "advice": doctor.advise(made)}


def gpu(**changed: Any) -> dict[str, Any]:
    return {**HEALTHY["gpu"], **changed}


def fake_tool(folder: Path, name: str, prints: str) -> None:
    folder.mkdir(exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n", encoding="utf-8")
    tool.chmod(0o755)


def process(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", "doctor", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_healthy_machine_needs_no_advice() -> None:
    assert doctor.advise(HEALTHY) == []
    text = doctor.as_text(report())
    assert "backend cpu" in text and "torch 2.13.0" in text and "g++ 13" in text and "To get more" not in text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"compiler": None}, "pip install ziglang"),
        ({"missing_packages": ["plyfile"]}, "plyfile"),
        ({"cache": {**HEALTHY["cache"], "writable": False}}, "not writable"),
        ({"cache": {**HEALTHY["cache"], "writable": False}}, "the plain PyTorch renderer runs instead"),
        ({"cxx_problem": "$CXX is 'c++29', which does not run, so g++ is used."}, "$CXX is 'c++29'"),
        ({"display": {"name": None, "problem": "No display: install xvfb."}}, "install xvfb"),
        ({"gpu": gpu(driver_cuda="12.4", nvcc={"path": "nvcc", "version": "13.0"})}, "at most CUDA 12.4"),
    ],
)
def test_I22_each_lack_has_one_sentence_that_says_what_to_do(changed: dict[str, Any], says: str) -> None:
    made = report(**changed)
    assert len(made["advice"]) == 1 and says in made["advice"][0]
    assert says in doctor.as_text(made)


def test_a_file_in_the_place_of_the_cache_is_not_writable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("SPLATSCOPE_CACHE", str(tmp_path / "cache"))
    assert not doctor.find_cache()["writable"]


def test_with_a_cache_that_cannot_be_written_only_kernels_that_are_there_will_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("render.pipeline.resolve_backend", lambda name: "cpu")
    for writable, built, backend in ((True, False, "cpu"), (False, True, "cpu"), (False, False, "reference")):
        monkeypatch.setattr("render.backends.compile.is_built", lambda built=built: built)
        assert doctor.what_runs(writable)["backend"] == backend


def test_a_CXX_that_does_not_run_is_named(tmp_path: Path) -> None:
    result = process(env={**os.environ, "CXX": "no-such-compiler", "SPLATSCOPE_CACHE": str(tmp_path)})
    assert result.returncode == 0 and "$CXX is 'no-such-compiler', which does not run" in result.stdout


def test_a_driver_newer_than_the_toolkit_is_fine() -> None:
    assert doctor.advise(report(gpu=gpu(driver_cuda="13.1", nvcc={"path": "nvcc", "version": "12.9"}))) == []
    assert doctor.advise(report(gpu=gpu(driver_cuda="12.10", nvcc={"path": "nvcc", "version": "12.9"}))) == []


def test_gpu_and_toolkit_are_asked_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(tmp_path / "bin", "nvidia-smi", "NVIDIA Test 1, 570.1, 24564 MiB\nNVIDIA Test 2, 570.1, 8192 MiB")
    fake_tool(tmp_path / "bin", "nvcc", "Cuda compilation tools, release 12.8, V12.8.61\ncompute_90")
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
    found = doctor.find_gpu()
    assert [d["name"] for d in found["devices"]] == ["NVIDIA Test 1", "NVIDIA Test 2"]
    assert found["devices"][0]["memory"] == "24564 MiB" and found["nvcc"]["version"] == "12.8"
    assert "NVIDIA Test 2, 8192 MiB, driver 570.1" in doctor.as_text(report(gpu=found))


def test_I14_I15_what_is_missing_for_cuda_is_what_the_renderer_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    from render.backends import cuda

    sentences = ("PyCUDA 2024.1.2 is older than 2025.1.2: pip install --upgrade pycuda", "nvcc was not found: install it")
    monkeypatch.setattr(cuda, "problems", lambda: sentences)
    monkeypatch.setattr(doctor.metadata, "version", lambda name: {"pycuda": "2024.1.2"}[name])
    found = doctor.find_gpu()
    assert found["missing"] == list(sentences) and found["pycuda"] == "2024.1.2"
    text = doctor.as_text(report(gpu=found))
    assert "PyCUDA 2024.1.2" in text[:text.index("To run on an NVIDIA GPU:")]
    assert text.endswith("".join(f"\n  - {s}." for s in sentences))


def test_versions_are_those_installed_and_extras_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found, missing = doctor.installed()
    assert found["numpy"] == metadata.version("numpy") and missing == []
    real = metadata.version

    def without(name: str) -> str:
        if name in ("plyfile", "pytest"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", without)
    found, missing = doctor.installed()
    assert missing == ["plyfile"] and "pytest" not in found


def test_I15_the_json_report_is_whole_without_a_gpu_a_display_or_pycuda(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    result = process("--json", env={**env, "SPLATSCOPE_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 0 and "Traceback" not in result.stderr
    found = json.loads(result.stdout)
    assert set(HEALTHY) | {"executable", "advice"} == set(found)
    assert found["uses"]["backend"] in ("cpu", "cuda", "reference")
    assert found["cache"]["path"] == str(tmp_path / "cache") and not (tmp_path / "cache").exists()
    if sys.platform.startswith("linux"):
        assert sum("xvfb" in sentence for sentence in found["advice"]) == 1


def test_without_a_compiler_it_says_what_that_costs(tmp_path: Path) -> None:
    # an empty PATH hides every compiler; ziglang is found as a module, so a stand-in that has none shadows it
    hidden = tmp_path / "hide"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'ziglang' else find(name, package)\n",
        encoding="utf-8",
    )
    env = {k: v for k, v in os.environ.items() if k != "CXX"}
    result = process(env={**env, "PATH": str(tmp_path), "PYTHONPATH": str(hidden)})
    assert result.returncode == 0, result.stderr
    assert "Compiler  none found" in result.stdout and "backend reference" in result.stdout
    assert "pip install ziglang" in result.stdout
