"""What instrument "optimiser" answers. Torch-free, for the window reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class GroupUpdates:
    """How far the optimiser moves one parameter group, while somebody looks. A mean is over all numbers of all Gaussians,
    that of |update| without those that were born since."""

    group: str
    rule: str                  # of the last step
    rate: float                # learning rate of that step, factor included
    steps: int                 # that Adam took on it since it began
    update: float              # mean |update| of the last step; NaN = there was none, it is pending, or it is forgotten
    size: float                # mean |parameter|
    iterations: np.ndarray     # [P] when it was read
    updates: np.ndarray        # [P] mean |update| then
    ratios: np.ndarray         # [P] mean |update| / mean |parameter| then
    forgotten: bool = False    # what it is read from was changed since: a densification, a reset, an edit by hand


@dataclass(frozen=True)
class Updates:
    iteration: int             # of the step whose update this is
    pending: bool              # its gradients are known, the update is still to come
    groups: tuple[GroupUpdates, ...]
