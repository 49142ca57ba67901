"""Command lines from config dataclasses: the help of a flag is the metadata that the sliders and tooltips use too."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from app.commands.errors import UsageError
from render.config import check_settings

T = TypeVar("T")


@cache
def described(cls: type) -> type:
    """A dataclass with the fields of `cls` whose flags carry help, unit and range from `render.config.setting`.

    Nested dataclasses are described as well. Positional markers and aliases in the annotations stay.
    """
    hints = get_type_hints(cls, include_extras=True)
    rows: list[tuple[str, Any, Any]] = []
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__annotations__", {})}
    # a command's own flags are read first, those of the configuration that it extends after them
    for field in sorted(dataclasses.fields(cls), key=lambda f: f.name in inherited):
        kind: Any = hints[field.name]
        if dataclasses.is_dataclass(kind):
            kind = described(kind)  # type: ignore[arg-type]
            rows.append((field.name, kind, dataclasses.field(default_factory=kind)))
            continue
        if field.metadata.get("help"):
            kind = Annotated[kind, tyro.conf.arg(help=_help(field.metadata))]
        if field.default is False or field.default in ("", None, ()):
            # "(default: '')" tells nobody anything: what no value means stands in the help
            kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
        copied: dict[str, Any] = {}
        if field.default is not dataclasses.MISSING:
            copied["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            copied["default_factory"] = field.default_factory
        rows.append((field.name, kind, dataclasses.field(**copied)))
    made = dataclasses.make_dataclass(cls.__name__, rows, frozen=True)
    made.__doc__ = cls.__doc__
    return made


def _help(metadata: Any) -> str:
    unit, lo, hi = metadata.get("unit"), metadata.get("lo"), metadata.get("hi")
    if lo is None or hi is None:
        return metadata["help"] + (f" [{unit}]" if unit else "")
    return f"{metadata['help']} [{_number(lo)} to {_number(hi)}{f' {unit}' if unit else ''}]"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def undescribed(value: Any, cls: type[T], prefix: str = "--") -> T:
    """The `cls` that an instance of `described(cls)` stands for; its own validation runs here, and that of its settings.

    Raises ValueError, one sentence that begins with the flag.
    """
    hints = get_type_hints(cls)
    given = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        item = getattr(value, field.name)
        kind = hints[field.name]
        given[field.name] = (undescribed(item, kind, f"{prefix}{field.name}.")  # type: ignore[arg-type]
                             if dataclasses.is_dataclass(kind) else item)
    try:
        made = cls(**given)
        check_settings(made)
    except ValueError as error:  # a configuration that refuses a value says which and why
        raise ValueError(f"{prefix}{error}") from None
    return made


def _described_value(value: Any) -> Any:
    """The instance of `described(type(value))` that undescribed() would turn back into `value`."""
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    nested = {name: _described_value(item) for name, item in given.items() if dataclasses.is_dataclass(item)}
    return described(type(value))(**{**given, **nested})


def parse(cls: type[T], argv: Sequence[str], *, prog: str, description: str, defaults: T | None = None) -> T:
    """`cls` from the flags in argv; what no flag sets is taken from `defaults`, if given.

    Raises UsageError with one sentence, and SystemExit(0) after printing the help for -h or --help.
    """
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            value = tyro.cli(
                described(cls),
                **({} if defaults is None else {"default": _described_value(defaults)}),
                prog=prog,
                description=description,
                args=list(argv),
                use_underscores=True,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(f"{_first_sentence(caught.getvalue())} Run `{prog} --help` for the flags.") from None
    sys.stderr.write(caught.getvalue())  # warnings of a parse that went well
    try:
        return undescribed(value, cls)
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def _first_sentence(box: str) -> str:
    """The message inside tyro's framed error, without its frame and its hints."""
    lines = []
    for line in box.splitlines():
        text = line.strip().strip("│").strip()
        if line.startswith(("╭", "╰")):
            continue
        if set(text) == {"─"}:
            break
        lines.append(text)
    message = " ".join(lines).strip() or "the command line cannot be understood"
    return message if message.endswith(".") else message + "."
