"""The kernels are one source for every vector width: built for other instruction sets they keep the contract."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from render.backends import compile
from render.backends.signatures import CPU_KERNELS

pytestmark = pytest.mark.slow
CONTRACT = Path(__file__).with_name("test_cpu_contract.py")
SUBSET = "edge or batch or saturated or exact-random or vjp or photometric or adam or activation or float or threads"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86-64 levels")
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_contract_holds_with_narrower_vectors(level, tmp_path):
    """16-byte (SSE2, no FMA) and 32-byte (AVX2) vectors, through a compiler that is told not to use this CPU's best."""
    found = compile.find_compiler()
    assert found is not None
    wrapper = tmp_path / "c++"
    wrapper.write_text('#!/bin/sh\nfor a; do shift; case "$a" in -march=native) a=-march=' + level +
                       ";; esac; set -- \"$@\" \"$a\"; done\nexec " + " ".join(found.command) + ' "$@"\n')
    wrapper.chmod(0o755)
    environment = dict(os.environ, CXX=str(wrapper), SPLATSCOPE_CACHE=str(tmp_path / "cache"))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-k", SUBSET, str(CONTRACT)], env=environment,
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(list((tmp_path / "cache").glob("kernels-*"))) == 2, "float and double were built by the wrapper"


def test_compiles_for_neon(tmp_path):
    """ziglang carries a cross compiler, so 64-bit Arm is at least built."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang, which cross-compiles for Arm, is not installed: pip install 'splatscope[zig]'")
    sources = [str(compile.source_folder() / name) for part in compile.PARTS for name in part]
    for double in ([], ["-DGS_DOUBLE"]):
        command = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu", "-std=c++20", "-O1", "-Wall",
                   "-Werror", "-shared", "-fPIC", *double, *sources, "-o", str(tmp_path / "kernels.so")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="-march=native names this processor")
@pytest.mark.parametrize("double", [False, True])
def test_G27_compiles_for_windows(double, tmp_path, monkeypatch):
    """With the flags of Windows, by the cross compiler that ziglang carries: a library that exports every kernel."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang, which cross-compiles for Windows, is not installed: pip install 'splatscope[zig]'")
    zig = (sys.executable, "-m", "ziglang", "c++")
    monkeypatch.setattr(compile, "sys", SimpleNamespace(platform="win32"))
    options = [o for o in compile.flags(compile.Compiler("ziglang", zig, zig[0], "1"), double) if o != "-O3"]
    sources = [str(path) for path in sorted(compile.source_folder().glob("*.cpp"))]
    library = tmp_path / "kernels.dll"
    done = subprocess.run([*zig, "-target", "x86_64-windows-gnu", *options, "-O1", "-Wall", "-Werror", "-s", *sources, "-o",
                           str(library)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    content = library.read_bytes()   # its symbols are stripped: names that are left are exported
    assert content[:2] == b"MZ" and [name for name in CPU_KERNELS if b"\0" + name.encode() + b"\0" not in content] == []
