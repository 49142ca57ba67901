"""Can a window open here? Asked before Dear PyGui is touched: without a display it aborts the process.

Nothing here imports dearpygui, so that `splatscope doctor` and headless commands may ask too.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

HEADLESS_HINT = "Headless commands such as `splatscope train` work without it."


def display_problem(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> str | None:
    """One sentence saying why no window can open here and what to do, or None when it can.

    Only Linux is examined: Windows and macOS always have a window server for a desktop user.
    """
    if not platform.startswith("linux"):
        return None
    if not environ.get("DISPLAY"):
        if environ.get("WAYLAND_DISPLAY"):
            return ("No X display: WAYLAND_DISPLAY is set but DISPLAY is not, and the window needs X11; "
                    "enable XWayland in your compositor and set DISPLAY. " + HEADLESS_HINT)
        return ("No display: neither DISPLAY nor WAYLAND_DISPLAY is set, so no window can open; log in to a desktop, "
                "use `ssh -X`, or install the package xvfb and run `xvfb-run splatscope`. " + HEADLESS_HINT)
    return _library_problem() or _x11_problem(environ["DISPLAY"])


def _library_problem() -> str | None:
    try:
        ctypes.CDLL("libGL.so.1")
    except OSError:
        return ("libGL.so.1 is missing, and the window draws with OpenGL; install the packages libgl1 and "
                "libgl1-mesa-dri (Debian, Ubuntu) or mesa-libGL (Fedora). " + HEADLESS_HINT)
    return None


def _x11_problem(name: str) -> str | None:
    """Tries the connection itself: a stale DISPLAY aborts as surely as a missing one."""
    try:
        x11 = ctypes.CDLL("libX11.so.6")
    except OSError:
        return "libX11.so.6 is missing, and the window needs X11; install the package libx11-6. " + HEADLESS_HINT
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XOpenDisplay.argtypes = [ctypes.c_char_p]
    display = x11.XOpenDisplay(name.encode())
    if not display:
        return (f"The X display {name!r} named by DISPLAY does not answer; start it, allow this user to connect, "
                "or set DISPLAY to a running one. " + HEADLESS_HINT)
    try:
        codes = [ctypes.c_int() for _ in range(3)]
        x11.XQueryExtension.argtypes = [ctypes.c_void_p, ctypes.c_char_p] + [ctypes.c_void_p] * 3
        if not x11.XQueryExtension(display, b"GLX", *(ctypes.addressof(c) for c in codes)):
            return (f"The X display {name!r} has no GLX, and the window draws with OpenGL; start the server with "
                    "`+extension GLX` and install the package libgl1-mesa-dri. " + HEADLESS_HINT)
    finally:
        x11.XCloseDisplay.argtypes = [ctypes.c_void_p]
        x11.XCloseDisplay(display)
    return None


def icons(platform: str = sys.platform) -> dict[str, str]:
    """The window's icon, where the assets hold one. Windows reads nothing but .ico there, the others .png."""
    icon = Path(str(resources.files("assets"))) / ("icon.ico" if platform == "win32" else "icon.png")
    return {"small_icon": str(icon), "large_icon": str(icon)} if icon.exists() else {}
