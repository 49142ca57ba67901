"""Edits of the Gaussians themselves, each with its way back. Everything that has a row per Gaussian goes along."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from app.engine.model import Model
from app.training.arrays import host
from app.training.densify.operations import reset_opacity
from render.types import GaussianParams


@dataclass(frozen=True)
class Marked:
    """A set of Gaussians by uid, as it was when `next_uid` was the next to be handed out."""

    uids: np.ndarray    # [K] int64
    next_uid: int

    @staticmethod
    def of(model: Model, mask: np.ndarray) -> Marked:
        uids = host(model.params.uids)
        lineage = model.trainer.lineage if model.trainer is not None else None
        return Marked(uids[mask], lineage.next_uid if lineage is not None else int(uids.max(initial=-1)) + 1)

    def living(self, model: Model) -> np.ndarray:
        """[N] bool: those that are still there, and what has descended from the set since."""
        uids = host(model.params.uids)
        if model.trainer is None or not len(self.uids):
            return np.isin(uids, self.uids)
        ancestors = model.trainer.lineage.ancestors(uids, self.next_uid)
        return np.isin(ancestors, self.uids)


class Edit(Protocol):
    nbytes: int

    def apply(self, model: Model) -> None: ...

    def revert(self, model: Model) -> None: ...


class Removal:
    """Gaussians taken out of the model, with all that training knows of them."""

    def __init__(self, model: Model, mask: np.ndarray) -> None:
        self._uids = Marked.of(model, mask)
        self._rows: dict[str, Tensor] = {}
        self._when: tuple[int, object] = 0, None   # iteration, and the last densification before it
        self.nbytes = 0

    def apply(self, model: Model) -> None:
        mask = torch.from_numpy(self._uids.living(model)).to(model.params.means.device)
        gone, keep = torch.nonzero(mask)[:, 0], torch.nonzero(~mask)[:, 0]
        arrays = _arrays(model)
        self._when = model.iteration, _last_record(model)
        self._rows = {name: array.detach()[gone] for name, array in arrays.items()}
        self.nbytes = sum(array.numel() * array.element_size() for array in self._rows.values())
        if model.trainer is not None:
            model.trainer.state.rows.surgery(keep, {}, 0)
            model.trainer.edited()
        else:
            _replace(model, {name: array[keep] for name, array in arrays.items()})
        model.moved()

    def revert(self, model: Model) -> None:
        self._marks_again(model)
        arrays = _arrays(model)
        count = len(self._rows["uids"])
        back = {name: saved.to(arrays[name].device) for name, saved in self._rows.items()
                if name in arrays and saved.shape[1:] == arrays[name].shape[1:] and not name.startswith(self._stale(model))}
        if model.trainer is not None:
            rows = model.trainer.state.rows
            rows.surgery(torch.arange(len(rows), device=rows["uids"].device), back, count)
            model.trainer.edited()
        else:
            _replace(model, {name: torch.cat([array, back[name]]) if name in back else
                             torch.cat([array, array.new_zeros((count, *array.shape[1:]))])
                             for name, array in arrays.items()})
        model.moved()


    def _marks_again(self, model: Model) -> None:
        """A mark that nobody carries any more is put back for those who did."""
        if model.trainer is not None:
            rows = model.trainer.state.rows
            for name, saved in self._rows.items():
                if name.startswith("mark.") and name not in rows and bool(saved.any()):
                    rows.put(name, torch.zeros(len(rows), dtype=saved.dtype, device=rows["uids"].device))

    def _stale(self, model: Model) -> tuple[str, ...]:
        """Arrays that speak of a step, or of views since a densification, in which these rows took no part: zeros are true."""
        iteration, record = self._when
        if model.iteration == iteration:
            return ()
        old = ("grad.", "tap.", "last.", "lab.")
        return old if _last_record(model) is record else (*old, "stat.")


def _last_record(model: Model) -> object:
    records = model.trainer.records if model.trainer is not None else None
    return records[-1] if records else None


class OpacityReset:
    """Opacities lowered to what a reset of all would lower them to; Adam forgets their moments."""

    def __init__(self, model: Model, mask: np.ndarray) -> None:
        self._marked = Marked.of(model, mask)
        self._uids, self._before = np.empty(0, np.int64), np.empty(0, np.float32)
        self.nbytes = 12 * int(mask.sum())

    def apply(self, model: Model) -> None:
        value = reset_opacity(model.options)
        living = self._marked.living(model)
        # read anew each time: between an undo and a redo training may have gone on
        self._uids, self._before = host(model.params.uids)[living], host(model.params.logit_opacities)[living].copy()
        mask = torch.from_numpy(living).to(model.params.means.device)
        with torch.no_grad():
            logits = model.params.logit_opacities
            logits.copy_(torch.where(mask, logits.clamp(max=math.log(value / (1.0 - value))), logits))
            self._forget(model, mask)
        self._done(model)

    def revert(self, model: Model) -> None:
        """Those that are still there get their opacity back; what has descended from them since keeps its own."""
        uids = host(model.params.uids)
        order = np.argsort(self._uids, kind="stable")
        place = np.searchsorted(self._uids, uids, sorter=order).clip(max=len(order) - 1)
        source = order[place]
        found = self._uids[source] == uids
        with torch.no_grad():
            logits = model.params.logit_opacities
            mask = torch.from_numpy(found).to(logits.device)
            logits.copy_(torch.where(mask, torch.from_numpy(self._before[source]).to(logits), logits))
            self._forget(model, mask)
        self._done(model)

    @staticmethod
    def _forget(model: Model, mask: Tensor) -> None:
        if model.trainer is not None:
            model.trainer.state.optimizer.forget("logit_opacities", mask)

    @staticmethod
    def _done(model: Model) -> None:
        if model.trainer is not None:
            model.trainer.edited()
        model.moved()


def _arrays(model: Model) -> dict[str, Tensor]:
    """Everything with a row per Gaussian, by name."""
    if model.trainer is not None:
        rows = model.trainer.state.rows
        return {name: rows[name] for name in rows}
    return {**{f.name: getattr(model.params, f.name) for f in fields(GaussianParams)}, **model.marks}


def _replace(model: Model, arrays: dict[str, Tensor]) -> None:
    """The same of a model that nobody trains."""
    names = {f.name for f in fields(GaussianParams)}
    model.fixed_params = replace(model.params, **{name: array for name, array in arrays.items() if name in names})
    model.marks = {name: array for name, array in arrays.items() if name not in names}
