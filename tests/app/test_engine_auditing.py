"""Auditing foreign code from the window's side of the engine: it may end its process, and is not believed for it."""

from __future__ import annotations

import pytest

from app import messages as m
from app.__main__ import main
from tests.app.engine_doubles import running_engine

ENDING = """
import os, sys
from app.inspection.audit import plain
def polite(*arguments): sys.exit(0)
def rude(*arguments): os._exit(0)
"""


@pytest.fixture
def ending(tmp_path, monkeypatch):
    (tmp_path / "rasterizers_that_end.py").write_text(ENDING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


def test_a_rasterizer_that_ends_the_process_is_no_faultless_one(ending, capsys):
    assert main(["audit", "rasterizers_that_end:polite"]) == 2
    said = capsys.readouterr()
    assert "SystemExit" in said.err and not said.out


@pytest.mark.thorough
@pytest.mark.parametrize("function", ["polite", "rude"])
def test_the_window_does_not_take_silence_for_a_report(ending, function):
    with running_engine() as window:
        window.send(m.AuditRasterizer(f"rasterizers_that_end:{function}", own_scene=False))
        window.until(lambda: any("rasterizers_that_end" in e.text for e in window.of(m.Notice)))
        assert not window.of(m.Audited)


@pytest.mark.parametrize("target", ["", "--help", "-h plain"])
def test_what_is_no_name_is_refused(target):
    with running_engine() as window:
        window.send(m.AuditRasterizer(target))
        window.until(lambda: any("Name the rasterizer" in e.text for e in window.of(m.Notice)))
        assert not window.of(m.Audited) and window.snapshot.job is None
