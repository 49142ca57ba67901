"""The progress bar of the command line."""

from __future__ import annotations

import sys

from tqdm import tqdm

TERMINAL_SECONDS = 0.2
FILE_SECONDS = 5.0
"""A bar is drawn anew after so long; in a file or a log each drawing stays, as a line of its own."""


def progress_bar(total: int, *, unit: str, desc: str, quiet: bool, initial: int = 0) -> tqdm:
    """On stderr; as wide as the terminal, where there is one."""
    terminal = sys.stderr.isatty()
    return tqdm(total=total, initial=initial, disable=quiet, file=sys.stderr, unit=unit, desc=desc, dynamic_ncols=terminal,
                mininterval=TERMINAL_SECONDS if terminal else FILE_SECONDS)
