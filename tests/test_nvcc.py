"""Every CUDA kernel compiles for every architecture, float and double, without a warning; hot float kernels spill nothing.

What is compiled is what ships: the texts and the options that render/backends/cuda.py hands to PyCUDA.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from render.backends import cuda, nvcc
from render.backends.compile import CompileError
from render.backends.signatures import CUDA_FILES, CUDA_KERNELS
from tests.emulation import fake_pycuda

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
NVCC = nvcc.find_nvcc()
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc, the CUDA compiler, was not found")
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w*'")
_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def build(file: str, double: bool, folder: Path) -> list[tuple[str, int, int, int, int]]:
    """(kernel, architecture, registers, spilled bytes, shared bytes) of each kernel in a .cu file."""
    targets = [part for a in ARCHITECTURES for part in ("-gencode", f"arch=compute_{a},code=sm_{a}")]
    assert NVCC is not None
    text = folder / f"{file}.cu"
    text.write_text(nvcc.source(file), encoding="ascii")
    command = [NVCC.path, *nvcc.options(double), "--threads", "2", *targets, "-Xptxas", "-v", "-Werror", "all-warnings",
               "-fatbin", str(text), "-o", str(folder / f"{file}.fatbin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "warning" not in done.stderr.lower(), done.stderr[-3000:]
    rows, kernel, arch, spilled = [], "", 0, 0
    for line in done.stderr.splitlines():
        if entry := _ENTRY.search(line):
            kernel, arch = entry[1], int(entry[2])
        elif spill := _SPILL.search(line):
            spilled = int(spill[1]) + int(spill[2])
        elif used := _USED.search(line):
            rows.append((kernel, arch, int(used[1]), spilled, int(used[2] or 0)))
    return rows


@pytest.mark.thorough
@pytest.mark.parametrize("double", [False, True], ids=["float", "double"])
def test_all_kernels_compile_everywhere_and_hot_ones_do_not_spill(double, tmp_path, capsys):
    rows = [row for file in CUDA_FILES for row in build(file, double, tmp_path)]
    assert {(kernel, arch) for kernel, arch, *_ in rows} == {(k, a) for k in CUDA_KERNELS for a in ARCHITECTURES}
    with capsys.disabled():
        print(f"\n{'double' if double else 'float'} kernels: registers (spilled bytes) by architecture, shared memory")
        for kernel in CUDA_KERNELS:
            mine = sorted(row[1:] for row in rows if row[0] == kernel)
            cells = "  ".join(f"sm_{a} {r:3d} ({s})" for a, r, s, _ in mine)
            print(f"  {kernel:24s} {cells}  {max(row[3] for row in mine)} B")
    if not double:
        assert not [row for row in rows if row[3]], "a float kernel spills registers"


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    made = fake_pycuda.install(monkeypatch, tmp_path / "cache")
    made.compile = fake_pycuda.real_code
    yield made
    cuda.problems.cache_clear()


@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_I21_the_real_nvcc_compiles_what_pycuda_hands_it(gpu, kind):
    gpu.capability = (7, 5) if kind == "cubin" else (99, 0)
    cuda._driver = cuda.PyCuda()
    cuda._driver.nvcc = NVCC
    code = cuda._driver._code("activate", kind == "ptx")
    names = {b"activate_fwd", b"activate_bwd"}
    assert set(re.findall(rb"\.text\.(\w+)\0" if kind == "cubin" else rb"\.visible \.entry (\w+)", code)) == names
    assert [kind] == [k for *_, k in gpu.compiled] and code == cuda._driver._code("activate", kind == "ptx")
    assert len(gpu.compiled) == 1, "the second time it comes from the cache"


def test_the_real_nvccs_words_are_passed_on(gpu):
    driver = cuda.PyCuda()
    driver.nvcc = NVCC
    with pytest.raises(CompileError) as caught:
        driver._compile('extern "C" __global__ void k() { nonsense; }', nvcc.options(False), "sm_75", "cubin")
    first, *rest = str(caught.value).splitlines()
    assert NVCC is not None and first == f"nvcc {NVCC.version} could not compile the CUDA kernels:"
    assert any('identifier "nonsense" is undefined' in line for line in rest)
