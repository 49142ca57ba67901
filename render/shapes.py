"""Shape documentation that runs: check(means=(means, "N 3"), quats=(quats, "N 4")) binds N once and compares the rest."""

from __future__ import annotations

from typing import Any


def check(**named: tuple[Any, str]) -> dict[str, int]:
    """Compare tensors with shape patterns and return the sizes bound to the letters.

    A pattern is a blank-separated list of integers and names; "_" matches any size.
    Raises ValueError naming the argument, the expected and the actual shape.
    """
    sizes: dict[str, int] = {}
    for name, (value, pattern) in named.items():
        shape = tuple(int(s) for s in value.shape)
        words = pattern.split()
        ok = len(words) == len(shape)
        for word, size in zip(words, shape):
            if not ok or word == "_":
                continue
            expected = int(word) if word.isdigit() else sizes.setdefault(word, size)
            ok = expected == size
        if not ok:
            bound = ", ".join(f"{k}={v}" for k, v in sizes.items())
            raise ValueError(f"{name}: expected shape [{pattern}]{f' with {bound}' if bound else ''}, got {list(shape)}")
    return sizes
