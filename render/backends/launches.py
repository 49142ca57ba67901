"""What the kernels of every backend have in common: what a launch is held to, the structs, memory for outputs."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from render.backends.signatures import Arg, camera_struct, camera_values, raster_struct, raster_values
from render.config import RasterConfig
from render.types import Camera

DTYPES = {"u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "f64": torch.float64}


SCRATCH = ("records", "states")
"""Outputs that are read by the next kernel only."""


class LaunchError(TypeError):
    """A kernel was called with something that its signature does not allow."""


class Plan:
    """The signature of one kernel in one precision and on one device."""

    def __init__(self, kernel: str, arguments: Sequence[Arg], real: torch.dtype, device: torch.device | str) -> None:
        self.kernel, self.device = kernel, torch.device(device)
        self.arguments = [(arg, DTYPES.get(arg.type, real)) for arg in arguments]

    def check(self, values: Sequence[Any]) -> dict[str, int]:
        """The sizes that the signature's letters stand for. Raises LaunchError naming the first argument that is off."""
        if len(values) != len(self.arguments):
            raise LaunchError(f"{self.kernel}: takes {len(self.arguments)} arguments, got {len(values)}")
        bound: dict[str, int] = {}
        for (arg, dtype), value in zip(self.arguments, values):
            if arg.shape is None:
                continue
            if value is None:
                if not arg.nullable:
                    self._fail(arg, "None")
                continue
            if value.dtype is not dtype or value.device != self.device or not (arg.strided or value.is_contiguous()):
                self._fail(arg, _describe(value))
            shape = value.shape
            if len(shape) != len(arg.shape):
                self._fail(arg, _describe(value))
            for letter, size in zip(arg.shape, shape):
                if letter != "_" and size != (int(letter) if letter.isdigit() else bound.setdefault(letter, size)):
                    self._fail(arg, f"{_describe(value)} where {letter} is {bound.get(letter, letter)}")
        return bound

    def scan(self, values: Sequence[Any]) -> None:
        """Raise FloatingPointError naming the kernel, the output and the row of the first NaN. Rows of scratch that
        nobody reads are never written, so it is not looked at."""
        for (arg, _), value in zip(self.arguments, values):
            if arg.written and arg.name not in SCRATCH and isinstance(value, Tensor) and value.is_floating_point():
                bad = torch.nonzero(value.isnan())
                if len(bad):
                    raise FloatingPointError(f"{self.kernel} wrote NaN into {arg.name}, first at row {int(bad[0, 0])} "
                                             f"({len(bad)} numbers of {value.numel()})")

    def _fail(self, arg: Arg, got: str) -> None:
        where = str(self.device).upper()
        want = f"{arg.type} tensor [{' '.join(arg.shape)}]" if arg.shape is not None else arg.type
        raise LaunchError(f"{self.kernel}: {arg.name} must be a {'contiguous ' if not arg.strided else ''}{where} {want}, "
                          f"got {got}")


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.device} {value.dtype} {list(value.shape)}{'' if value.is_contiguous() else ' (strided)'}"
    return repr(value)


class Kernels(ABC):
    """All kernels of one precision as attributes: kernels.project_fwd(camera, raster, N, means, ...)."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        real = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
        self._camera, self._raster = camera_struct(real), raster_struct(real)
        self._recent: list[tuple[Any, Any, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers; real kernels are set by the backend
        raise AttributeError(f"there is no kernel {name}")

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

    @abstractmethod
    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Uninitialised and contiguous, of the kernels' precision unless another type is named."""

    def empty_like(self, *tensors: Tensor) -> list[Tensor]:
        """The same for the shapes and types of others."""
        return [self.empty(*t.shape, dtype=t.dtype) for t in tensors]
