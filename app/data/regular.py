"""Files that can be read to their end."""

from __future__ import annotations

import stat
from pathlib import Path


def regular(path: Path) -> Path:
    """The path. Raises OSError, words for the brackets of a sentence, where it is a pipe, a device or a socket: opening one
    may wait forever, and reading one may never end. A folder, and nothing at all, fail by themselves when they are opened.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError("it is not a regular file")
    return path
