"""The registry of every array that has one row per Gaussian: what is registered here cannot be forgotten by surgery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from render.types import PARAM_GROUPS, GaussianParams


class Rows:
    """Named tensors with the same number of rows: parameters, uids, Adam moments, statistics, last gradients (F08).

    `generation` counts surgeries: row indices taken before one are invalid after it (F05).
    """

    def __init__(self, params: GaussianParams) -> None:
        self.generation = 0
        self._arrays: dict[str, Tensor] = {}
        self._params = params
        self._count = len(params)
        for name, tensor in params.trained().items():
            self.put(name, tensor.detach().contiguous().requires_grad_())
        self.put("uids", params.uids)
        self._rebuild()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Tensor:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def get(self, name: str) -> Tensor | None:
        return self._arrays.get(name)

    def put(self, name: str, tensor: Tensor) -> None:
        """Register or replace an array. Raises ValueError when it has another number of rows."""
        if tensor.shape[0] != self._count:
            raise ValueError(f"{name}: expected {self._count} rows, one per Gaussian, got {tensor.shape[0]}")
        self._arrays[name] = tensor

    def drop(self, prefix: str) -> None:
        """Forget the arrays whose names start with `prefix`."""
        for name in [name for name in self._arrays if name.startswith(prefix)]:
            del self._arrays[name]

    @property
    def params(self) -> GaussianParams:
        """The trained parameters: leaves that require gradients. A new object after every surgery."""
        return self._params

    def surgery(self, keep: Tensor, born: Mapping[str, Tensor], count: int) -> None:
        """Keep the rows `keep` (int64 [S], their bits untouched) and append `count` rows.

        `born` gives the new rows of the arrays that have some, by name; all the others get zeros.
        """
        new: dict[str, Tensor] = {}
        for name, array in self._arrays.items():
            old = array.detach()
            tail = born.get(name)
            if tail is None:
                tail = old.new_zeros((count, *old.shape[1:]))
            elif tail.shape[0] != count:
                raise ValueError(f"{name}: expected {count} new rows, got {tail.shape[0]}")
            grown = old.new_empty((len(keep) + count, *old.shape[1:]))
            torch.index_select(old, 0, keep, out=grown[: len(keep)])
            grown[len(keep):] = tail.detach()
            new[name] = grown.requires_grad_(name in PARAM_GROUPS)
        self._arrays = new
        self._count = len(keep) + count
        self.generation += 1
        self._rebuild()
        self.check()

    def inherited(self, parents: Tensor) -> dict[str, Tensor]:
        """The marks of the rows `parents` [B], for their children: what descends from a selected Gaussian is selected."""
        return {name: array[parents] for name, array in self._arrays.items() if name.startswith("mark.")}

    def move(self, device: torch.device) -> None:
        """Everything to another device; when it does not fit there, nothing has changed."""
        moved = {name: array.detach().to(device).requires_grad_(name in PARAM_GROUPS) for name, array in self._arrays.items()}
        self._arrays = moved
        self._rebuild()

    def check(self) -> None:
        """Every array has as many rows as there are Gaussians. Raises RuntimeError naming those that have not."""
        wrong = {name: array.shape[0] for name, array in self._arrays.items() if array.shape[0] != self._count}
        if wrong:
            raise RuntimeError(f"arrays out of step with {self._count} Gaussians: {wrong}")

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by kind: parameters, adam, statistics and gradients."""
        kinds = {"parameters": 0, "adam": 0, "statistics": 0, "gradients": 0}
        prefixes = {"adam": "adam", "sgd": "adam", "stat": "statistics", "mark": "statistics", "grad": "gradients",
                    "tap": "gradients"}
        for name, array in self._arrays.items():
            kinds[prefixes.get(name.split(".")[0], "parameters")] += array.numel() * array.element_size()
        return kinds

    def _rebuild(self) -> None:
        self._params = GaussianParams(**{name: self._arrays[name] for name in (*PARAM_GROUPS, "uids")})
