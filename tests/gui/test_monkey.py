"""Clicks, drags and keys at random places of the real window, with the whole program behind it: it goes on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gui.conftest import Window
from tests.gui.test_laboratory import START

SECONDS = 20.0
KEYS = ("space", "n", "n", "o", "g", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "bracketleft", "bracketright", "f",
        "u", "l", "c", "x", "i", "p", "h", "F1", "Escape", "Escape", "Return", "Tab", "BackSpace", "Delete", "ctrl+z", "ctrl+y",
        "ctrl+a", "ctrl+i", "ctrl+e", "ctrl+s", "ctrl+o", "t", "b", "r", "v", "k", "w", "a", "s", "d", "q", "e", "period",
        "minus", "Left", "Right", "Up", "Down", "Home", "End", "Page_Down")


def actions(rng: random.Random) -> list[object]:
    """Words for one call of xdotool: some of what a hand does in a second."""
    words: list[object] = ["key", "Escape", "key", "Escape"]   # what covers the window goes, sooner or later
    for _ in range(12):
        x, y = rng.randrange(1280), rng.randrange(720)
        if rng.random() < 0.4:   # the inspector, where most controls are
            x = rng.randrange(940, 1275)
        kind = rng.random()
        words += ["mousemove", x, y, "sleep", 0.03]
        if kind < 0.45:
            words += ["click", 1]
        elif kind < 0.55:
            words += ["click", rng.choice([2, 3])]
        elif kind < 0.65:
            words += ["click", "--repeat", rng.randrange(1, 6), rng.choice([4, 5])]
        elif kind < 0.78:
            words += ["mousedown", rng.choice([1, 1, 2, 3]), "sleep", 0.04, "mousemove_relative", "--",
                      rng.randrange(-200, 200), rng.randrange(-150, 150), "sleep", 0.04, "mouseup", 1, "mouseup", 2,
                      "mouseup", 3]
        else:
            words += ["key", rng.choice(KEYS)]
        words += ["sleep", rng.choice([0.0, 0.02, 0.08])]
    return words


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1])
def test_random_clicks_and_keys_never_stop_the_program(make_window: Callable[..., Window], tmp_path: Path, seed: int) -> None:
    window = make_window(demo=True, folder=tmp_path, alone=True)
    window.peek_for("shell.model.snapshot.iteration > 3", START)
    rng, received = random.Random(seed), window.peek("engine.commands_done")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        window.input(*actions(rng))
        assert window.process.poll() is None, "the program ended"
    window.input("key", "Escape", "key", "Escape", "key", "Escape")
    frames = window.get("shell.frames")      # it answers
    window.wait_for(f"shell.frames > {frames + 3}")
    assert window.peek("engine.alive") and window.peek("engine.commands_done") > received + 10
    assert window.errors is not None
    said = window.errors.read_text()
    assert "Traceback" not in said and " failed: " not in said, said[-4000:]
    assert window.get("shell._complained == set() and shell.model.failure is None")
    assert window.close() == 0
    assert "Traceback" not in window.errors.read_text()
