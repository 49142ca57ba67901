"""Append-only files of one JSON object a line: a killed process loses at most the lines that were not yet written.

A line that is torn (the power went while it was written) is left out by readers, and the next writer begins a new one.
A line {"cut": K, "branch": NAME, "parent": OTHER, "new": true} says that the run goes on as branch NAME from iteration K, on
the past of its parent; without "new" on its own, if it has one. A name is new again when its branch was deleted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.data.checkpoints import MAIN

METRICS, EVENTS, EVALUATIONS = "metrics.jsonl", "events.jsonl", "eval.jsonl"
"""In the folder of a run."""
LIMIT = 20_000
"""Lines kept for a disk that is full now; older ones are given up."""


def plain(value: Any) -> Any:
    """A value as JSON has it: floats with 6 digits, null for what is not finite, text for what JSON does not know."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    with contextlib.suppress(AttributeError, ValueError):   # numpy's numbers
        return plain(value.item())
    return str(value)


class Lines:
    """A file that grows. add() keeps a line in memory, write() hands all of them to the system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: deque[str] = deque(maxlen=LIMIT)

    def add(self, entry: Mapping[str, Any]) -> None:
        self._waiting.append(json.dumps(plain(entry), separators=(",", ":"), ensure_ascii=False) + "\n")

    def write(self) -> None:
        """Raises OSError where the lines cannot be written: none of them is in the file then, all wait for the next time."""
        if not self._waiting:
            return
        data = "".join(self._waiting).encode()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            end = os.lseek(file, 0, os.SEEK_END)
            if end:
                os.lseek(file, end - 1, os.SEEK_SET)
                if os.read(file, 1) != b"\n":   # torn: it must not swallow the line that comes now
                    data = b"\n" + data
            try:
                while data:
                    data = data[os.write(file, data):]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, end)
                raise
        finally:
            os.close(file)
        self._waiting.clear()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a file, in order; nothing where there is no file. Raises OSError where it cannot be read."""
    if not path.exists():
        return []
    if not path.is_file():   # a pipe would wait forever for somebody who writes
        raise OSError(f"{path.name} is not a regular file")
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:   # empty, torn or damaged
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def branches(entries: Iterable[Mapping[str, Any]], *, steps: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The lines of each branch of a run by its name, with the past that it shares; the last is the one that the run is on.

    Of `steps` there is one an iteration: one that comes again replaces the old one and all after it. Of events there may be
    many. What was written before the first cut is the first branch's.
    """
    name, rows = MAIN, []
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if "cut" in entry:
            found[name] = rows
            name = str(entry.get("branch") or name)
            past = found.pop(name, None)   # one that is taken up again becomes the last
            past = None if entry.get("new") else past
            rows = found.get(str(entry.get("parent")), []) if past is None else past
            rows = [row for row in rows if row["iteration"] <= entry["cut"]] if _number(entry["cut"]) else list(rows)
        elif _number(entry.get("iteration")):
            while steps and rows and rows[-1]["iteration"] >= entry["iteration"]:
                rows.pop()
            rows.append(dict(entry))
    return {other: past for other, past in found.items() if past and other != name} | {name: rows}


def current(entries: Iterable[Mapping[str, Any]], *, steps: bool = True) -> list[dict[str, Any]]:
    """The lines of the branch that the run is on."""
    return list(branches(entries, steps=steps).values())[-1]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
