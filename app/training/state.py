"""Everything that decides the steps to come, taken out of a trainer and put back: what a checkpoint holds.

A trainer that gets it back goes on bit for bit as the one it was taken from (on the CPU), before, at and after a
densification, and in the middle of a step too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from app.options import config_from, flatten
from app.training.arrays import host
from app.training.densify.lineage import Lineage
from app.training.trainer import Trainer
from app.training.verdict import Measured
from render.types import PARAM_GROUPS, GaussianParams

ROWS = "rows."
LINEAGE = "lineage."
KEPT = ("uids", *PARAM_GROUPS)
KEPT_PREFIXES = ("optimizer.", "adam.", "sgd.", "stat.", "mark.")
UNDER_WAY = ("grad.", "tap.", "last.")
"""Kept only in the middle of a step: the next one finds them anew."""


@dataclass(frozen=True)
class RunState:
    """`arrays` belong to nobody else and are never written again; `meta` is JSON."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def iteration(self) -> int:
        return int(self.meta["iteration"])

    @property
    def count(self) -> int:
        """Gaussians."""
        return len(self.arrays[f"{ROWS}uids"])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def params(self) -> GaussianParams:
        """The raw parameters, on the CPU."""
        return GaussianParams(**{name: torch.from_numpy(np.array(self.arrays[ROWS + name])) for name in KEPT})


class StateError(ValueError):
    """A state that this trainer cannot take up; one sentence for the user."""


def capture(trainer: Trainer) -> RunState:
    """A copy of all that matters. Raises TrainingStopped where a GPU still owes that the last step failed."""
    trainer.settle()
    rows, lineage = trainer.state.rows, trainer.lineage
    prefixes = (*KEPT_PREFIXES, *UNDER_WAY) if trainer.phase == "backward" else KEPT_PREFIXES
    arrays = {ROWS + name: np.array(host(rows[name])) for name in rows if name in KEPT or name.startswith(prefixes)}
    arrays |= {LINEAGE + name: array for name, array in lineage.arrays().items()}
    measured = trainer.measured
    meta = {
        "iteration": trainer.iteration, "phase": trainer.phase, "views_under_way": list(trainer.stepping.indices),
        "config": flatten(trainer.config), "last_config": flatten(trainer.last_config) if trainer.last_config else None,
        "optimizer": trainer.state.optimizer.memory(), "lineage": {"first_born": lineage.first_born},
        "rng": trainer.state.rng.bit_generator.state, "views": trainer.order.memory(),
        "view_names": [view.name for view in trainer.views], "extent": trainer.extent, "memory_cap": trainer.memory_cap,
        "strategy": trainer.strategy.memory(),
        "measured": [_json(value) for value in (measured.iteration, measured.loss, measured.l1, measured.mse, measured.ssim)],
        "said": sorted(trainer.said)}
    return RunState(arrays, meta)


def _json(value: float) -> float | None:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def restore(trainer: Trainer, state: RunState) -> list[str]:
    """Make a trainer of the same scene what it was; returns sentences about what could not be taken up (C12).

    The configuration becomes the saved one. Raises StateError, with nothing changed, for a state of another scene or one that
    is damaged.
    """
    arrays, meta = state.arrays, state.meta
    _check(trainer, state)
    config, notices = config_from(meta.get("config", {}))
    names = [name.removeprefix(ROWS) for name in arrays if name.startswith(ROWS)]
    params = GaussianParams(**{name: _tensor(arrays[ROWS + name], trainer.device) for name in KEPT})
    trainer.settle()
    trainer.config = config
    trainer.take_up(params)
    rows = trainer.state.rows
    for name in names:
        if name not in KEPT:
            rows.put(name, _tensor(arrays[ROWS + name], trainer.device))
    missing = [name for name in rows if ROWS + name not in arrays]
    if missing:
        notices.append(f"The checkpoint has no {', '.join(sorted({name.split('.')[0] for name in missing}))} of the "
                       "Gaussians, so these start anew.")
    trainer.state.optimizer.remember(meta.get("optimizer", {}))
    if f"{LINEAGE}parents" in arrays and "lineage" in meta:
        trainer.state.lineage = Lineage.of(int(meta["lineage"]["first_born"]), arrays[f"{LINEAGE}parents"],
                                           arrays[f"{LINEAGE}born"])
    if "rng" in meta:
        trainer.state.rng.bit_generator.state = meta["rng"]
    if "views" in meta:
        notices += trainer.order.remember(meta["views"])
    trainer.strategy.remember(meta.get("strategy", {}))
    trainer.said.update(meta.get("said", ()))
    if "extent" in meta:
        trainer.extent = trainer.state.extent = float(meta["extent"])
    notices += _cap(trainer, meta.get("memory_cap"))
    _step_under_way(trainer, meta)
    return notices


def _cap(trainer: Trainer, saved: int | None) -> list[str]:
    """The cap that free memory gave then decides, as long as it fits into the memory of now."""
    trainer.memory_cap, automatic = None, not trainer.config.densify.cap
    fits = trainer.cap
    if saved is not None and automatic and saved > 2 * fits:   # free memory varies, and the estimate is a careful one
        return [f"Free memory allows {fits:,} Gaussians now; when the checkpoint was made it allowed {saved:,}."]
    if saved is not None:
        trainer.memory_cap = saved
    trainer.state.cap = trainer.cap
    return []


def _step_under_way(trainer: Trainer, meta: Mapping[str, Any]) -> None:
    iteration, *figures = meta.get("measured") or (0,)
    trainer.measured = Measured(int(iteration), *(math.nan if value is None else float(value) for value in figures))
    trainer.iteration = int(meta["iteration"])
    stepping = trainer.stepping
    stepping.phase, stepping.indices = meta.get("phase", ""), list(meta.get("views_under_way", ()))
    trainer.last_view_index = stepping.indices[-1] if stepping.indices else None
    if stepping.phase == "backward":
        index = stepping.indices[-1]
        trainer.last_camera = trainer.views[index].camera
        trainer.last_config = config_from(meta.get("last_config") or {})[0]
        trainer.rows_changed()


def _check(trainer: Trainer, state: RunState) -> None:
    arrays, meta = state.arrays, state.meta
    absent = [name for name in KEPT if ROWS + name not in arrays]
    if absent:
        raise StateError(f"the checkpoint has no {', '.join(absent)}; it is damaged or was made by another program")
    for name, array in arrays.items():
        if name.startswith(ROWS) and len(array) != state.count:
            raise StateError(f"{name.removeprefix(ROWS)} has {len(array):,} rows where there are {state.count:,} Gaussians; "
                             "the checkpoint is damaged")
    saved, here = meta.get("view_names"), [view.name for view in trainer.views]
    if saved is not None and saved != here:
        raise StateError(f"the checkpoint was trained on {len(saved)} views{_first_difference(saved, here)}, this scene has "
                         f"{len(here)}; open the scene that it was made from, with the same held-out views")


def _first_difference(saved: list[str], here: list[str]) -> str:
    other = next((name for name in saved if name not in here), None)
    return f", {other} among them" if other is not None else ""


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(array)).to(device)   # a copy: training writes into it
