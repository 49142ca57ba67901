"""The callback queue of Dear PyGui, emptied by hand so that one defect costs one callback. No Dear PyGui in here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def run_jobs(jobs: Sequence[Sequence[Any]] | None, failed: Callable[[BaseException], None]) -> None:
    """Run queued Dear PyGui callbacks, each guarded: unguarded, one exception drops all that are queued behind it."""
    for job in jobs or ():
        callback = job[0]
        if callback is None:
            continue
        try:
            taken = len(inspect.signature(callback).parameters)
            callback(*job[1:1 + taken])
        except Exception as error:  # noqa: BLE001 - shown to the user
            failed(error)
