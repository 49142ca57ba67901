"""Long lists of cases: a part of them runs by default, all of them with `-m thorough`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_third(cases: Iterable[Any]) -> list[Any]:
    """Values for parametrize(): the first of each three is a default test, the others are thorough."""
    return [case if index % 3 == 0 else pytest.param(case, marks=pytest.mark.thorough) for index, case in enumerate(cases)]
