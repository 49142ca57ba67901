"""Settings: what has no meaning is refused in one sentence, whoever sets it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from app.config import DensifyConfig, TrainConfig
from app.options import OptionError, with_option
from render.config import RasterConfig

WITHOUT_MEANING = [
    ("lambda_dssim", 5.0, "between 0 and 1"),
    ("means_lr", 0.0, "greater than 0"),
    ("extent", float("inf"), "at least 0"),
    ("densify.prune_opacity", 2.0, "less than 1"),
    ("densify.reset_opacity", 1.0, "strictly between 0 and 1"),
    ("densify.percent_dense", 0.0, "greater than 0"),
    ("densify.prune_world", -1.0, ""),
    ("raster.clamp_fov", 0.0, "at least 1"),
    ("raster.alpha_max", 1.0, "strictly between 0 and 1"),
    ("raster.cutoff", 1.0, "strictly between 0 and 1"),
    ("raster.eps2d", float("nan"), ""),
    ("raster.max_intersection_bytes", -1, "greater than 0"),
]


@pytest.mark.parametrize(("path", "value", "says"), WITHOUT_MEANING)
def test_a_value_without_a_meaning_is_refused_with_name_value_and_what_is_allowed(path: str, value: float, says: str) -> None:
    *group, name = path.split(".")
    owner: Any = {"densify": DensifyConfig, "raster": RasterConfig}[group[0]] if group else TrainConfig
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be") as refusal:
        owner(**{name: value})
    assert says in str(refusal.value) and ". " not in str(refusal.value)
    with pytest.raises(OptionError, match=f"{name} is {value}; it must be"):   # as a slider or a typed number sets it
        with_option(TrainConfig(), path, value)


@pytest.mark.parametrize("config", [TrainConfig(), DensifyConfig(), RasterConfig()])
def test_every_number_has_a_domain_that_holds_its_default_and_its_slider(config: Any) -> None:
    for f in fields(config):
        value = getattr(config, f.name)
        if not isinstance(value, float):
            continue
        valid = f.metadata["valid"]
        assert valid is not None, f"{f.name} takes any number"
        assert all(number in valid for number in (value, f.metadata["lo"], f.metadata["hi"])), f.name


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="strategy is 'best'; choose one of adc, absgs, mcmc, taming, none"):
        DensifyConfig(strategy="best")  # type: ignore[arg-type]
