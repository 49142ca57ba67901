"""Configuration fields by path: "iterations", "densify.absgrad", "raster.alpha_max"."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

from app.config import TrainConfig


class OptionError(ValueError):
    """The option or its value cannot be used; one sentence for the user."""


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every field of a configuration dataclass by its path."""
    values: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            values.update(flatten(value, f"{prefix}{f.name}."))
        else:
            values[prefix + f.name] = value
    return values


def find_field(path: str) -> tuple[type, Field]:
    """(owning dataclass, field) of a path. Raises OptionError for a path that names no single field of TrainConfig."""
    owner: type = TrainConfig
    *groups, last = path.split(".")
    for group in groups:
        owner = typing.get_type_hints(owner).get(group, object)
        if not is_dataclass(owner):
            raise OptionError(f"there is no option {path!r}; {group!r} is not a group of options")
    named = {f.name: f for f in fields(owner)}
    if last not in named or is_dataclass(typing.get_type_hints(owner)[last]):
        raise OptionError(f"there is no option {path!r}; choose one of {', '.join(named)}")
    return owner, named[last]


def is_live(path: str) -> bool:
    """Whether a change acts in the next step (otherwise at the next reset)."""
    return bool(find_field(path)[1].metadata.get("live", True))


def coerce(path: str, value: Any) -> Any:
    """`value` as the type of the field. Raises OptionError when it does not fit type, choices or a one-sided sense."""
    owner, f = find_field(path)
    kind = typing.get_type_hints(owner)[f.name]
    choices = f.metadata.get("choices") or ()
    if choices:
        if value not in choices:
            raise OptionError(f"{path} is {value!r}; choose one of {', '.join(map(str, choices))}")
        return value
    if isinstance(kind, types.UnionType):
        return value
    if kind is bool:
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise OptionError(f"{path} is {value!r}; it must be true or false")
        return bool(value)
    if kind in (int, float):
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            raise OptionError(f"{path} is {value!r}; it must be a number") from None
        lo = f.metadata.get("lo")
        if number != number or number in (float("inf"), float("-inf")) or (lo is not None and lo >= 0 and number < 0):
            raise OptionError(f"{path} is {value!r}; it must be a finite number{'' if lo is None else f' >= {lo:g}'}")
        if f.metadata.get("log") and number == 0:   # its logarithm is taken, here or in a slider
            raise OptionError(f"{path} is {value!r}; it must be greater than 0")
        if kind is int and lo is not None and number < lo:
            raise OptionError(f"{path} is {value!r}; it must be at least {lo:g}")
        return number
    return value


def with_option(config: TrainConfig, path: str, value: Any) -> TrainConfig:
    """A copy of `config` with one field changed. Raises OptionError, one sentence, where that cannot be."""
    return with_options(config, {path: value})


def with_options(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """A copy of `config` with several fields changed at once. Raises OptionError, one sentence, where one cannot be."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        value = coerce(path, value)
        group, _, name = path.rpartition(".")
        groups.setdefault(group, {})[name] = value
    plain = groups.pop("", {})
    try:
        nested = {group: replace(getattr(config, group), **fields_) for group, fields_ in groups.items()}
        return replace(config, **plain, **nested)
    except ValueError as error:
        raise OptionError(str(error)) from None


def config_from(values: Mapping[str, Any]) -> tuple[TrainConfig, list[str]]:
    """The configuration that flatten() gave, and sentences about what is not known or not allowed any more (C12)."""
    config, notices = TrainConfig(), []
    known = flatten(config)
    unknown = [path for path in values if path not in known]
    if unknown:
        notices.append(f"Options that this version does not have are left out: {', '.join(sorted(unknown))}.")
    absent = [path for path in known if path not in values] if values else []
    if absent:
        notices.append(f"Options that the file does not name have their defaults: {', '.join(absent)}.")
    groups: dict[str, dict[str, Any]] = {"": {}}
    for path, value in values.items():
        if path not in known:
            continue
        group, _, name = path.rpartition(".")
        default = known[path]
        try:   # one by one, so that one bad value costs no other; sliders' ranges do not matter here
            if not (type(value) is type(default) or (type(default) is float and type(value) is int)):
                raise ValueError(f"{name} is {value!r}; it must be of the kind of {default!r}")
            replace(getattr(config, group) if group else config, **{name: value})
            groups.setdefault(group, {})[name] = value
        except ValueError as error:
            notices.append(f"{path}: {error}; the default {default!r} is in force.")
    nested = {group: replace(getattr(config, group), **fields_) for group, fields_ in groups.items() if group}
    return replace(config, **groups[""], **nested), notices
