"""The CUDA kernels through PyCUDA, beside PyTorch in PyTorch's own context. The only module that imports pycuda.

PyTorch initialises CUDA first; its primary context is retained once and pushed wherever PyCUDA makes something (contexts
are a stack of each thread, which must be empty when the thread ends). All memory is torch's, all launches go to torch's
default stream, so both sides are in order without a word. A launch makes no PyCUDA object: any thread may launch.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from typing import Any, Protocol

import torch
from torch import Tensor

from render import interrupt
from render.backends import launches, nvcc
from render.backends.compile import BEAT, CompileError, Progress
from render.backends.later import Later
from render.backends.launches import LaunchError, Plan
from render.backends.signatures import BUCKET, BUCKETS_A_BLOCK, CUDA_FILES, CUDA_KERNELS, Arg, cuda_file
from render.config import TILE_SIZE
from render.reference.ssim import WINDOW, gaussian_window

PYCUDA_AT_LEAST = (2025, 1, 2)
"""Older ones do not build with CUDA 13."""
THREADS = 128
"""A block of the kernels that give each Gaussian, pair or number a thread."""
SSIM_SIDE = 16
Shape = tuple[int, int, int]


class Driver(Protocol):
    """Runs compiled kernels. Here PyCUDA does; tests put the host's emulation in its place."""

    device: torch.device
    name: str   # of the chip

    def launch(self, kernel: str, double: bool, grid: Shape, block: Shape, values: tuple[Any, ...]) -> None: ...


# ---------------------------------------------------------------- whether it can run here


def problem() -> str:
    """Why the CUDA backend cannot run here, and what to do, in one sentence without its full stop; empty when it can."""
    return next(iter(problems()), "")


@cache
def problems() -> tuple[str, ...]:
    """All that is missing, a sentence each. PyCUDA is imported only where PyTorch finds a GPU."""
    torchs = _torch_problem()
    return tuple(filter(None, (torchs, _pycuda_problem(imports=not torchs), _nvcc_problem(asks=not torchs))))


def _torch_problem() -> str:
    if torch.version.cuda is None:
        return "this PyTorch is a CPU build: install one that is built for CUDA"
    if not torch.cuda.is_available():
        return "PyTorch finds no NVIDIA GPU: install the NVIDIA driver, and see whether nvidia-smi lists the card"
    return ""


def _pycuda_problem(imports: bool) -> str:
    try:
        version = metadata.version("pycuda")
    except metadata.PackageNotFoundError:
        return "PyCUDA is missing: pip install 'splatscope[cuda]'"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < PYCUDA_AT_LEAST:
        return f"PyCUDA {version} is older than {'.'.join(map(str, PYCUDA_AT_LEAST))}: pip install --upgrade pycuda"
    try:
        if imports:
            importlib.import_module("pycuda.driver")
    except Exception as error:  # noqa: BLE001 - what a broken installation raises, in one sentence
        return (f"PyCUDA cannot be imported ({_first_line(error)}): build it again with "
                "pip install --no-cache-dir --force-reinstall --no-deps pycuda")
    return ""


def _nvcc_problem(asks: bool) -> str:
    compiler = nvcc.find_nvcc()
    if compiler is None:
        return "nvcc, the CUDA compiler, was not found: install the CUDA toolkit, or set CUDA_HOME to its folder"
    try:
        if asks:
            nvcc.target_for(torch.cuda.get_device_capability(), compiler)
    except CompileError as error:
        return str(error)
    return ""


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".:- ")


# ---------------------------------------------------------------- PyCUDA


class PyCuda:
    """Modules and launches on torch's current device. One for the life of the process: nothing is ever unloaded."""

    def __init__(self) -> None:
        try:
            self.index = torch.cuda.current_device()
            self.device = torch.device("cuda", self.index)
            self.name = torch.cuda.get_device_name(self.index)
            torch.zeros(1, device=self.device)   # torch makes its context before PyCUDA looks for one
        except RuntimeError as error:   # full, or in exclusive use
            raise CompileError(f"PyTorch cannot use the GPU ({_first_line(error)}): see whether another program holds the "
                               "card") from error
        self.driver = importlib.import_module("pycuda.driver")
        # PyCUDA repeats what nvcc says when all went well, as on Windows the name of the file
        warnings.filterwarnings("ignore", message="The CUDA compiler succeeded")
        try:
            self.driver.init()
            self.context = self.driver.Device(self.index).retain_primary_context()
        except self.driver.Error as error:
            raise CompileError(f"PyCUDA cannot use the GPU ({_first_line(error)}): update the NVIDIA driver, and see whether "
                               "another program holds the card") from error
        compiler = nvcc.find_nvcc()
        if compiler is None:
            raise CompileError("nvcc, the CUDA compiler, was not found: install the CUDA toolkit")
        self.nvcc = compiler
        self.target = nvcc.target_for(torch.cuda.get_device_capability(self.index), compiler)
        self._functions: dict[tuple[str, bool], Any] = {}
        self._modules: list[Any] = []        # older PyCUDA's functions do not keep their module alive
        self._thread = threading.local()
        self._debug = bool(os.environ.get("SPLATSCOPE_DEBUG"))

    @contextmanager
    def pushed(self) -> Iterator[None]:
        """The context on this thread's stack, for whoever makes PyCUDA objects."""
        self.context.push()
        try:
            yield
        finally:
            self.driver.Context.pop()

    def load(self, double: bool, progress: Progress | None = None) -> None:
        """Compile what is missing, several files at a time, and load all kernels of a precision."""
        missing = [f for f in CUDA_FILES if not nvcc.is_built(f, double, self.target, self.nvcc)]
        if missing:
            said = f"Compiling the CUDA kernels with nvcc {self.nvcc.version}, once for this machine"
            with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
                jobs = {pool.submit(self._code, file, double) for file in missing}
                try:
                    while jobs:
                        if progress is not None:
                            progress(f"{said}: {len(missing) - len(jobs)} of {len(missing)} files are done ...")
                        done, jobs = wait(jobs, BEAT, FIRST_COMPLETED)
                        for job in done:
                            job.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        with self.pushed():
            for file in CUDA_FILES:
                module = self._module(file, double)
                self._modules.append(module)
                for kernel in (name for name in CUDA_KERNELS if cuda_file(name) == file):
                    self._functions[kernel, double] = module.get_function(kernel)

    def _code(self, file: str, double: bool) -> bytes:
        return nvcc.built(file, double, self.target, self.nvcc, self._compile)

    def _compile(self, source: str, options: list[str], architecture: str, kind: str) -> bytes:
        compiler = importlib.import_module("pycuda.compiler")
        try:
            return compiler.compile(source, nvcc=self.nvcc.path, options=options, no_extern_c=True, arch=architecture,
                                    cache_dir=False, target=kind)
        except self.driver.CompileError as error:
            raise CompileError(f"nvcc {self.nvcc.version} could not compile the CUDA kernels:\n"
                               f"{getattr(error, 'stderr', '') or error}".strip()) from error
        except OSError as error:
            raise CompileError(f"nvcc could not be run ({_first_line(error)}): reinstall the CUDA toolkit, or free some space "
                               "for temporary files") from error

    def _module(self, file: str, double: bool) -> Any:
        """The loaded module; cached code that the driver refuses is deleted and built once more."""
        for last in (False, True):
            try:
                return self.driver.module_from_buffer(self._code(file, double))
            except self.driver.MemoryError as error:
                raise MemoryError(f"the GPU is out of memory for the CUDA kernels ({_first_line(error)})") from error
            except self.driver.Error as error:
                nvcc.forget(file, double, self.target, self.nvcc)
                if last:
                    raise CompileError(f"the NVIDIA driver refuses the compiled CUDA kernels ({_first_line(error)}): "
                                       f"update the driver for CUDA {self.nvcc.version}") from error
        raise AssertionError("unreachable")

    def launch(self, kernel: str, double: bool, grid: Shape, block: Shape, values: tuple[Any, ...]) -> None:
        torch.cuda.set_device(self.index)
        if not hasattr(self._thread, "entered"):
            # A new thread has no context, and set_device gives it none where the device already is the current one:
            # what torch launches through the runtime does.
            torch.zeros(1, device=self.device)
            self._thread.entered = True
        if torch.cuda.current_stream().cuda_stream != 0:
            raise LaunchError(f"{kernel}: PyCUDA launches on the default stream only, and another is current in torch")
        arguments = packed(CUDA_KERNELS[kernel], values, double)
        try:
            self._functions[kernel, double](*arguments, grid=grid, block=block)
        except self.driver.MemoryError as error:
            raise MemoryError(f"{kernel}: the GPU is out of memory ({_first_line(error)})") from error
        except self.driver.Error as error:
            raise RuntimeError(f"{kernel} cannot be launched ({_first_line(error)})") from error
        if self._debug:
            torch.cuda.synchronize()   # what goes wrong in a kernel is otherwise told by a later call


def packed(arguments: tuple[Arg, ...], values: tuple[Any, ...], double: bool) -> list[Any]:
    """The values as PyCUDA takes them, each of the C type that the kernel declares: structs by value, tensors by address."""
    import numpy as np

    scalars = {"i32": np.int32, "i64": np.int64, "f64": np.float64, "real": np.float64 if double else np.float32}
    found: list[Any] = []
    for arg, value in zip(arguments, values, strict=True):
        if arg.shape is not None:
            found.append(np.uintp(0 if value is None else value.data_ptr()))
        elif isinstance(value, ctypes.Structure):
            found.append(np.void(bytes(value)))
        else:
            found.append(scalars[arg.type](value))
    return found


# ---------------------------------------------------------------- kernels


def _blocks(count: int) -> tuple[Shape, Shape]:
    return (-(-count // THREADS), 1, 1), (THREADS, 1, 1)


def _tiles(given: dict[str, Any]) -> tuple[Shape, Shape]:
    return (given["camera"].tiles_x * given["camera"].tiles_y, 1, 1), (TILE_SIZE * TILE_SIZE, 1, 1)


def _images(given: dict[str, Any]) -> tuple[Shape, Shape]:
    return ((-(-given["width"] // SSIM_SIDE), -(-given["height"] // SSIM_SIDE), 3), (SSIM_SIDE, SSIM_SIDE, 1))


def _buckets(given: dict[str, Any]) -> tuple[Shape, Shape]:
    return (-(-given["B"] // BUCKETS_A_BLOCK), 1, 1), (BUCKETS_A_BLOCK * BUCKET, 1, 1)


def ssim_blocks(height: int, width: int) -> int:
    """Blocks of ssim_fwd, each of which leaves one row of partial sums."""
    return -(-width // SSIM_SIDE) * -(-height // SSIM_SIDE) * 3


_SHAPES: dict[str, Callable[[dict[str, Any]], tuple[Shape, Shape]]] = {
    "rasterize_fwd": _tiles, "rasterize_bwd": _tiles, "rasterize_count": _tiles, "rasterize_buckets_states": _tiles,
    "rasterize_buckets_bwd": _buckets, "ssim_fwd": _images, "ssim_bwd": _images,
    "binning_ranges16": lambda given: _blocks(given["M"] + 1), "binning_ranges32": lambda given: _blocks(given["M"] + 1)}
_COUNTS = ("V", "N", "n")


def launch_shape(kernel: str, given: dict[str, Any]) -> tuple[Shape, Shape] | None:
    """(grid, block) from the sizes, scalars and structs of a launch; None when there is nothing to do."""
    shape = _SHAPES.get(kernel)
    grid, block = shape(given) if shape else _blocks(next(given[name] for name in _COUNTS if name in given))
    return (grid, block) if min(grid) > 0 else None


class CudaKernels(launches.Kernels):
    """The kernels of cuda_src/*.cu."""

    def __init__(self, dtype: torch.dtype, driver: Driver) -> None:
        super().__init__(dtype)
        self.driver, self.device = driver, driver.device
        for name, arguments in CUDA_KERNELS.items():
            setattr(self, name, self._launcher(name, arguments))
        window = gaussian_window(torch.zeros(1, dtype=torch.float64))[WINDOW // 2:]   # from the centre outwards
        self.window = window.to(self.device, dtype)

    def _launcher(self, name: str, arguments: tuple[Arg, ...]) -> Callable[..., None]:
        """kernel(*values in signature order). With $SPLATSCOPE_DEBUG it waits for the end and searches outputs for NaN."""
        debug = bool(os.environ.get("SPLATSCOPE_DEBUG"))
        plan, double = Plan(name, arguments, self.dtype, self.device), self.dtype == torch.float64
        scalars = [(place, arg.name) for place, arg in enumerate(arguments) if arg.shape is None]

        def launch(*values: Any) -> None:
            sizes = plan.check(values)
            shape = launch_shape(name, sizes | {title: values[place] for place, title in scalars})
            if shape is not None:
                self.driver.launch(name, double, *shape, values)
            interrupt.check()
            if debug:
                plan.scan(values)

        return launch

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)

    def zeros(self, *shape: int) -> Tensor:
        """For outputs that kernels add to."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


_loaded: dict[torch.dtype, CudaKernels] = {}
_lock = threading.Lock()
_driver: Driver | None = None


def kernels(dtype: torch.dtype, progress: Progress | None = None) -> CudaKernels:
    """The kernels of a precision, compiled and loaded at first use. Raises CompileError, or TypeError for other dtypes."""
    global _driver
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"the CUDA kernels work in float32 or float64, got {dtype}")
    found = _loaded.get(dtype)
    if found is None:
        with _lock:
            found = _loaded.get(dtype)
            if found is None:
                if _driver is None:
                    _driver = PyCuda()
                if isinstance(_driver, PyCuda):
                    _driver.load(dtype == torch.float64, progress)
                found = _loaded[dtype] = CudaKernels(dtype, _driver)
    return found


def prepare(progress: Progress | None = None) -> None:
    """Compile and load what training needs (float32), telling `progress` in words."""
    kernels(torch.float32, progress)


def available() -> bool:
    """Whether the CUDA kernels can run here."""
    return _driver is not None or not problem()


def device() -> torch.device:
    """Where tensors of the CUDA backend live."""
    return _driver.device if _driver is not None else torch.device("cuda", torch.cuda.current_device())


later = Later()


def mark() -> torch.cuda.Event:
    """A point in the device's queue, for render/timing.py."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def device_name() -> str:
    """The chip, in words; empty while no kernels are loaded."""
    return _driver.name if _driver is not None else ""


def free_bytes() -> int | None:
    """Memory of the GPU that new tensors may take; None where the driver of the kernels does not tell."""
    if not isinstance(_driver, PyCuda):
        return None
    free, _ = torch.cuda.mem_get_info(_driver.index)
    return free + torch.cuda.memory_reserved(_driver.index) - torch.cuda.memory_allocated(_driver.index)


def release() -> None:
    """Give what torch keeps in reserve back to the GPU, as when the run goes on elsewhere."""
    if isinstance(_driver, PyCuda):
        torch.cuda.empty_cache()


def finish() -> None:
    """Wait until the GPU has done all it was given."""
    if isinstance(_driver, PyCuda):
        torch.cuda.synchronize(_driver.index)


@contextmanager
def driven_by(driver: Driver) -> Iterator[None]:
    """In the block `driver` runs the kernels: the whole CUDA path without a GPU."""
    global _driver, _loaded
    before, _driver, _loaded = (_driver, _loaded), driver, {}
    try:
        yield
    finally:
        _driver, _loaded = before
