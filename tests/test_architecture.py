"""The house rules, checked: who imports whom, how long a file may grow, what must never be written down."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "render", "cuda_src", "assets")
SOFT_FILE, SOFT_FUNCTION = 400, 60
HARD_FILE, HARD_FUNCTION = 600, 100
"""Above the soft limits a warning names the place; above the hard ones the test fails."""


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the repository: what git tracks, with what is new and not ignored."""
    listing = subprocess.run(
        ["git", "-c", "core.quotepath=off", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    paths = [ROOT / line for line in listing.stdout.splitlines()]
    return tuple(p for p in paths if p.is_file())


def python_files(*folders: str) -> Iterator[Path]:
    for path in tracked():
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in (folders or (*PACKAGES, "tests")):
            yield path


def text_files() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(module: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """(module name, statement) of each import anywhere below; `from a import b` gives both a and a.b."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


# ---------------------------------------------------------------- who imports whom
def test_import_contracts_hold() -> None:
    result = run_python("from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert "0 broken" in result.stdout


def test_the_reference_stands_on_types_shapes_and_config_alone() -> None:
    allowed = ("render.types", "render.shapes", "render.config", "render.reference")
    files = [p for p in python_files("render") if p.parent.name == "reference"]
    assert len(files) > 3
    for path in files:
        for module, _ in imports(tree(path)):
            ours = module.split(".")[0] in ("render", "app", "cuda_src", "assets")
            assert not ours or module.startswith(allowed), f"{name(path)} imports {module}"


def test_only_the_window_imports_dear_pygui() -> None:
    users = {
        name(p)
        for p in python_files("app", "render", "assets")
        for m, _ in imports(tree(p))
        if m.split(".")[0] == "dearpygui"
    }
    assert users, "no file imports dearpygui: this test looks in the wrong place"
    assert all(u.startswith("app/gui/") for u in users), users


def test_I01_I15_pycuda_is_imported_by_one_module_only_when_it_is_needed() -> None:
    for path in python_files("app", "render", "assets"):
        module = tree(path)
        for imported, statement in imports(module):
            if imported.split(".")[0] != "pycuda":
                continue
            assert name(path) == "render/backends/cuda.py", f"{name(path)} imports {imported}"
            assert statement not in module.body, f"{name(path)} imports pycuda when it is itself imported"


def test_I01_I03_no_context_but_the_primary_one() -> None:
    forbidden = ("pycuda." + "autoinit", "make_" + "context", "autoprimary" + "ctx")
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        for word in forbidden:
            assert word not in text, f"{name(path)} mentions {word}"


LAZY = """
import importlib, pkgutil, sys
import {package}
for info in pkgutil.walk_packages({package}.__path__, "{package}."):
    if not info.name.endswith("__main__"):
        importlib.import_module(info.name)
heavy = [m for m in {absent} if m in sys.modules]
sys.exit("loaded: " + ", ".join(heavy) if heavy else 0)
"""


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("app.gui", ("torch", "pycuda", "pycolmap")),
        ("app.data", ("torch", "pycuda", "dearpygui")),
        ("app.records", ("torch", "pycuda", "dearpygui", "app.engine", "app.training")),
        ("app.training", ("pycuda", "dearpygui", "app.gui")),
        ("app.engine", ("pycuda", "dearpygui", "app.gui")),
        ("render", ("pycuda", "dearpygui", "app")),
    ],
)
def test_I15_importing_a_package_leaves_the_others_alone(package: str, absent: tuple[str, ...]) -> None:
    result = run_python(LAZY.format(package=package, absent=absent))
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize(
    "module", ["app.__main__", "app.config", "app.messages", "app.mailbox", "render.config", "render.types"]
)
def test_light_modules_load_neither_torch_nor_the_window(module: str) -> None:
    result = run_python(
        f"import sys, {module}; sys.exit(str([m for m in ('torch', 'dearpygui', 'pycuda') if m in sys.modules] or ''))"
    )
    assert result.stderr.strip() == "", result.stderr[-2000:]


def test_the_command_line_catches_ctrl_c_before_anything_slow_is_loaded() -> None:
    result = run_python("import sys, app.__main__; sys.exit(str([m for m in ('tyro', 'numpy') if m in sys.modules] or ''))")
    assert result.stderr.strip() == "", result.stderr[-2000:]


# ---------------------------------------------------------------- how it is written
def test_package_init_files_are_empty() -> None:
    inits = [p for p in python_files() if p.name == "__init__.py"]
    assert len(inits) > 5
    assert [name(p) for p in inits if p.read_text(encoding="utf-8").strip()] == []


def test_only_the_agreed_folders_stand_at_the_top() -> None:
    top = {p.relative_to(ROOT).parts[0] for p in tracked()}
    assert {t for t in top if not t.startswith(".")} <= {*PACKAGES, "tests", "pyproject.toml", "README.md", "LICENSE"}


def test_files_and_functions_stay_short() -> None:
    long_ones, too_long = [], []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        sizes = [(name(path), text.count("\n"), SOFT_FILE, HARD_FILE)]
        sizes += [
            (
                f"{name(path)}:{node.lineno} {node.name}",
                (node.end_lineno or 0) - node.lineno + 1,
                SOFT_FUNCTION,
                HARD_FUNCTION,
            )
            for node in ast.walk(tree(path))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        for label, lines, soft, hard in sizes:
            if lines > hard:
                too_long.append(f"{label}: {lines} lines")
            elif lines > soft:
                long_ones.append(f"{label}: {lines} lines")
    if long_ones:
        warnings.warn("longer than the soft limit: " + "; ".join(long_ones), stacklevel=1)
    assert too_long == []


def test_I21_kernel_sources_are_ascii() -> None:
    sources = [p for p in tracked() if name(p).startswith("cuda_src/")]
    assert sources
    for path in sources:
        path.read_bytes().decode("ascii")


def test_no_compiler_flag_gives_up_infinities_or_denormals() -> None:
    flags = ("-ffast" + "-math", "-ffinite" + "-math-only", "-O" + "fast")
    for path in python_files("app", "render"):
        # a comment may name them to say why they are not used; a string may not
        strings = [n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        assert not [s for s in strings if s in flags], name(path)


def test_no_machine_path_or_registry_host_is_written_down() -> None:
    folders = "|".join(("wo" + "rk", "op" + "t", "ro" + "ot", "tm" + "p"))
    hosts = ("pypi" + r"\.org", "python" + "hosted", "npm" + r"js\.", "deb" + r"\.debian", "download" + r"\.pytorch")
    pattern = re.compile(rf"(?<![\w.~$}}/-])/(?:{folders})/|/home/\w|" + "|".join(hosts))
    found = [f"{name(path)}: {match.group(0)}" for path, text in text_files() for match in pattern.finditer(text)]
    assert found == []


def test_ruff_is_content() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=concise", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]


@pytest.mark.slow   # it fetches a part of itself where that is not there yet
def test_pyright_is_content() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0 and "0 errors" in result.stdout, result.stdout[-4000:] + result.stderr[-1000:]
