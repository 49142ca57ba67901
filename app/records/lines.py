"""Append-only files of one JSON object a line: a killed process loses at most the lines that were not yet written.

A line that is torn (the power went while it was written) is left out by readers, and the next writer begins a new one.
A line {"cut": K} takes everything after iteration K back: what follows it was trained from there again.
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
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:   # empty, torn or damaged
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def branches(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each branch of a run by its name, with rising iterations; the last is the one that the run is on.

    A cut {"cut": K, "branch": NAME} leaves the branch of before as it is, under its own name, and goes on from K as NAME;
    a cut without a name takes rows back. An iteration that comes again replaces the old one and all after it.
    """
    name, rows = "", []
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if "cut" in entry:
            if "branch" in entry:
                found[name] = rows
                name = str(entry["branch"])
                rows = found.pop(name, rows)   # one that is taken up again has its own, and becomes the last
            last = entry["cut"]
            rows = [row for row in rows if row["iteration"] <= last] if _number(last) else rows
        elif _number(entry.get("iteration")):
            while rows and rows[-1]["iteration"] >= entry["iteration"]:
                rows.pop()
            rows.append(dict(entry))
    found[name] = rows
    return found


def current(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the branch that the run is on."""
    return list(branches(entries).values())[-1]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
