"""The kernels of a backend by name."""

from __future__ import annotations

import torch

from render.backends import cpu, cuda
from render.backends.launches import Kernels


def kernels(backend: str, dtype: torch.dtype) -> Kernels:
    """Those of "cpu" or "cuda" in a precision, compiled and loaded at first use. Raises CompileError."""
    return cuda.kernels(dtype) if backend == "cuda" else cpu.kernels(dtype)
