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
    assert presets.add(file, mine) == ""
    assert presets.load(file) == ([mine], [])
    assert presets.add(file, of_now("another", DEFAULTS)) == ""
    assert [preset.name for preset in presets.load(file)[0]] == ["another", "Mine ä"]
    assert presets.remove(file, "another") == "" and presets.load(file) == ([mine], [])
    assert [path.name for path in file.parent.iterdir()] == ["presets.json"] and "Mine ä" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name, says", [("", "needs a name"), ("x" * 99, "at most 40"), ("a\nb\x07", "printable"),
                                        ("MCMC", "comes with the program"), ("mcmc", "comes with the program")])
def test_a_name_that_cannot_be_used_is_refused(name, says):
    with pytest.raises(PresetError, match=says):
        of_now(name, DEFAULTS)


@pytest.mark.parametrize("text, says", [
    ("{", "not valid JSON"), ("", "not valid JSON"), ("\xff", "not valid JSON"), ("[" * 100_000, "not valid JSON"),
    ("[]", "no JSON object"), ('{"presets": 3}', "not in a form"), ('{"Mine": {"sh0_lr": 0.1}}', "not in a form")])
def test_a_damaged_file_is_said_and_renamed_before_the_next_preset_is_saved(tmp_path, text, says):
    file, seen, mine = tmp_path / "presets.json", of_now("seen", {**DEFAULTS, "sh0_lr": 0.2}), of_now("Mine", DEFAULTS)
    for name in ("presets.json.damaged", "presets.json-2.damaged"):   # none of before is overwritten
        file.write_text(text, encoding="latin-1")
        found, (complaint,) = presets.load(file)
        assert found == [] and says in complaint and str(file) in complaint
        assert complaint.endswith(f"mend that file, or the next preset that you save renames it to {name}.")
        assert file.read_text(encoding="latin-1") == text
        said = presets.add(file, mine, [seen])
        assert said.startswith(f"{file} could not be read (") and said.endswith(f"; it is called {name} now.")
        assert (tmp_path / name).read_text(encoding="latin-1") == text
        assert presets.load(file) == ([mine, seen], [])


def test_a_file_that_was_mended_meanwhile_is_used_and_not_renamed(tmp_path):
    file = tmp_path / "presets.json"
    file.write_text("{")
    assert presets.load(file)[1]
    file.write_text('{"presets": {"old": {"sh0_lr": 0.1}}}', encoding="utf-8-sig")   # as some editors save it
    assert presets.add(file, of_now("Mine", DEFAULTS)) == ""
    assert [preset.name for preset in presets.load(file)[0]] == ["Mine", "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["presets.json"]


def test_what_this_version_does_not_understand_stays_word_for_word(tmp_path):
    file = tmp_path / "presets.json"
    stored = {"version": 2, "author": "me", "presets": {
        "good": {"sh0_lr": 0.1, "new_idea": 4, "seed": 3}, "bad": {"sh0_lr": -1, "b": [1.5, None]}, "odd": [1],
        "MCMC": {"sh0_lr": 0.1}, "": {}}}
    file.write_text(json.dumps(stored))
    found, complaints = presets.load(file)
    assert [preset.name for preset in found] == ["good"] and len(complaints) == 4
    presets.add(file, of_now("Mine", {**DEFAULTS, "sh0_lr": 0.2}), found)
    stored["presets"]["Mine"] = {"sh0_lr": 0.2}
    assert json.loads(file.read_text()) == stored
    presets.remove(file, "Mine", found)
    del stored["presets"]["Mine"]
    assert json.loads(file.read_text()) == stored
    for change in (lambda: presets.add(file, of_now("bad", DEFAULTS), found), lambda: presets.remove(file, "odd", found)):
        with pytest.raises(PresetError, match=f"{file} has a preset .* cannot use, and it stays as it is; take another name"):
            change()
    assert json.loads(file.read_text()) == stored
    presets.remove(file, "good", found)
    assert "good" not in json.loads(file.read_text())["presets"]


def test_two_windows_keep_each_others_presets(tmp_path):
    file = tmp_path / "presets.json"
    first, second = of_now("first", {**DEFAULTS, "sh0_lr": 0.1}), of_now("second", {**DEFAULTS, "sh0_lr": 0.2})
    presets.add(file, first)
    seen = presets.load(file)[0]          # of a window that learns of nothing that comes now
    presets.add(file, second, seen)
    presets.add(file, of_now("third", DEFAULTS), seen)
    assert [preset.name for preset in presets.load(file)[0]] == ["first", "second", "third"]
    presets.remove(file, "first", seen)
    presets.remove(file, "first", seen)   # which the other has done already
    assert [preset.name for preset in presets.load(file)[0]] == ["second", "third"]


def test_a_number_in_quotes_is_the_number_that_is_applied(tmp_path):
    file = tmp_path / "presets.json"
    file.write_text('{"presets": {"Mine": {"sh0_lr": "0.1", "iterations": 3e3}}}')
    (mine,), _ = presets.load(file)
    assert mine.values == {"sh0_lr": 0.1, "iterations": 3000}
    assert mine.changes({**DEFAULTS, "sh0_lr": 0.1, "iterations": 3000}) == []


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
        presets.add(blocker / "presets.json", of_now("Mine", DEFAULTS))
    assert blocker.read_text() == "here"


def test_where_a_damaged_file_cannot_be_replaced_it_keeps_its_name(tmp_path, monkeypatch):
    file = tmp_path / "presets.json"
    file.write_text("{")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.data.atomic.os.fsync", full)
    with pytest.raises(PresetError, match="No space left"):
        presets.add(file, of_now("Mine", DEFAULTS))
    monkeypatch.undo()
    assert file.read_text() == "{" and len(list(tmp_path.iterdir())) == 1
    file.unlink()
    file.mkdir()
    with pytest.raises(PresetError, match="cannot be renamed either .it is a folder.: rename or remove it"):
        presets.add(file, of_now("Mine", DEFAULTS))
