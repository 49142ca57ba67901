"""The CPU kernels as Python callables: loaded once per precision, every launch checked against its signature.

ctypes releases the GIL during a launch, so the window stays alive while the engine computes.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from render import interrupt
from render.backends import buffers, compile, launches
from render.backends.launches import Plan
from render.backends.signatures import CPU_KERNELS, Arg

_SCALARS = {"i32": ctypes.c_int, "i64": ctypes.c_int64, "f64": ctypes.c_double}
_RETURNS = {"binning_order": ctypes.c_int64, "binning_count": ctypes.c_int64}
_SIZES = ("binning_chunks", "rasterize_record_size", "rasterize_pair_size")


def _launcher(name: str, arguments: tuple[Arg, ...], function: Any, real: torch.dtype) -> Callable[..., Any]:
    """kernel(*values in signature order); tensors are passed by address and kept alive by the caller's references.

    Raises interrupt.Interrupted after a launch that was given up, with outputs that mean nothing.
    With $SPLATSCOPE_DEBUG (the command line's --debug) every output is searched for NaN after the launch.
    """
    debug = bool(os.environ.get("SPLATSCOPE_DEBUG"))
    plan = Plan(name, arguments, real, "cpu")
    types: list[Any] = []
    for arg in arguments:
        is_scalar = arg.shape is None and arg.type in _SCALARS
        types.append(_SCALARS[arg.type] if is_scalar else ctypes.c_void_p)
    function.argtypes = types
    function.restype = _RETURNS.get(name)

    def launch(*values: Any) -> Any:
        plan.check(values)
        result = function(*(v.data_ptr() if isinstance(v, Tensor) else ctypes.addressof(v) if isinstance(v, ctypes.Structure)
                            else v for v in values))
        interrupt.check()
        if debug:
            plan.scan(values)
        return result

    return launch


def _load(double: bool, progress: compile.Progress | None) -> ctypes.CDLL:
    """The compiled library; one that cannot be loaded is deleted and built once more. Raises CompileError after that."""
    for last in (False, True):
        path = compile.built_library(double, progress)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            path.unlink(missing_ok=True)
            if last:
                raise compile.CompileError(f"the compiled kernels cannot be loaded ({error}): set SPLATSCOPE_CACHE to a "
                                           "folder from which programs may run") from error
    raise AssertionError("unreachable")


class CpuKernels(launches.Kernels):
    """The kernels of cuda_src/*.cpp."""

    def __init__(self, dtype: torch.dtype, progress: compile.Progress | None = None) -> None:
        super().__init__(dtype)
        library = _load(dtype == torch.float64, progress)
        for name, arguments in CPU_KERNELS.items():
            setattr(self, name, _launcher(name, arguments, getattr(library, name), dtype))
        self.chunks, self.record_size, self.pair_size = (getattr(library, name)() for name in _SIZES)
        library.ssim_blocks.restype = ctypes.c_int64
        self.ssim_blocks = library.ssim_blocks
        self._set_threads = library.pool_set_threads
        library.interrupt_watch.argtypes = (ctypes.c_void_p,)
        library.interrupt_watch.restype = None
        interrupt.watchers.append(library.interrupt_watch)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return buffers.empty(shape, dtype or self.dtype)


_loaded: dict[torch.dtype, CpuKernels] = {}
_lock = threading.Lock()
_threads = os.cpu_count() or 1


def kernels(dtype: torch.dtype, progress: compile.Progress | None = None) -> CpuKernels:
    """The kernels of a precision, compiled and loaded at first use. Raises CompileError, or TypeError for other dtypes."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"the CPU kernels work in float32 or float64, got {dtype}")
    found = _loaded.get(dtype)
    if found is None:
        with _lock:
            found = _loaded.get(dtype)
            if found is None:
                found = _loaded[dtype] = CpuKernels(dtype, progress)
                found._set_threads(_threads)
    return found


def prepare(progress: compile.Progress | None = None) -> None:
    """Compile and load what training needs (float32), telling `progress` in words."""
    kernels(torch.float32, progress)


def available() -> bool:
    """Whether the CPU kernels can be built here."""
    return torch.float32 in _loaded or compile.find_compiler() is not None


def set_threads(count: int) -> None:
    """Threads the kernels use from the next launch on; results do not depend on it."""
    global _threads
    if count < 1:
        raise ValueError(f"threads must be at least 1, got {count}")
    _threads = count
    for loaded in _loaded.values():
        loaded._set_threads(count)


def threads() -> int:
    return _threads
