"""How much memory there is and how much we use, without a dependency."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

BYTES_PER_GAUSSIAN = 1600
"""Parameters, gradients, two Adam moments (59 floats each), activated values, cotangents and intersections."""


def _windows_memory() -> int:
    class Status(ctypes.Structure):   # MEMORYSTATUSEX
        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32),
                    *[(name, ctypes.c_ulonglong) for name in (
                        "total", "available", "page_total", "page_available", "virtual", "virtual_available", "extra")]]

    status = Status()
    status.length = ctypes.sizeof(Status)
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.available)


def available_bytes() -> int:
    """Memory that can be used without swapping."""
    if sys.platform == "win32":
        return _windows_memory()
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    # macOS reports no cheap "available" figure: half of what is installed
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def peak_rss_bytes() -> int | None:
    """The largest resident size of this process so far; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


def default_cap(free_bytes: int) -> int:
    """The largest number of Gaussians that half of the free memory holds (F11)."""
    return max(1000, free_bytes // 2 // BYTES_PER_GAUSSIAN)


OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""What torch's RuntimeError says on the CPU of Linux, of Windows, and on a GPU."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, in Python or in torch, on the host or on a GPU."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in OUT_OF_MEMORY)
