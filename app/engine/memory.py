"""How many bytes the run holds, by what for (M03)."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.model import Model


def memory_bytes(model: Model) -> dict[str, int]:
    """Bytes by what they hold; `intersections` are the last drawn picture's, `rss` is the whole process.

    `buffers` is the kernels' pool: tensors of the other kinds may lie in it.
    """
    from render.backends import buffers

    trainer = model.trainer
    if trainer is not None:
        memory = dict(trainer.state.rows.nbytes)
    else:
        memory = {"parameters": sum(t.numel() * t.element_size() for t in model.params.trained().values()), "adam": 0}
    return memory | {"images": model.image_bytes(), "intersections": model.intersection_bytes,
                     "buffers": buffers.held_bytes(), "rss": rss_bytes()}


def rss_bytes() -> int:
    """Resident memory of this process; where the system does not tell the current figure, the highest so far."""
    if sys.platform == "win32":
        return _windows_rss()
    if sys.platform.startswith("linux"):
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024   # macOS counts bytes, the others KiB


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of the Windows API."""

    _fields_ = [("size", ctypes.c_uint32), ("page_faults", ctypes.c_uint32)] + [
        (name, ctypes.c_size_t) for name in ("peak_working_set", "working_set", "peak_paged_pool", "paged_pool",
                                             "peak_nonpaged_pool", "nonpaged_pool", "pagefile", "peak_pagefile")]


def _windows_rss() -> int:
    kernel32 = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    kernel32.K32GetProcessMemoryInfo.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    counters = _Counters()
    counters.size = ctypes.sizeof(counters)
    if not kernel32.K32GetProcessMemoryInfo(kernel32.GetCurrentProcess(), ctypes.byref(counters), counters.size):
        return 0
    return int(counters.working_set)
