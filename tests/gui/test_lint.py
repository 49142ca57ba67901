"""House rules of the window's source that no run would reveal."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "app" / "gui").rglob("*.py"))


def calls(tree: ast.AST) -> list[ast.Call]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_G17_callbacks_are_functions_or_methods(path: Path) -> None:
    """Dear PyGui never fires a functools.partial or another callable object; nothing in the window makes one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for call in calls(tree):
        for keyword in call.keywords:
            if keyword.arg and (keyword.arg.endswith("callback") or keyword.arg == "on_close"):
                assert isinstance(keyword.value, (ast.Name, ast.Attribute, ast.Lambda)), f"{path.name}:{call.lineno}"
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "functools" for a in n.names}
    assert "partial" not in imported


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_G22_no_string_tags_and_no_threads_but_the_heartbeat(path: Path) -> None:
    """Items are known by their integers; only the main loop calls Dear PyGui (G01, G02, G26)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [c.lineno for c in calls(tree) for k in c.keywords if k.arg == "tag"]
    text = path.read_text(encoding="utf-8")
    if "threading" in text:
        assert path.name == "heartbeat.py" and "import dpg" not in text and "dpg." not in text
    assert "dearpygui.dearpygui" not in text or path.name == "toolkit.py"
    assert "delete_item(rung" not in text, "textures are never deleted (G10)"


READ_BACK = {"output_frame_buffer", "save_image", "glReadPixels", "ImageGrab"}
"""What copies pixels from the window or the screen, in Dear PyGui, OpenGL and Pillow."""


@pytest.mark.parametrize("folder", ["app", "render", "assets"])
def test_G29_no_picture_is_read_back_from_the_window(folder: str) -> None:
    """It would come with overlays, at the size of the window and from behind other windows: pictures are our own render."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {getattr(node, "attr", ""), getattr(node, "id", "")} | {a.name for a in getattr(node, "names", [])
                                                                            if isinstance(a, ast.alias)}
            if isinstance(node, ast.Constant):   # as in getattr(dpg, "save_image")
                names.add(str(node.value))
            assert not names & READ_BACK, f"{path.name}:{node.lineno} {names & READ_BACK}"


def test_every_glyph_is_in_the_font() -> None:
    """Each character of each string that the window may show has a glyph in the bound fonts."""
    from matplotlib.ft2font import FT2Font

    from app.gui.theme import font_folder
    used = {c for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) for c in node.value if ord(c) >= 0x20}
    used |= set("α∂Σσ∇²·×−°äéλ")
    for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"):
        have = FT2Font(str(font_folder() / name)).get_charmap()
        assert not {c for c in used if ord(c) not in have}, name


def test_the_window_imports_neither_torch_nor_pycuda() -> None:
    """Rule 5 of the architecture, with Dear PyGui loaded; and importing app.gui.window loads no toolkit at all (I15)."""
    code = ("import sys, app.gui.window\nassert 'dearpygui' not in sys.modules\n"
            "import app.gui.shell\nassert 'dearpygui' in sys.modules\n"
            "bad = {'torch', 'pycuda', 'app.engine', 'app.training'} & set(sys.modules)\nassert not bad, bad")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
