"""Named sets of options: those that are shipped, with where their numbers come from, and those of the user in a JSON file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.config import TrainConfig
from app.data.scene import SceneError
from app.data.user_files import Unreadable, name_aside, read_object, write_object
from app.options import OptionError, flatten, with_options

DEFAULTS = flatten(TrainConfig())
OF_THE_SCENE = frozenset({
    "seed", "extent", "init_points", "white_background", "densify.cap", "densify.taming_budget", "raster.cuda_backward",
    "raster.max_intersection_bytes"})
"""Options that belong to a scene or a machine; presets leave them as they are."""
NAME_LENGTH = 40


class PresetError(ValueError):
    """One sentence for the user."""


@dataclass(frozen=True)
class Preset:
    """`values` are those that differ from the defaults; all other options go to their default, OF_THE_SCENE aside."""

    name: str
    help: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def complete(self) -> dict[str, Any]:
        """Every option that it decides."""
        return {path: self.values.get(path, value) for path, value in DEFAULTS.items() if path not in OF_THE_SCENE}

    def changes(self, now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """(path, value now, value then) of what applying it would change."""
        return [(path, now[path], value) for path, value in self.complete().items() if path in now and now[path] != value]


SHIPPED: tuple[Preset, ...] = (
    Preset("graphdeco 30k", "The published run of 30 000 iterations (Kerbl et al. 2023; arguments/__init__.py of "
           "gaussian-splatting), with its straight-through gradient at the alpha clamp.",
           {"raster.alpha_gradient": "straight_through"}),
    Preset("fast preview", "Ours, for a first look: 3 000 iterations, half as eager to densify, and Gaussians out of view "
           "stand still (sparse Adam). Schedules shrink with the length of the run.",
           {"iterations": 3000, "densify.grad_threshold": 4e-4, "sparse_adam": True}),
    Preset("MCMC", "3DGS as MCMC (Kheradmand et al. 2024): noise 5e5, both regularisers 0.01, dead at an opacity of 0.005, "
           "growth of 5 % an event, until iteration 25 000; opacity rate 0.05 as in gsplat. It grows up to densify.cap: "
           "published runs take 1 000 000 or so, which is yours to set.",
           {"densify.strategy": "mcmc", "densify.stop": 25000, "densify.mcmc_noise_lr": 5e5, "densify.mcmc_opacity_reg": 0.01,
            "densify.mcmc_scale_reg": 0.01, "densify.mcmc_dead_opacity": 0.005, "densify.mcmc_growth": 0.05,
            "opacity_lr": 0.05}),
    Preset("AbsGS", "AbsGS (Ye et al. 2024): splits on the sum of absolute screen-space gradients above 4e-4, clones on the "
           "signed sum above 2e-4.",
           {"densify.strategy": "absgs", "densify.absgs_threshold": 4e-4, "densify.grad_threshold": 2e-4,
            "raster.alpha_gradient": "straight_through"}),
    Preset("gsplat defaults", "As examples/simple_trainer.py and DefaultStrategy of gsplat 1.5: opacity rate 0.05, the exact "
           "gradient at the alpha clamp, growth above 2e-4 between iterations 500 and 15 000.",
           {"opacity_lr": 0.05, "raster.alpha_gradient": "exact", "densify.grad_threshold": 2e-4, "densify.start": 500,
            "densify.stop": 15000}))
"""Numbers equal to the defaults are named too where the source names them."""


def of_now(name: str, now: Mapping[str, Any]) -> Preset:
    """What is in force, as a preset. Raises PresetError for a name that cannot be used."""
    name = " ".join(name.split())
    if not name:
        raise PresetError("A preset needs a name; type one beside the button.")
    if not _fits(name):
        raise PresetError(f"The name {name[:NAME_LENGTH]!r} cannot be used; take one of at most {NAME_LENGTH} printable "
                          "characters.")
    if _is_shipped(name):
        raise PresetError(f"{name} is the name of a preset that comes with the program; take another name.")
    values = {path: value for path, value in now.items()
              if path in DEFAULTS and path not in OF_THE_SCENE and value != DEFAULTS[path]}
    return Preset(name, "Saved by you.", values)


def _fits(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH and name.isprintable()


def _is_shipped(name: str) -> bool:
    return any(name.casefold() == preset.name.casefold() for preset in SHIPPED)


def load(path: Path) -> tuple[list[Preset], list[str]]:
    """(presets of the user by name, sentences about what could not be read). A file that is not there holds none."""
    try:
        named = _entries(read_object(path))
    except Unreadable as error:
        return [], [f"The presets in {path} cannot be read ({error}); mend that file, or the next preset that you save "
                    f"renames it to {name_aside(path).name}."]
    presets, complaints = [], []
    for name, values in named.items():
        try:
            presets.append(_checked(name, values))
        except PresetError as error:
            complaints.append(f"{path}: {error}")
    return sorted(presets, key=lambda preset: preset.name.casefold()), complaints


def _entries(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The presets of a file as they stand there. Raises Unreadable."""
    named = stored.get("presets") if stored else {}
    if not isinstance(named, dict):
        raise Unreadable("it is not in a form that this version knows")
    return named


def _checked(name: str, values: Any) -> Preset:
    if not _fits(name) or _is_shipped(name):
        why = f"of a preset that comes with the program, {name}" if _is_shipped(name) else f"one that cannot be used, {name!r}"
        raise PresetError(f"a preset is left out: its name is {why}; rename it in that file.")
    if not isinstance(values, dict):
        raise PresetError(f"the preset {name} is not a set of options; it is left out.")
    unknown = sorted(set(values) - set(DEFAULTS))
    known = {path: value for path, value in values.items() if path in DEFAULTS and path not in OF_THE_SCENE}
    try:
        checked = flatten(with_options(TrainConfig(), known))
    except OptionError as error:
        raise PresetError(f"the preset {name} is left out: {error}.") from None
    note = f" Options that this version does not have are left out: {', '.join(unknown)}." if unknown else ""
    return Preset(name, f"Saved by you.{note}", {path: checked[path] for path in known})


def add(path: Path, preset: Preset, seen: Iterable[Preset] = ()) -> str:
    """Write it into the file, in place of the one of its name. Raises PresetError.

    The file is read anew, and all else in it stays: what another window has saved, and what this version does not understand.
    A file that cannot be read is renamed, and the new one begins with those that were `seen` before; returns a sentence about
    that, or ''.
    """
    return _change(path, preset.name, lambda entries: entries.update({preset.name: dict(preset.values)}), seen)


def remove(path: Path, name: str, seen: Iterable[Preset] = ()) -> str:
    """Take a preset out of the file; otherwise as add()."""
    return _change(path, name, lambda entries: entries.pop(name, None), seen)


def _change(path: Path, name: str, change: Callable[[dict[str, Any]], object], seen: Iterable[Preset]) -> str:
    damaged, stored = "", {}
    try:
        stored = read_object(path)
        entries = _entries(stored)
    except Unreadable as error:
        damaged, stored, entries = str(error), {}, {preset.name: dict(preset.values) for preset in seen}
    if name in entries:
        try:
            _checked(name, entries[name])
        except PresetError:
            raise PresetError(f"{path} has a preset {name} that this version cannot use, and it stays as it is; "
                              "take another name, or change it in that file.") from None
    change(entries)
    try:
        return write_object(path, {"version": 1, **stored, "presets": entries}, damaged)
    except SceneError as error:
        raise PresetError(f"{error}.") from None
