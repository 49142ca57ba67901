"""Dear PyGui, imported once. Its annotations call every context manager an int, so type checkers get Any instead."""

from __future__ import annotations

from typing import Any

import dearpygui.dearpygui as _dearpygui

dpg: Any = _dearpygui
