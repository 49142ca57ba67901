"""The README says what is there: files, equations, keys, flags and commands that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.__main__ import COMMANDS
from app.gui.actions import SHORTCUTS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_file_it_names_exists() -> None:
    inline = re.findall(r"`((?:app|render|cuda_src|assets|tests)/[\w./]*)`|\((assets/[\w./]+)\)", README)
    named = [a or b for a, b in inline]
    assert len(named) > 20
    assert [n for n in named if not (ROOT / n).exists()] == []


def test_every_equation_it_cites_stands_beside_the_code() -> None:
    walk = README[README.index("## One mean's walk"):README.index("## Where things are")]
    cited = {e for group in re.findall(r"\(((?:[A-Z]\d(?:, )?)+)\)", walk) for e in group.split(", ")}
    assert len(cited) > 12
    sources = "".join(p.read_text(encoding="ascii") for p in (ROOT / "cuda_src" / "math").glob("*.h"))
    assert sorted(cited - set(re.findall(r"Eq\. ([A-Z]\d)", sources))) == []


def test_its_keys_are_those_of_the_window() -> None:
    table = README[README.index("### Keys"):README.index("## One mean's walk")]
    for shortcut in SHORTCUTS:
        if not shortcut.shown:
            continue
        if shortcut.shown.isdigit():
            continue
        assert shortcut.shown in table, f"{shortcut.shown}: {shortcut.help}"
    assert "0 – 9" in table and {s.shown for s in SHORTCUTS if s.shown.isdigit()} == set("0123456789")


def test_G27_the_release_checklist_has_a_smoke_test_on_windows() -> None:
    checklist = README[README.index("## Before a release"):README.index("## Troubleshooting")]
    for word in ("Windows", "Install", "opens", "Resize", "Minimise", "Close it while it trains", "%ERRORLEVEL%"):
        assert word in checklist, word
    keys = {s.shown for s in SHORTCUTS}
    named = set(re.findall(r"Ctrl\+[A-Z]", checklist))
    assert named and named <= keys


def test_its_commands_and_flags_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    from app.__main__ import main

    every = {c for c in COMMANDS if c}
    commands = set(re.findall(rf"`?splatscope ({'|'.join(sorted(every))})\b", README))
    assert commands == every
    for command in (*every, ""):
        with pytest.raises(SystemExit):
            main([command, "--help"] if command else ["--help"])
    words = capsys.readouterr().out
    named = set(re.findall(r"(--[a-z][\w.]+)", README)) - {"--json", "--debug", "--help"}
    assert len(named) > 6
    assert [flag for flag in named if flag not in words] == []
