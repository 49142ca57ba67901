"""A private X server, and the polite way to close a window. Only what xdotool does not do everywhere."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def need(program: str) -> str:
    """Path of a program. Where CI is set, to whatever, its absence fails the tests: they must not be skipped unseen."""
    found = shutil.which(program)
    if found is None:
        message = f"{program} is not installed; GUI tests need the packages xvfb, xdotool and twm"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


class Display:
    """An Xvfb with GLX (G16) on a free number."""

    def __init__(self, width: int = 1920, height: int = 1080, *extra: str) -> None:
        xvfb = need("Xvfb")
        read, write = os.pipe()
        self._server = subprocess.Popen(
            [xvfb, "-displayfd", str(write), "-screen", "0", f"{width}x{height}x24", "-nolisten", "tcp", "-r",  # no auto-repeat
             *(extra or ("+extension", "GLX"))], pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as pipe:
            number = pipe.readline().strip()
        assert number, "Xvfb did not start"
        self.name = f":{number}"

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(10)


class WindowManager:
    """twm on a display: without a window manager nobody answers a window that is to be minimised."""

    def __init__(self, display: Display, folder: Path) -> None:
        settings = folder / "twmrc"
        settings.write_text("RandomPlacement\nNoTitle\n", encoding="ascii")   # it asks nobody where a window should go
        self._process = subprocess.Popen([need("twm"), "-display", display.name, "-f", str(settings)],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


class _ClientMessage(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("serial", ctypes.c_ulong), ("send_event", ctypes.c_int),
                ("display", ctypes.c_void_p), ("window", ctypes.c_ulong), ("message_type", ctypes.c_ulong),
                ("format", ctypes.c_int), ("data", ctypes.c_long * 5))


class _Event(ctypes.Union):
    _fields_ = (("client", _ClientMessage), ("padding", ctypes.c_long * 24))


def ask_to_close(display: str, window: int) -> None:
    """Send WM_DELETE_WINDOW, as a window manager does when the cross is pressed."""
    x11 = ctypes.CDLL("libX11.so.6")
    x11.XOpenDisplay.restype, x11.XOpenDisplay.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    x11.XInternAtom.restype, x11.XInternAtom.argtypes = ctypes.c_ulong, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    x11.XSendEvent.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    x11.XCloseDisplay.argtypes = [ctypes.c_void_p]
    connection = x11.XOpenDisplay(display.encode())
    assert connection, f"no X server at {display}"
    event = _Event()
    message = event.client
    message.type, message.window, message.format = 33, window, 32
    message.message_type = x11.XInternAtom(connection, b"WM_PROTOCOLS", 0)
    message.data[0] = x11.XInternAtom(connection, b"WM_DELETE_WINDOW", 0)
    x11.XSendEvent(connection, window, 0, 0, ctypes.byref(event))
    x11.XCloseDisplay(connection)
