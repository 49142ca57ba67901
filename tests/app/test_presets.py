"""Presets: complete, honest about what they change, and a file that is never half written."""

from __future__ import annotations

import json

import pytest

from app import presets
from app.config import TrainConfig
from app.options import flatten, with_options
from app.presets import PresetError, of_now

DEFAULTS = flatten(TrainConfig())


@pytest.mark.parametrize("preset", presets.SHIPPED, ids=lambda preset: preset.name)
def test_what_is_shipped_fits_the_options_and_says_where_it_comes_from(preset):
    config = with_options(TrainConfig(), preset.complete())
    after = flatten(config)
    assert all(after[path] == value for path, value in preset.values.items())
    assert not preset.values.keys() & presets.OF_THE_SCENE
    assert any(word in preset.help for word in ("et al.", "gsplat", "Ours")) and preset.help.endswith(".")
    assert preset.changes(after) == []


def test_applying_names_every_change_and_leaves_the_scene_alone():
    now = {**DEFAULTS, "seed": 7, "densify.cap": 5000, "white_background": True, "sh0_lr": 0.1, "opacity_lr": 0.05}
    preset = next(p for p in presets.SHIPPED if p.name == "gsplat defaults")
    assert preset.changes(now) == [("sh0_lr", 0.1, 2.5e-3)]   # opacity_lr is gsplat's already
    graphdeco = presets.SHIPPED[0]
    assert [path for path, _, _ in graphdeco.changes(now)] == ["sh0_lr", "opacity_lr", "raster.alpha_gradient"]


def test_the_users_own_go_to_a_file_and_come_back(tmp_path):
    file = tmp_path / "deep" / "presets.json"
    assert presets.load(file) == ([], [])
    mine = of_now("  Mine   ä ", {**DEFAULTS, "sh0_lr": 0.1, "seed": 3, "densify.absgrad": True})
    assert mine.name == "Mine ä" and mine.values == {"sh0_lr": 0.1, "densify.absgrad": True}
    presets.save(file, [mine])
    assert presets.load(file) == ([mine], [])
    assert [path.name for path in file.parent.iterdir()] == ["presets.json"]


@pytest.mark.parametrize("name, says", [("", "needs a name"), ("x" * 99, "at most 40"), ("a\nb\x07", "printable"),
                                        ("MCMC", "comes with the program"), ("mcmc", "comes with the program")])
def test_a_name_that_cannot_be_used_is_refused(name, says):
    with pytest.raises(PresetError, match=says):
        of_now(name, DEFAULTS)


@pytest.mark.parametrize("text, says", [("{", "cannot be read"), ("[]", "not in a form"), ('{"presets": 3}', "not in a form")])
def test_a_damaged_file_is_said_and_left_alone(tmp_path, text, says):
    file = tmp_path / "presets.json"
    file.write_text(text)
    found, (complaint,) = presets.load(file)
    assert found == [] and says in complaint and str(file) in complaint and file.read_text() == text


def test_one_bad_preset_costs_no_other_and_options_of_another_version_are_said(tmp_path):
    file = tmp_path / "presets.json"
    file.write_text(json.dumps({"version": 9, "presets": {
        "good": {"sh0_lr": 0.1, "new_idea": 4}, "bad": {"sh0_lr": -1}, "odd": [1], "text": {"densify.strategy": "magic"}}}))
    found, complaints = presets.load(file)
    assert [preset.name for preset in found] == ["good"] and "new_idea" in found[0].help and found[0].values == {"sh0_lr": 0.1}
    assert len(complaints) == 3 and all("left out" in text for text in complaints)


def test_where_nothing_can_be_written_the_old_file_stays(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("here")
    with pytest.raises(PresetError, match="cannot be written"):
        presets.save(blocker / "presets.json", [])
    assert blocker.read_text() == "here"
