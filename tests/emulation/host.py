"""Builds the .cu files for the host and launches them there: the CUDA kernels without a GPU.

Each file becomes a library in which every kernel of render/backends/signatures.py can be launched with a grid and a block
on CPU tensors. Every launch runs under three orders of its threads and blocks; arrays that are only written must come out
equal to the bit, sums by atomics equal but for the order of rounding.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from render.backends import compile
from render.backends.signatures import (
    CUDA_KERNELS,
    Arg,
    camera_struct,
    camera_values,
    cuda_file,
    raster_struct,
    raster_values,
)
from render.config import TILE_SIZE, RasterConfig
from render.types import Camera

ORDERS = 3
_C = {"real": "Real", "u8": "unsigned char", "i16": "short", "i32": "int", "i64": "int64", "f64": "double"}
_CTYPES = {"i32": ctypes.c_int, "i64": ctypes.c_longlong, "f64": ctypes.c_double, "real": ctypes.c_double}
_DTYPES = {"i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "f64": torch.float64}
ADDED = {"rasterize_bwd", "rasterize_buckets_bwd"}  # kernels that sum by atomics


class EmulationError(AssertionError):
    """Something that real hardware would punish: a divergent barrier, results that depend on the order of threads."""


def _wrapper(name: str, arguments: tuple[Arg, ...]) -> str:
    taken, given = [], []
    for arg in arguments:
        if arg.type in ("camera", "raster"):
            taken.append(f"const {arg.type.capitalize()}Args* {arg.name}")
            given.append(f"*{arg.name}")
        elif arg.shape is None:
            taken.append(f"{'double' if arg.type == 'real' else _C[arg.type]} {arg.name}")
            given.append(f"{_C[arg.type]}({arg.name})")
        else:
            taken.append(f"{'' if arg.written else 'const '}{_C[arg.type]}* {arg.name}")
            given.append(arg.name)
    return (
        f'extern "C" const char* emulated_{name}(int how, const unsigned* shape, {", ".join(taken)}) {{\n'
        f"    static std::string said;\n"
        f"    said = emulation::launch({{shape[0], shape[1], shape[2]}}, {{shape[3], shape[4], shape[5]}}, "
        f"emulation::Order(how), [=] {{ {name}({', '.join(given)}); }});\n    return said.c_str();\n}}\n"
    )


def _build(file: str, double: bool) -> ctypes.CDLL:
    compiler, folder, here = compile.find_compiler(), compile.source_folder(), Path(__file__).parent
    assert compiler is not None, "the emulation needs a C++ compiler"
    text = (folder / f"{file}.cu").read_text()
    wrappers = "".join(_wrapper(n, a) for n, a in CUDA_KERNELS.items() if f" {n}(" in text)
    source = f'#include "emulation.h"\n#include "{file}.cu"\ntypedef long long int64;\n{wrappers}'
    headers = b"".join(p.read_bytes() for p in sorted([*folder.glob("*.h"), *folder.glob("math/*.h"), here / "emulation.h"]))
    key = hashlib.sha256(source.encode() + text.encode() + headers + compiler.version.encode()).hexdigest()[:20]
    target = compile.cache_folder() / f"emulated-{file}-{'f64' if double else 'f32'}-{key}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            main, built = Path(scratch) / "main.cpp", Path(scratch) / "built.so"
            main.write_text(source)
            # no contraction of a*b+c: nvcc contracts too, but the tolerances here are those of plain arithmetic
            options = [
                "-std=c++20",
                "-O1",
                "-shared",
                "-fPIC",
                "-Wno-narrowing",
                f"-DTILE_SIZE={TILE_SIZE}",
                "-I",
                str(here),
                "-I",
                str(folder),
                *(["-DGS_DOUBLE"] if double else []),
            ]
            done = subprocess.run([*compiler.command, *options, str(main), "-o", str(built)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-4000:]
            built.replace(target)
    return ctypes.CDLL(str(target))


class Host:
    """Emulated kernels of one precision: host.launch("project_fwd", grid, block, *arguments)."""

    def __init__(self, dtype: torch.dtype, orders: int = ORDERS) -> None:
        self.dtype, self.double, self.orders = dtype, dtype == torch.float64, orders
        real = ctypes.c_double if self.double else ctypes.c_float
        self._camera, self._raster = camera_struct(real), raster_struct(real)
        self._files: dict[str, ctypes.CDLL] = {}

    def camera(self, camera: Camera, config: RasterConfig) -> ctypes.Structure:
        return self._camera(**camera_values(camera, config))

    def raster(self, config: RasterConfig) -> ctypes.Structure:
        return self._raster(**raster_values(config))

    def _function(self, name: str) -> Any:
        file = cuda_file(name)
        if file not in self._files:
            self._files[file] = _build(file, self.double)
        function = getattr(self._files[file], f"emulated_{name}")
        function.restype = ctypes.c_char_p
        return function

    def _pass(self, name: str, arg: Arg, value: Any) -> Any:
        if arg.type in ("camera", "raster"):
            return ctypes.byref(value)
        if arg.shape is None:
            return _CTYPES[arg.type](value)
        if value is None:
            assert arg.nullable, f"{name}: {arg.name} is None"
            return ctypes.c_void_p(None)
        assert value.dtype == _DTYPES.get(arg.type, self.dtype), f"{name}: {arg.name} is {value.dtype}"
        assert arg.strided or value.is_contiguous(), f"{name}: {arg.name} is strided"
        return ctypes.c_void_p(value.data_ptr())

    def run(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], passed: list[Any], order: int = 0) -> None:
        """One launch with its arguments as C takes them: addresses, scalars, structs by reference."""
        shape = (ctypes.c_uint * 6)(*(grid + (1, 1, 1))[:3], *(block + (1, 1, 1))[:3])
        said = self._function(name)(order, shape, *passed)
        if said:
            raise EmulationError(f"{name}: {said.decode()}")

    def launch(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], *values: Any) -> None:
        arguments = CUDA_KERNELS[name]
        assert len(values) == len(arguments), f"{name} takes {len(arguments)} arguments, got {len(values)}"
        written = [v for a, v in zip(arguments, values) if a.written and isinstance(v, Tensor)]
        before, results = [t.clone() for t in written], []
        for order in range(self.orders):
            for tensor, kept in zip(written, before):
                tensor.copy_(kept)
            self.run(name, grid, block, [self._pass(name, a, v) for a, v in zip(arguments, values)], order)
            results.append([t.clone() for t in written])
        for other in results[1:]:
            for first, second in zip(results[0], other):
                same = torch.equal(first.nan_to_num(), second.nan_to_num())
                if name in ADDED and not same:
                    tolerance = (1e-12 if self.double else 1e-4) * float(first.abs().max())
                    same = bool((first - second).abs().max() <= tolerance)
                if not same:
                    raise EmulationError(f"{name}: results depend on the order of threads")


class Emulated:
    """Runs the CUDA backend's kernels here, in place of PyCUDA: see render/backends/cuda.py, Driver."""

    device = torch.device("cpu")
    name = "emulation"

    def __init__(self, orders: int = ORDERS) -> None:
        self.hosts = {True: Host(torch.float64, orders), False: Host(torch.float32, orders)}
        self.launched: list[str] = []

    def launch(self, kernel: str, double: bool, grid: tuple[int, ...], block: tuple[int, ...], values: tuple[Any, ...]) -> None:
        self.launched.append(kernel)
        self.hosts[double].launch(kernel, grid, block, *values)
