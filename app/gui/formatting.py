"""Numbers as the window writes them: short, aligned, never a guess where there is no number."""

from __future__ import annotations

import math
import re

import numpy as np

NONE = "–"


def number(value: float, digits: int = 3) -> str:
    """Three significant digits; scientific only where plain digits would mislead. NaN is a dash."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1e5 or magnitude < 1e-3:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(magnitude)))
    return f"{value:.{decimals}f}"


def count(value: int) -> str:
    """12 345 with thin grouping that cannot be read as a decimal comma."""
    return f"{value:,}".replace(",", " ")


_GROUPED = re.compile(r"(?<![\w.,'\"])[1-9]\d{0,2}(?:,\d{3})+(?![\w,'\"]|\.\d)")


def spaced(text: str) -> str:
    """A sentence of the engine with its 1,234 written as count() writes them; paths and quoted names stay as they are."""
    return " ".join(word if "/" in word or "\\" in word else _GROUPED.sub(lambda found: found[0].replace(",", " "), word)
                    for word in text.split(" "))


_MARKS = re.compile(r"\((?:R|TM|tm)\)|\b(?:CPU|Processor|Graphics)\b|@.*")


def chip(name: str) -> str:
    """A processor's name without what they all have: "Intel(R) Xeon(R) Processor @ 2.60GHz" is an Intel Xeon."""
    return " ".join(_MARKS.sub(" ", name).split())


def size(bytes_: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(bytes_) < 1024 or unit == "GiB":
            return f"{bytes_:.0f} {unit}" if unit in ("B", "KiB") or bytes_ >= 100 else f"{bytes_:.1f} {unit}"
        bytes_ /= 1024
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """Two largest units: 3 min 20 s, 2 h 05 min."""
    if not math.isfinite(seconds) or seconds < 0:
        return NONE
    whole = int(round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rate(steps_per_second: float) -> str:
    """it/s, or s/it where a step takes longer than a second."""
    if not steps_per_second > 0:
        return NONE
    if steps_per_second < 1:
        return f"{1 / steps_per_second:.1f} s/it"
    return f"{steps_per_second:.1f} it/s" if steps_per_second < 100 else f"{steps_per_second:.0f} it/s"


def decibel(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.2f} dB"


def vector(values: np.ndarray) -> str:
    """Fixed columns, so that successive values stay in place while they change."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    return " ".join(f"{number(float(v)):>9}" for v in flat)
