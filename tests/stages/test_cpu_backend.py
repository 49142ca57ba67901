"""Building, finding and launching the CPU kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from render.backends import buffers, compile, cpu
from render.backends.launches import LaunchError
from render.config import ALPHA_GRADIENTS, RasterConfig
from render.pipeline import render, resolve_backend
from render.stages.activate import activate
from tests import scenes


def test_a_later_start_compiles_nothing_nor_does_any_toggle(monkeypatch):
    cpu.prepare()

    def never(*_args, **_kwargs):
        raise AssertionError("compiled again")
    monkeypatch.setattr(compile, "_build", never)
    monkeypatch.setattr(cpu, "_loaded", {})
    case = scenes.make_random(50, 40, 30).to(torch.float32)
    for mode in ALPHA_GRADIENTS:
        for smooth in (False, True):
            config = RasterConfig(alpha_gradient=mode, smooth_cutoff=smooth, antialiased=smooth, alpha_max=0.999, cutoff=0.01)
            out = render(activate(case.params, "cpu"), case.camera, config, background=torch.zeros(3), sh_degree=2,
                         backend="cpu")
            assert out.colors.max() > 0.1


def test_key_changes_with_source_flags_and_compiler(tmp_path, monkeypatch):
    found = compile.find_compiler()
    assert found is not None
    options = compile.flags(found, False)
    folder = compile.source_folder()
    key = compile._key(found, options, folder)
    assert key == compile._key(found, options, folder)
    assert key != compile._key(found, compile.flags(found, True), folder)
    other = compile.Compiler(found.name, found.command, found.path, found.version + "x")
    assert key != compile._key(other, options, folder)
    assert not any("fast-math" in flag or "finite-math" in flag for flag in options)


def test_no_compiler_is_one_sentence_and_auto_falls_back(monkeypatch, tmp_path):
    compile._find.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compile.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(cpu, "_loaded", {})
    try:
        assert compile.find_compiler() is None
        assert resolve_backend("auto") == "reference"
        with pytest.raises(ValueError, match="install g\\+\\+"):
            resolve_backend("cpu")
        with pytest.raises(compile.CompileError, match="install g\\+\\+"):
            compile.built_library(False)
    finally:
        compile._find.cache_clear()


def test_a_failing_compiler_shows_what_it_said(monkeypatch, tmp_path):
    script = tmp_path / "broken-c++"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo broken 1.0; exit 0; }\necho "cannot do this" >&2\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("SPLATSCOPE_CACHE", str(tmp_path / "cache"))
    said = []
    with pytest.raises(compile.CompileError, match="cannot do this"):
        compile.built_library(False, said.append)
    assert "Compiling" in said[0]
    assert not list((tmp_path / "cache").iterdir()), "nothing half-built stays behind"


@pytest.mark.skipif(os.name != "posix", reason="the compiler is a shell script")
def test_an_interrupted_compilation_ends_at_once_with_all_that_it_started(monkeypatch, tmp_path):
    script = tmp_path / "slow-c++"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo slow 1.0; exit 0; }\n'
                      'case "$*" in *threads.cpp*) exit 0;; esac\n'
                      f'sleep 60 & echo $! >> {tmp_path}/started; wait\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("SPLATSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compile, "PARTS", (("rasterize.cpp",), ("threads.cpp",), ("ssim.cpp", "binning.cpp")))

    def close(text: str) -> None:
        if "1 of" in text:
            raise KeyboardInterrupt
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compile.built_library(False, close)
    assert time.monotonic() - begun < 30.0
    assert not list((tmp_path / "cache").iterdir())
    for pid in (tmp_path / "started").read_text().split():
        assert subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout[:1] in ("", "Z")


def test_launches_are_checked_against_the_signature():
    k = cpu.kernels(torch.float32)
    good = torch.zeros(8)
    args = [1.0, 0.9, 0.999, 1.0, 1e-15, None, 1]
    with pytest.raises(LaunchError, match="grad.*float64"):
        k.adam_step(8, good, good.double(), good, good, *args)
    with pytest.raises(LaunchError, match="param.*strided"):
        k.adam_step(8, torch.zeros(16)[::2], good, good, good, *args)
    with pytest.raises(LaunchError, match="grad.*n is 8"):
        k.adam_step(8, good, torch.zeros(9), good, good, *args)
    with pytest.raises(LaunchError, match="takes 12 arguments"):
        k.adam_step(8, good)
    with pytest.raises(TypeError, match="float32 or float64"):
        cpu.kernels(torch.float16)
    with pytest.raises(ValueError, match="at least 1"):
        cpu.set_threads(0)


def test_buffers_are_used_again_only_when_nobody_views_them():
    shape = (700, 999)
    first = buffers.empty(shape, torch.float32)
    first.fill_(1)
    address, view = first.data_ptr(), first[3:]
    del first
    second = buffers.empty(shape, torch.float32)
    assert second.data_ptr() != address, "a view was still alive"
    second.fill_(2)
    assert (view == 1).all()
    del view
    assert buffers.empty(shape, torch.float32).data_ptr() == address
    assert address % 64 == 0
    assert buffers.held_bytes() >= 2 * 700 * 999 * 4


def test_released_buffers_are_those_that_nobody_views():
    kept, gone = buffers.empty((500, 997), torch.float32).fill_(3), buffers.empty((500, 997), torch.float32)
    view = kept[7:]
    del kept, gone
    before = buffers.held_bytes()
    buffers.release()
    assert view.numel() * 4 <= buffers.held_bytes() <= before - 500 * 997 * 4
    assert (view == 3).all() and (buffers.empty((500, 997), torch.float32).fill_(4) == 4).all() and (view == 3).all()
    del view
    buffers.release()
    assert buffers.held_bytes() <= before - 2 * 500 * 997 * 4


def test_two_processes_may_build_at_once(tmp_path):
    """Each builds a file of its own and renames it into place; both then work."""
    code = "import torch; from render.backends import cpu; cpu.prepare(); print(cpu.kernels(torch.float32).chunks)"
    script = tmp_path / "c++"  # a stand-in compiler: copies the library that is already built
    built = compile.built_library(False)
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo copy 1; exit 0; }}\nwhile [ "$1" != -o ]; do shift; done\n'
                      f'cp "{built}" "$2"\n')
    script.chmod(0o755)
    environment = dict(os.environ, CXX=str(script), SPLATSCOPE_CACHE=str(tmp_path / "cache"))
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
               for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs == ["16", "16"]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_damaged_library_is_built_once_more_and_one_that_never_loads_is_one_sentence(tmp_path, monkeypatch):
    built = compile.built_library(False)
    script = tmp_path / "c++"  # a stand-in compiler: copies what COPY names
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo copy 2; exit 0; }\nwhile [ "$1" != -o ]; do shift; done\n'
                      'cp "$COPY" "$2"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("SPLATSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COPY", str(script))
    with pytest.raises(compile.CompileError, match="cannot be loaded.*SPLATSCOPE_CACHE"):
        cpu.CpuKernels(torch.float32)
    compile.built_library(False).write_bytes(b"half a library")
    monkeypatch.setenv("COPY", str(built))
    assert cpu.CpuKernels(torch.float32).chunks == 16


def test_debug_names_the_kernel_that_wrote_nan(monkeypatch):
    monkeypatch.setenv("SPLATSCOPE_DEBUG", "1")
    k = cpu.CpuKernels(torch.float32)
    good = torch.zeros(8)
    k.adam_step(8, good.clone(), good, good.clone(), good.clone(), 1.0, 0.9, 0.999, 1.0, 1e-15, None, 1)
    with pytest.raises(FloatingPointError, match="adam_step wrote NaN into param, first at row 3"):
        bad = good.clone()
        bad[3] = float("nan")
        k.adam_step(8, bad, good, good.clone(), good.clone(), 1.0, 0.9, 0.999, 1.0, 1e-15, None, 1)
    case = scenes.make_random(60, 37, 23, 13).to(torch.float32)
    monkeypatch.setattr(cpu, "_loaded", {torch.float32: k})
    out = render(activate(case.params, "cpu"), case.camera, RasterConfig(), background=torch.zeros(3), sh_degree=3,
                 backend="cpu")
    assert out.colors.max() > 0.1
