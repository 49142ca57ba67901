"""A stand-in for PyCUDA and for torch.cuda, as far as render/backends/cuda.py uses them, over the host's emulation.

Written after PyCUDA's driver.py, compiler.py and cuda.hpp. What the real ones punish is an error here too: a context stack
(one for each thread) that is popped when empty, modules made with no context on it, launches in a thread that has no current
context, arguments that are no numpy scalars. A launch reads its arguments out of the packed buffer, at a C compiler's offsets.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from render.backends import cuda, nvcc
from render.backends.signatures import CUDA_KERNELS
from tests.emulation.host import Host
from tests.emulation.layout import offsets

Error = type("Error", (Exception,), {})
LogicError, LaunchError, OutOfMemory = (type(name, (Error,), {}) for name in ("LogicError", "LaunchError", "MemoryError"))
KNOWN = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0))
HOSTS = {True: Host(torch.float64), False: Host(torch.float32)}


class CompileError(Error):
    def __init__(self, msg: str, command_line: list[str], stdout: str | None = None, stderr: str | None = None) -> None:
        self.msg, self.command_line, self.stdout, self.stderr = msg, command_line, stdout, stderr

    def __str__(self) -> str:
        return f"{self.msg}\n[command: {' '.join(self.command_line)}]\n[stdout:\n{self.stdout}]\n[stderr:\n{self.stderr}]"


class Gpu:
    """One GPU, its driver, and what torch says of it; tests set what they need and look at what was done."""

    def __init__(self) -> None:
        self.capability, self.torch_cuda, self.visible, self.stream = (9, 0), "13.0", True, 0
        self.torch_began = False                 # torch has initialised CUDA
        self.retained, self.loaded = 0, 0
        self.balance: dict[int, int] = {}        # contexts pushed and not popped, by thread
        self.pushes = 0
        self.compiled: list[tuple[str, list[str], str, str]] = []   # (source, options, architecture, kind)
        self.launched: list[str] = []
        self.refuses: Callable[[bytes], Exception | None] = lambda code: None
        self.fails: Callable[[str], Exception | None] = lambda kernel: None
        self.compile: Callable[[str, str, list[str], str, str], bytes] = fake_code
        self.lock = threading.Lock()             # the emulation runs one launch at a time
        self._thread = threading.local()

    @property
    def stack(self) -> list[Context]:
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        return self._thread.stack

    def enter(self) -> None:
        """Torch works on the device in this thread, through CUDA's runtime: the primary context becomes current."""
        self.torch_began = self._thread.entered = True

    def current(self) -> bool:
        return bool(self.stack) or getattr(self._thread, "entered", False)

    def count(self, step: int) -> None:
        me = threading.get_ident()
        self.balance[me] = self.balance.get(me, 0) + step
        self.pushes += max(step, 0)


class Context:
    gpu: Gpu

    def push(self) -> None:
        self.gpu.stack.append(self)
        self.gpu.count(1)

    @classmethod
    def pop(cls) -> None:
        if not cls.gpu.stack:
            raise LogicError("context::pop failed: invalid device context - cannot pop non-current context")
        cls.gpu.stack.pop()
        cls.gpu.count(-1)


def build_arg_buf(arguments: tuple[Any, ...]) -> bytes:
    """As PyCUDA's _build_arg_buf: in the machine's own alignment, by numpy's type characters; structs are not aligned."""
    data, format = [], ""
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.number):
            data.append(argument.item())
            format += argument.dtype.char
        elif isinstance(argument, np.void):
            data.append(bytes(memoryview(argument)))
            format += f"{argument.itemsize}s"
        else:
            raise TypeError(f"invalid type on parameter #{place} (0-based)")
    return struct.pack(format, *data)


def unpack(kernel: str, double: bool, buffer: bytes) -> list[Any]:
    """The parameters of a kernel out of the bytes that a launch hands over, as C finds them there."""
    found = []
    for arg, (offset, size) in zip(CUDA_KERNELS[kernel], offsets(double)[kernel], strict=True):
        piece = buffer[offset:offset + size]
        assert len(piece) == size, f"{kernel}: the buffer ends before {arg.name}"
        if arg.type in ("camera", "raster"):
            host = HOSTS[double]
            found.append((host._camera if arg.type == "camera" else host._raster).from_buffer_copy(piece))
        elif arg.shape is not None:
            found.append(struct.unpack("P", piece)[0])
        else:
            wide = {"i32": "i", "i64": "q", "f64": "d", "real": "d" if double else "f"}
            found.append(struct.unpack(wide[arg.type], piece)[0])
    end = sum(offsets(double)[kernel][-1])
    assert len(buffer) == end, f"{kernel}: {len(buffer)} bytes of parameters where C has {end}"
    return found


class Function:
    def __init__(self, gpu: Gpu, name: str, double: bool) -> None:
        self.gpu, self.name, self.double = gpu, name, double

    def __call__(self, *arguments: Any, **words: Any) -> None:
        grid, block = words.pop("grid", (1, 1)), words.pop("block", None)
        if words:
            raise ValueError(f"extra keyword arguments: {','.join(words)}")
        if block is None:
            raise ValueError("must specify block size")
        assert isinstance(grid, tuple) and isinstance(block, tuple) and len(block) == 3 and len(grid) <= 3
        assert all(type(n) is int and n >= 1 for n in (*grid, *block)), (grid, block)
        buffer = build_arg_buf(arguments)
        if not self.gpu.current():
            raise LogicError("cuLaunchKernel failed: invalid device context")
        failure = self.gpu.fails(self.name)
        if failure is not None:
            raise failure
        passed = []
        for arg, value in zip(CUDA_KERNELS[self.name], unpack(self.name, self.double, buffer)):
            passed.append(ctypes.byref(value) if isinstance(value, ctypes.Structure)
                          else ctypes.c_void_p(value or None) if arg.shape is not None
                          else {"i32": ctypes.c_int, "i64": ctypes.c_longlong}.get(arg.type, ctypes.c_double)(value))
        with self.gpu.lock:
            self.gpu.launched.append(self.name)
            HOSTS[self.double].run(self.name, grid, block, passed)


class Module:
    def __init__(self, gpu: Gpu, code: bytes) -> None:
        self.gpu, self.double = gpu, b"GS_DOUBLE" in code
        self.names = {name.decode() for name in re.findall(rb"\.text\.(\w+)\0", code)}

    def get_function(self, name: str) -> Function:
        if name not in self.names:
            raise LogicError("cuModuleGetFunction failed: named symbol not found")
        return Function(self.gpu, name, self.double)


def fake_code(source: str, path: str, options: list[str], architecture: str, kind: str) -> bytes:
    """Stands for compiled code: the names of the kernels as a cubin holds them, and the precision."""
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(', source)
    precision = b"GS_DOUBLE" if "-DGS_DOUBLE" in options else b""
    return b"\x7fELF" + precision + b"".join(b".text." + name.encode() + b"\0" for name in names) + (
        hashlib.sha256(source.encode()).digest())


def real_code(source: str, path: str, options: list[str], architecture: str, kind: str) -> bytes:
    """As compile_plain of PyCUDA's compiler.py."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(source)
        command = [path, f"--{kind}", *options, "-arch", architecture, f"-I{folder}", "kernel.cu"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
        built = Path(folder) / f"kernel.{kind}"
        if done.returncode != 0:
            raise CompileError(f"nvcc compilation of {folder}/kernel.cu failed", command, done.stdout, done.stderr)
        assert not (done.stdout or done.stderr), f"PyCUDA warns of all that a successful nvcc says: {done.stderr}"
        return built.read_bytes()


def driver_module(gpu: Gpu) -> ModuleType:
    module: Any = ModuleType("pycuda.driver")
    bound = type("Context", (Context,), {"gpu": gpu})
    begun: list[bool] = []

    class Device:
        def __init__(self, index: int) -> None:
            if not begun:
                raise LogicError("cuDeviceGet failed: initialization error")
            assert index == 0

        def retain_primary_context(self) -> Context:
            assert gpu.torch_began, "PyCUDA retains the primary context before torch has made it"
            gpu.retained += 1
            return bound()

    def module_from_buffer(code: bytes) -> Module:
        if not gpu.stack:
            raise LogicError("explicit_context_dependent failed: invalid device context - no currently active context?")
        gpu.loaded += 1
        failure = gpu.refuses(code)
        if failure is not None:
            raise failure
        return Module(gpu, code)

    module.Error, module.LogicError, module.LaunchError, module.MemoryError = Error, LogicError, LaunchError, OutOfMemory
    module.CompileError, module.Context, module.Device, module.Function = CompileError, bound, Device, Function
    module.init, module.module_from_buffer = (lambda: begun.append(True)), module_from_buffer
    return module


def compiler_module(gpu: Gpu) -> ModuleType:
    module: Any = ModuleType("pycuda.compiler")

    def compile(source: str, nvcc: str = "nvcc", options: list[str] | None = None, keep: bool = False,
                no_extern_c: bool = False, arch: str | None = None, code: str | None = None, cache_dir: Any = None,
                include_dirs: Any = None, target: str = "cubin") -> bytes:
        assert target in ("cubin", "ptx", "fatbin") and arch is not None and options is not None
        assert no_extern_c and cache_dir is False and "#include" not in source
        gpu.compiled.append((source, options, arch, target))
        return gpu.compile(source, nvcc, options, arch, target)

    module.compile = compile
    return module


class FakeTorch:
    """torch, its CUDA half replaced. Tensors "on the GPU" lie in the host's memory."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.version = SimpleNamespace(cuda=gpu.torch_cuda)
        self.cuda = SimpleNamespace(
            is_available=lambda: gpu.visible, current_device=lambda: 0, synchronize=lambda: None,
            get_device_name=lambda index=None: "a faked GPU",
            get_device_capability=lambda index=None: gpu.capability,
            set_device=lambda index: None,   # does nothing where the device is the current one already, as torch's
            current_stream=lambda: SimpleNamespace(cuda_stream=gpu.stream))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def device(self, *words: Any) -> torch.device:
        return torch.device("cpu") if words[0] == "cuda" else torch.device(*words)

    def zeros(self, *sizes: Any, **words: Any) -> torch.Tensor:
        if "device" in words:
            self._gpu.enter()
        return torch.zeros(*sizes, **words)


def install(patch: pytest.MonkeyPatch, cache: Path, gpu: Gpu | None = None) -> Gpu:
    """A process that has not yet used CUDA, on a machine with a GPU, PyCUDA and nvcc."""
    gpu = gpu or Gpu()
    package: Any = ModuleType("pycuda")
    package.driver, package.compiler = driver_module(gpu), compiler_module(gpu)
    for name, module in (("pycuda", package), ("pycuda.driver", package.driver), ("pycuda.compiler", package.compiler)):
        patch.setitem(sys.modules, name, module)
    patch.setattr(cuda, "torch", FakeTorch(gpu))
    patch.setattr(cuda, "metadata", SimpleNamespace(version=lambda name: "2026.1",
                                                    PackageNotFoundError=metadata.PackageNotFoundError))
    patch.setattr(cuda, "_driver", None)
    patch.setattr(cuda, "_loaded", {})
    patch.setattr(nvcc, "cache_folder", lambda: cache)
    patch.setattr(nvcc, "find_nvcc", lambda: nvcc.Nvcc("nvcc", "13.0", KNOWN))
    cuda.problems.cache_clear()
    return gpu


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What work() returns or raises in a thread that has not used CUDA."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised below
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def activated(k: cuda.CudaKernels, count: int = 5) -> list[Any]:
    """Arguments of activate_fwd."""
    shapes = ((count, 4), (count, 3), (count,))
    return [count, *(torch.ones(s, dtype=k.dtype) for s in shapes), *(torch.empty(s, dtype=k.dtype) for s in shapes)]
