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
from render.backends import buffers, compile
from render.backends.signatures import CPU_KERNELS, Arg, camera_struct, camera_values, raster_struct, raster_values
from render.config import RasterConfig
from render.types import Camera

_DTYPES = {"u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "f64": torch.float64}
_SCALARS = {"i32": ctypes.c_int, "i64": ctypes.c_int64, "f64": ctypes.c_double}
_RETURNS = {"binning_order": ctypes.c_int64, "binning_count": ctypes.c_int64}
_SIZES = ("binning_chunks", "rasterize_record_size", "rasterize_pair_size")


class LaunchError(TypeError):
    """A kernel was called with something that its signature does not allow."""


def _fail(kernel: str, arg: Arg, got: str) -> None:
    want = f"{arg.type} tensor [{' '.join(arg.shape)}]" if arg.shape is not None else arg.type
    raise LaunchError(f"{kernel}: {arg.name} must be a {'contiguous ' if not arg.strided else ''}CPU {want}, got {got}")


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.device} {value.dtype} {list(value.shape)}{'' if value.is_contiguous() else ' (strided)'}"
    return repr(value)


def _launcher(name: str, arguments: tuple[Arg, ...], function: Any, real: torch.dtype) -> Callable[..., Any]:
    """kernel(*values in signature order); tensors are passed by address and kept alive by the caller's references.

    Raises interrupt.Interrupted after a launch that was given up, with outputs that mean nothing.
    With $SPLATSCOPE_DEBUG (the command line's --debug) every output is searched for NaN after the launch.
    """
    debug = bool(os.environ.get("SPLATSCOPE_DEBUG"))
    plan = [(arg, _DTYPES.get(arg.type, real)) for arg in arguments]
    types: list[Any] = []
    for arg in arguments:
        is_scalar = arg.shape is None and arg.type in _SCALARS
        types.append(_SCALARS[arg.type] if is_scalar else ctypes.c_void_p)
    function.argtypes = types
    function.restype = _RETURNS.get(name)

    def launch(*values: Any) -> Any:
        if len(values) != len(plan):
            raise LaunchError(f"{name}: takes {len(plan)} arguments, got {len(values)}")
        bound: dict[str, int] = {}
        passed: list[Any] = []
        for (arg, dtype), value in zip(plan, values):
            if arg.shape is None:
                passed.append(ctypes.addressof(value) if arg.type in ("camera", "raster") else value)
                continue
            if value is None:
                if not arg.nullable:
                    _fail(name, arg, "None")
                passed.append(None)
                continue
            if value.dtype is not dtype or value.device.type != "cpu" or not (arg.strided or value.is_contiguous()):
                _fail(name, arg, _describe(value))
            shape = value.shape
            if len(shape) != len(arg.shape):
                _fail(name, arg, _describe(value))
            for letter, size in zip(arg.shape, shape):
                if letter != "_" and size != (int(letter) if letter.isdigit() else bound.setdefault(letter, size)):
                    _fail(name, arg, f"{_describe(value)} where {letter} is {bound.get(letter, letter)}")
            passed.append(value.data_ptr())
        result = function(*passed)
        interrupt.check()
        if debug:
            _scan(name, arguments, values)
        return result

    return launch


def _scan(kernel: str, arguments: tuple[Arg, ...], values: tuple[Any, ...]) -> None:
    """Raise FloatingPointError naming the kernel, the output and the row of the first NaN. Rows of `records` that nobody
    reads are never written, so they are not looked at."""
    for arg, value in zip(arguments, values):
        if arg.written and arg.name != "records" and isinstance(value, Tensor) and value.is_floating_point():
            bad = torch.nonzero(value.isnan())
            if len(bad):
                raise FloatingPointError(f"{kernel} wrote NaN into {arg.name}, first at row {int(bad[0, 0])} "
                                         f"({len(bad)} numbers of {value.numel()})")


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


class Kernels:
    """All kernels of one precision as attributes: kernels.project_fwd(camera, raster, N, means, ...)."""

    def __init__(self, dtype: torch.dtype, progress: compile.Progress | None = None) -> None:
        double = dtype == torch.float64
        self.dtype = dtype
        library = _load(double, progress)
        for name, arguments in CPU_KERNELS.items():
            setattr(self, name, _launcher(name, arguments, getattr(library, name), dtype))
        self.chunks, self.record_size, self.pair_size = (getattr(library, name)() for name in _SIZES)
        library.ssim_blocks.restype = ctypes.c_int64
        self.ssim_blocks = library.ssim_blocks
        self._set_threads = library.pool_set_threads
        library.interrupt_watch.argtypes = (ctypes.c_void_p,)
        library.interrupt_watch.restype = None
        interrupt.watchers.append(library.interrupt_watch)
        self._camera = camera_struct(ctypes.c_double if double else ctypes.c_float)
        self._raster = raster_struct(ctypes.c_double if double else ctypes.c_float)
        self._recent: list[tuple[Any, Any, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers; real kernels are set above
        raise AttributeError(f"there is no CPU kernel {name}")

    def camera(self, camera: Camera, config: RasterConfig) -> ctypes.Structure:
        """CameraArgs; the last few are kept, since every stage of a picture asks for the same."""
        for known, fov, args in self._recent:
            if known is camera and fov == config.clamp_fov:
                return args
        args = self._camera(**camera_values(camera, config))
        self._recent = [(camera, config.clamp_fov, args), *self._recent[:7]]
        return args

    def raster(self, config: RasterConfig) -> ctypes.Structure:
        return self._raster(**raster_values(config))


_loaded: dict[torch.dtype, Kernels] = {}
_lock = threading.Lock()
_threads = os.cpu_count() or 1


def kernels(dtype: torch.dtype, progress: compile.Progress | None = None) -> Kernels:
    """The kernels of a precision, compiled and loaded at first use. Raises CompileError, or TypeError for other dtypes."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"the CPU kernels work in float32 or float64, got {dtype}")
    found = _loaded.get(dtype)
    if found is None:
        with _lock:
            found = _loaded.get(dtype)
            if found is None:
                found = _loaded[dtype] = Kernels(dtype, progress)
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


def empty_like_all(*tensors: Tensor) -> list[Tensor]:
    """Uninitialised contiguous tensors of the same shapes."""
    return [buffers.empty_like(t) for t in tensors]
