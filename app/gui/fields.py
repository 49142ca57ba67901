"""What a configuration field needs to become a control. Pure: reads the metadata that the command line reads too."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from app.config import DensifyConfig, OptimizerConfig, TrainConfig
from app.gui import formatting
from app.pace import PaceConfig, WindowPace
from render.config import RasterConfig

SLIDER_STEPS = 1000


@dataclass(frozen=True)
class FieldSpec:
    """One field of TrainConfig, DensifyConfig or RasterConfig."""

    path: str               # as SetOption names it: "raster.alpha_max"
    label: str
    kind: Literal["bool", "choice", "int", "float"]
    default: Any
    help: str
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    log: bool = False
    live: bool = True
    choices: tuple[str, ...] = ()
    backend: str = ""       # the only one that it is for

    @property
    def tooltip(self) -> str:
        """Help, range, default and when a change acts."""
        lines = [self.help]
        unit = f" {self.unit}" if self.unit else ""
        if self.lo is not None and self.hi is not None:
            lines.append(f"Range {self.written(self.lo)} to {self.written(self.hi)}{unit}. "
                         f"Default {self.written(self.default)}{unit}.")
        elif not self.choices:
            lines.append(f"Default {self.written(self.default)}{unit}.")
        else:
            lines.append(f"Default {self.default}.")
        lines.append("Acts in the next step." if self.live else "Acts after a reset.")
        return "\n".join(lines)

    @staticmethod
    def written(value: Any) -> str:
        """As in tooltips: 3 000, 1e-06, exact."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return formatting.count(int(value)) if float(value).is_integer() and abs(value) < 1e9 else f"{value:g}"
        return str(value)

    @property
    def has_slider(self) -> bool:
        return self.kind in ("int", "float") and self.lo is not None and self.hi is not None

    def to_slider(self, value: float) -> int:
        """Position 0..SLIDER_STEPS of a value; a logarithmic field is linear in the exponent."""
        lo, hi, value = self._bounds_and(value)
        return round(SLIDER_STEPS * (value - lo) / (hi - lo))

    def from_slider(self, position: int) -> float | int:
        """Value at a slider position, rounded to what a person would type."""
        lo, hi, _ = self._bounds_and(self.lo or 0.0)
        share = min(max(position / SLIDER_STEPS, 0.0), 1.0)
        value = lo + share * (hi - lo)
        if self.log:
            value = 10.0**value
        if self.kind == "int":
            return int(round(value))
        return float(f"{value:.4g}")

    def parse(self, text: str) -> float | int:
        """A typed value, held inside the bounds.

        Raises ValueError with one sentence when the text is no number.
        """
        try:
            value = float(text.replace(" ", "").replace("_", ""))
        except ValueError:
            raise ValueError(f"{self.path}: {text!r} is not a number; type one such as {self.default:g}") from None
        if not math.isfinite(value):
            raise ValueError(f"{self.path}: {text!r} is not finite; type a number such as {self.default:g}")
        if self.lo is not None:
            value = max(value, self.lo)
        if self.hi is not None:
            value = min(value, self.hi)
        return int(round(value)) if self.kind == "int" else value

    def _bounds_and(self, value: float) -> tuple[float, float, float]:
        assert self.lo is not None and self.hi is not None, f"{self.path} has no range"
        value = min(max(float(value), self.lo), self.hi)
        if self.log:
            return math.log10(self.lo), math.log10(self.hi), math.log10(value)
        return float(self.lo), float(self.hi), value


def specs_of(config: type, prefix: str = "") -> list[FieldSpec]:
    """The scalar fields of a configuration class, in order; nested configurations are left to their own call."""
    specs = []
    for field in dataclasses.fields(config):
        if "help" not in field.metadata:
            continue
        meta, default = field.metadata, field.default
        if meta["choices"]:
            kind: Any = "choice"
        elif isinstance(default, bool):
            kind = "bool"
        else:
            kind = "int" if isinstance(default, int) else "float"
        specs.append(FieldSpec(prefix + field.name, field.name, kind, default, meta["help"], meta["unit"], meta["lo"],
                               meta["hi"], meta["log"], meta["live"], tuple(meta["choices"]), meta["backend"]))
    return specs


TRAIN_FIELDS = specs_of(TrainConfig)
DENSIFY_FIELDS = specs_of(DensifyConfig, "densify.")
RASTER_FIELDS = specs_of(RasterConfig, "raster.")
OPTIMIZER_FIELDS = specs_of(OptimizerConfig, "optimizer.")
PACE_FIELDS = (*specs_of(PaceConfig), *specs_of(WindowPace))
BY_PATH = {spec.path: spec for spec in (*TRAIN_FIELDS, *DENSIFY_FIELDS, *OPTIMIZER_FIELDS, *RASTER_FIELDS)}
