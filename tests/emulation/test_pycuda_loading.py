"""Compiling and loading the CUDA kernels through a stand-in for PyCUDA, and what is said where that cannot be done."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from app.training.memory import is_out_of_memory
from render.backends import cuda, nvcc
from render.backends.compile import CompileError
from render.backends.nvcc import Target
from render.backends.signatures import CUDA_FILES, CUDA_KERNELS, cuda_file
from render.pipeline import resolve_backend
from tests.emulation import fake_pycuda
from tests.emulation.fake_pycuda import Gpu, LogicError, OutOfMemory, activated, in_a_thread, install

ROOT = Path(__file__).resolve().parents[2]
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')


# ---------------------------------------------------------------- loading
def again(monkeypatch, tmp_path) -> Gpu:
    """Another start of the program on the same machine."""
    return install(monkeypatch, tmp_path / "cache")


def test_I19_the_second_start_compiles_nothing(gpu, monkeypatch, tmp_path):
    said: list[str] = []
    cuda.prepare(said.append)
    assert sorted(len(CUDA_FILES) - int(re.search(r"(\d+) of", text)[1]) for text in said)[-1] == len(CUDA_FILES)
    assert all("nvcc 13.0, once for this machine" in text for text in said)
    assert len(gpu.compiled) == len(CUDA_FILES) == gpu.loaded
    cuda.kernels(torch.float64)
    assert len(gpu.compiled) == 2 * len(CUDA_FILES)
    second = again(monkeypatch, tmp_path)
    said.clear()
    cuda.prepare(said.append)
    cuda.kernels(torch.float64)
    assert second.compiled == [] and said == [] and second.loaded == 2 * len(CUDA_FILES)
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: nvcc.Nvcc("nvcc", "13.1", fake_pycuda.KNOWN))
    monkeypatch.setattr(cuda, "_driver", None)
    monkeypatch.setattr(cuda, "_loaded", {})
    cuda.prepare()
    assert len(second.compiled) == len(CUDA_FILES), "another compiler, other code"


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b"", lambda b: b[:20] + b"?" + b[21:]],
                         ids=["cut short", "empty", "changed"])
def test_I19_a_damaged_entry_of_the_cache_never_reaches_the_driver(gpu, monkeypatch, tmp_path, damage):
    cuda.prepare()
    (entry,) = (tmp_path / "cache").glob("cuda-project-f32-*")
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    second = again(monkeypatch, tmp_path)
    cuda.prepare()
    assert len(second.compiled) == 1 and second.loaded == len(CUDA_FILES) and entry.read_bytes() == whole


def test_I05_code_that_the_driver_refuses_is_built_once_more(gpu, monkeypatch, tmp_path):
    cuda.prepare()
    second, refused = again(monkeypatch, tmp_path), []

    def refuse_the_first(code: bytes) -> Exception | None:
        refused.append(code)
        return LogicError("cuModuleLoadDataEx failed: device kernel image is invalid - ") if len(refused) == 1 else None

    second.refuses = refuse_the_first
    cuda.prepare()
    assert len(second.compiled) == 1 and second.loaded == len(CUDA_FILES) + 1


def test_I05_code_refused_twice_gives_one_sentence_and_leaves_no_context_behind(gpu):
    gpu.refuses = lambda code: LogicError("cuModuleLoadDataEx failed: no kernel image is available - ")
    with pytest.raises(CompileError) as caught:
        in_a_thread(cuda.prepare)
    assert gpu.loaded == 2 and gpu.pushes == 1
    assert str(caught.value) == ("the NVIDIA driver refuses the compiled CUDA kernels (cuModuleLoadDataEx failed: no kernel "
                                 "image is available): update the driver for CUDA 13.0")


def test_memory_that_runs_out_is_told_as_such_when_loading_and_when_launching(gpu):
    gpu.refuses = lambda code: OutOfMemory("cuModuleLoadDataEx failed: out of memory - ")
    with pytest.raises(MemoryError) as caught:
        cuda.prepare()
    assert is_out_of_memory(caught.value) and gpu.loaded == 1
    gpu.refuses = lambda code: None
    k = cuda.kernels(torch.float32)
    gpu.fails = lambda kernel: OutOfMemory("cuLaunchKernel failed: out of memory")
    with pytest.raises(MemoryError, match="activate_fwd: the GPU is out of memory"):
        k.activate_fwd(*activated(k))
    gpu.fails = lambda kernel: fake_pycuda.LaunchError("cuLaunchKernel failed: too many resources requested for launch")
    with pytest.raises(RuntimeError, match=r"activate_fwd cannot be launched \(cuLaunchKernel failed: too many resources"):
        k.activate_fwd(*activated(k))


def test_a_compile_error_is_one_sentence_and_the_compilers_text(gpu):
    def fail(source: str, path: str, options: list[str], architecture: str, kind: str) -> bytes:
        if "gaussian_bwd(" in source:
            raise fake_pycuda.CompileError("compilation of kernel.cu failed", [path], "", "kernel.cu(7): error: no\n1 error")
        return fake_pycuda.fake_code(source, path, options, architecture, kind)

    gpu.compile = fail
    with pytest.raises(CompileError) as caught:
        cuda.prepare()
    assert str(caught.value) == "nvcc 13.0 could not compile the CUDA kernels:\nkernel.cu(7): error: no\n1 error"
    assert gpu.loaded == 0
    gpu.compile = fake_pycuda.fake_code
    cuda.prepare()   # as when the compiler has been repaired meanwhile


def test_a_compiler_that_cannot_be_started_is_one_sentence(gpu):
    def fail(*words: Any) -> bytes:
        raise OSError("error invoking 'nvcc --cubin': No such file or directory")

    gpu.compile = fail
    with pytest.raises(CompileError, match=r"^nvcc could not be run \(error invoking 'nvcc --cubin': No such file .*\): "):
        cuda.prepare()


def test_a_cache_that_cannot_be_written_is_one_sentence(gpu, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CompileError, match="the kernel cache .* cannot be written .*SPLATSCOPE_CACHE"):
        cuda.prepare()


def test_compiling_ends_when_progress_says_so(gpu):
    def stop(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cuda.prepare(stop)
    assert gpu.loaded == 0


# ---------------------------------------------------------------- what is compiled, and for what
@pytest.mark.parametrize("file", CUDA_FILES)
def test_I19_I21_a_source_is_one_ascii_text_with_its_kernels_named_for_C(file):
    text = nvcc.source(file)
    assert text.isascii() and "#include" not in text and "#pragma once" not in text
    kernels = [name for name in CUDA_KERNELS if cuda_file(name) == file]
    assert kernels and sorted(KERNEL.findall(text)) == sorted(kernels)
    assert text.count("__global__") == len(kernels)


def fake_nvcc(patch: pytest.MonkeyPatch, folder: Path, architectures: tuple[int, ...]) -> nvcc.Nvcc:
    """One of CUDA 12.8 whose --list-gpu-arch says so much."""
    said = {"--version": "Cuda compilation tools, release 12.8, V12.8.61\n",
            "--list-gpu-arch": "".join(f"compute_{digits}\n" for digits in architectures)}
    patch.setattr(nvcc, "_say", lambda path, option: said[option])
    found = nvcc._ask(str(folder / "nvcc"))
    assert found is not None
    return found


@pytest.mark.parametrize(("capability", "target"), [
    ((8, 9), Target("cubin", "sm_89")),
    ((8, 8), Target("cubin", "sm_86")),      # of the same family; sm_87 is none of the graphics cards
    ((8, 7), Target("cubin", "sm_87")),
    ((7, 2), Target("ptx", "compute_70")),   # machine code of a card is none for a Jetson
    ((9, 0), Target("cubin", "sm_90")),
    ((10, 3), Target("cubin", "sm_100")),
    ((12, 0), Target("ptx", "compute_100")),
    ((13, 7), Target("ptx", "compute_100")),
])
def test_I17_code_is_for_the_gpu_or_what_of_its_family_nvcc_knows_else_ptx(monkeypatch, tmp_path, capability, target):
    known = fake_nvcc(monkeypatch, tmp_path, (70, 80, 86, 87, 89, 90, 101, 100))
    assert known.version == "12.8" and known.known[-2:] == ((10, 0), (10, 1))
    assert nvcc.target_for(capability, known) == target


def test_I17_a_gpu_older_than_all_that_nvcc_knows_gives_one_sentence(monkeypatch, tmp_path):
    with pytest.raises(CompileError) as caught:
        nvcc.target_for((5, 2), fake_nvcc(monkeypatch, tmp_path, (75, 90)))
    assert str(caught.value) == ("the GPU has compute capability 5.2 and nvcc 12.8 compiles for 7.5 and newer: install an "
                                 "older CUDA toolkit")


def test_I17_ptx_is_compiled_and_cached_for_a_gpu_newer_than_nvcc(gpu, tmp_path):
    gpu.capability = (12, 0)
    cuda.prepare()
    assert {(arch, kind) for _, _, arch, kind in gpu.compiled} == {("compute_90", "ptx")}
    assert len(list((tmp_path / "cache").glob("*.ptx"))) == len(CUDA_FILES)


# ---------------------------------------------------------------- whether it can run
def no_pycuda(patch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    patch.setattr(cuda.metadata, "version", version)


LACKS: dict[str, tuple[Callable[[pytest.MonkeyPatch, Gpu], object], str]] = {
    "a torch with CUDA": (lambda patch, gpu: patch.setattr(cuda.torch.version, "cuda", None), "built for CUDA"),
    "a GPU": (lambda patch, gpu: setattr(gpu, "visible", False), "install the NVIDIA driver"),
    "PyCUDA": (no_pycuda, "pip install 'splatscope[cuda]'"),
    "a new PyCUDA": (lambda patch, gpu: patch.setattr(cuda.metadata, "version", lambda name: "2024.1.2"),
                     "PyCUDA 2024.1.2 is older than 2025.1.2: pip install --upgrade pycuda"),
    "a PyCUDA that imports": (lambda patch, gpu: patch.setitem(sys.modules, "pycuda.driver", None), "--force-reinstall"),
    "nvcc": (lambda patch, gpu: patch.setattr(nvcc, "find_nvcc", lambda: None), "install the CUDA toolkit"),
    "a GPU that nvcc knows": (lambda patch, gpu: setattr(gpu, "capability", (6, 1)), "install an older CUDA toolkit"),
}


def test_with_all_that_it_needs_cuda_is_what_auto_means(gpu):
    assert cuda.problem() == "" and resolve_backend("auto") == "cuda" == resolve_backend("cuda")


@pytest.mark.parametrize("lack", LACKS)
def test_I14_I15_each_lack_gives_one_sentence_and_auto_goes_on_to_the_cpu(gpu, monkeypatch, lack):
    take, says = LACKS[lack]
    take(monkeypatch, gpu)
    problem = cuda.problem()
    assert says in problem and "\n" not in problem and not problem.endswith(".") and ": " in problem
    with pytest.raises(ValueError) as caught:
        resolve_backend("cuda")
    assert str(caught.value) == f"backend cuda cannot run here: {problem}"
    assert resolve_backend("auto") == "cpu"
    assert gpu.compiled == [] and gpu.loaded == 0


def test_I15_all_that_is_missing_is_named_at_once(gpu, monkeypatch):
    for lack in ("a torch with CUDA", "a new PyCUDA", "nvcc"):
        LACKS[lack][0](monkeypatch, gpu)
    assert [LACKS[lack][1] in said for lack, said in zip(("a torch with CUDA", "a new PyCUDA", "nvcc"), cuda.problems(),
                                                         strict=True)] == [True] * 3


def test_I15_everything_imports_where_pycuda_cannot_be_imported():
    code = ("import sys; sys.modules['pycuda'] = None\n"
            "import app.engine.loop, app.training.trainer, render.pipeline, tests.bench.__main__\n"
            "from render.backends import cuda, nvcc\n"
            "assert cuda.problem() and not cuda.available()\n"
            "assert render.pipeline.resolve_backend('auto') != 'cuda'\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
