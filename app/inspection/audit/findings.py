"""What is known so far in an audit, and the one question that is asked again and again: does this setting draw the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from app.inspection.audit import oracle
from app.inspection.audit.target import Target
from app.inspection.audit.types import Probe, Report, Rules, relative_error

FLOAT32_IMAGE, FLOAT32_GRADIENT, FLOAT32_MARGIN = 2e-5, 1e-3, 1e-4
FLOAT64_IMAGE, FLOAT64_GRADIENT, FLOAT64_MARGIN = 1e-8, 1e-6, 1e-7
"""Relative errors that are allowed, and how near to a threshold rounding decides. Gradients of float32 kernels are sums of
many terms of both signs; the mistakes looked for change them by more than 1 %."""


@dataclass(frozen=True)
class Alternative:
    """A setting of the rules that explains a picture. `id` "" = a mode, not a fault."""

    changes: dict[str, Any]
    id: str
    explanation: str


@dataclass
class Findings:
    target: Target
    report: Report
    unexplained: list[str] = field(default_factory=list)   # probes whose picture no setting draws
    margin: float = FLOAT64_MARGIN

    @property
    def rules(self) -> Rules:
        return self.report.rules

    def learn(self, **changes: Any) -> None:
        """The rasterizer follows these rules."""
        self.report.rules = replace(self.rules, **changes)

    def set_precision(self, name: str) -> None:
        """Tolerances for numbers of a precision, "float64" or "float32"."""
        report = self.report
        report.precision = name
        single = name == "float32"
        report.image_tolerance = FLOAT32_IMAGE if single else FLOAT64_IMAGE
        report.gradient_tolerance = FLOAT32_GRADIENT if single else FLOAT64_GRADIENT
        self.margin = FLOAT32_MARGIN if single else FLOAT64_MARGIN

    def matches(self, image: Tensor, probe: Probe, rules: Rules) -> tuple[bool, float]:
        """(whether `rules` draw this image of the probe, relative error on the pixels that rounding cannot flip)."""
        picture = oracle.draw(probe, rules, margin=self.margin)
        error = masked_error(image, picture)
        return error <= self.report.image_tolerance, error

    def ask(self, probe: Probe, alternatives: Sequence[Alternative], default_id: str, otherwise: str) -> bool:
        """Whether the rules, or one of the alternatives, draw what the rasterizer draws of the probe.

        A picture that none explains is the fault `default_id`, explained by `otherwise`: the probe asks about one thing only.
        """
        image = self.target.image(probe)
        same, error = self.matches(image, probe, self.rules)
        if same:
            return True
        for alternative in alternatives:
            changed = replace(self.rules, **alternative.changes)
            if self.matches(image, probe, changed)[0]:
                self.report.rules = changed
                if alternative.id:
                    self.report.add(alternative.id, "image", error, alternative.explanation)
                return True
        self.unexplained.append(probe.name)
        if default_id:
            self.report.add(default_id, "image", error, otherwise)
        return False


def masked_error(image: Tensor, picture: oracle.Picture) -> float:
    """max|image - picture| / max|picture| over the safe pixels."""
    if not bool(picture.safe.any()):
        return 0.0
    scale = float(picture.image.abs().max())
    difference = torch.where(picture.safe[..., None], image - picture.image, 0.0)
    if not bool(torch.isfinite(image).all()):
        return float("inf")
    return float(difference.abs().max()) / scale if scale > 0 else relative_error(image, picture.image)
