"""What the user marks Gaussians with: names of [N] bool arrays in the registry of rows, absent where nothing has the mark."""

from __future__ import annotations

SELECTED = "mark.selected"
HIDDEN = "mark.hidden"    # pictures leave it out
FROZEN = "mark.frozen"    # training leaves it alone
MARKS = (SELECTED, HIDDEN, FROZEN)
