"""Quantities of the alpha-rule laboratory: how the gradients of a view differ under the two rules that it compared last."""

from __future__ import annotations

from torch import Tensor

from app.training.densify.statistics import PER_NDC
from app.training.quantities.registry import Subject, probe


def _laboratory(name: str, label: str, unit: str) -> None:
    """B - A of a gradient under two alpha rules, as the laboratory last compared it (app/inspection/laboratory.py)."""

    @probe(f"lab_{name}", f"{label}, B − A", unit, signed=True, missing="compare two rules in the laboratory first",
           help="Difference of the gradients under the two alpha rules that the laboratory last compared.")
    def difference(subject: Subject) -> Tensor | None:
        return subject.training.state.rows.get(f"lab.{name}")


_laboratory("mean2d", "|∂L/∂mean2D|", PER_NDC)
_laboratory("opacity", "∂L/∂opacity", "")
_laboratory("means", "|∂L/∂mean|", "per world unit")
