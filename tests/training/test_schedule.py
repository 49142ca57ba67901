"""When things happen, for long and for short runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.config import DensifyConfig, TrainConfig
from app.training import schedule


def test_published_schedule_at_30000_iterations():
    found = schedule.resolve(TrainConfig())
    assert (found.start, found.stop, found.every, found.reset_every, found.sh_every) == (500, 15000, 100, 3000, 1000)
    assert not found.densifies(500) and found.densifies(600) and not found.densifies(650)
    assert found.densifies(14900) and not found.densifies(15000)
    assert [i for i in range(1, 30001) if found.resets(i)] == [3000, 6000, 9000, 12000]
    assert [found.sh_degree(i, 3) for i in (1, 999, 1000, 2000, 3000, 30000)] == [0, 0, 1, 2, 3, 3]
    assert schedule.resolve(TrainConfig(iterations=60000)) == replace(found, length=60000)


@pytest.mark.parametrize(("length", "resets"), [(6000, []), (12000, [3000]), (24000, [3000, 6000, 9000])])
def test_where_densification_ends_no_opacity_is_reset_and_nothing_is_born(length, resets):
    """As graphdeco, which densifies while iteration < stop: a reset at the end would have no densification after it."""
    found = schedule.resolve(TrainConfig(iterations=length))
    assert found.stop == length // 2 and found.stop % found.reset_every == 0
    assert [i for i in range(1, length + 1) if found.resets(i)] == resets
    assert not any(found.densifies(i) for i in range(found.stop, length + 1))


@pytest.mark.parametrize("length", (1000, 2000, 3000, 7000, 15000))
def test_a_short_run_has_the_whole_schedule_in_it(length):
    found = schedule.resolve(TrainConfig(iterations=length))
    events = [i for i in range(1, length + 1) if found.densifies(i)]
    resets = [i for i in range(1, length + 1) if found.resets(i)]
    assert len(events) >= 2 and events[-1] < length / 2
    assert all(i < length / 2 and i % 3000 == 0 for i in resets)
    assert found.sh_degree(length, 3) == 3
    longer = schedule.resolve(TrainConfig(iterations=2 * length))
    assert longer.start > found.start and longer.stop > found.stop and longer.sh_every > found.sh_every
    assert longer.every < found.every


def test_the_rule_in_words_is_the_rule_in_force():
    found = schedule.resolve(TrainConfig(iterations=2000))
    ratio = 2000 / 30000
    assert (found.start, found.stop, found.every, found.reset_every, found.sh_every) == (
        round(500 * ratio ** (1 / 3)), 1000, round(100 * ratio ** -0.25), 3000, round(1000 * ratio ** 0.5))
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    sentence = TrainConfig.__dataclass_fields__["schedule_iterations"].metadata["help"]
    for number in ("500 r^(1/3)", "15 000 r", "100 r^(-1/4)", "1000 r^(1/2)", "3000"):
        assert number in schedule.RULE and number in sentence and number in readme


def test_schedule_iterations_sets_the_length_the_schedules_are_made_for():
    assert schedule.resolve(TrainConfig(iterations=100, schedule_iterations=30000)) == schedule.resolve(TrainConfig())


def test_F18_it_is_said_whether_the_window_moves_with_the_iterations():
    moving = schedule.window_moves(TrainConfig(iterations=2000))
    found = schedule.resolve(TrainConfig(iterations=2000))
    assert f"after {found.start:,} and before {found.stop:,}," in moving
    assert "does not move" in schedule.window_moves(TrainConfig(iterations=2000, schedule_iterations=30000))


def test_a_run_without_room_for_a_densification_says_so():
    said = schedule.window_moves(TrainConfig(iterations=100))
    assert "no densification fits into 100 iterations" in said and "it densifies" not in said
    assert "no densification fits" in schedule.window_moves(TrainConfig(densify=DensifyConfig(stop=0)))
    once = TrainConfig(iterations=1000, schedule_iterations=0)
    alone = next(n for n in range(100, 2000) if sum(map(schedule.resolve(TrainConfig(iterations=n)).densifies, range(n))) == 1)
    assert "densifies once, at iteration" in schedule.window_moves(replace(once, iterations=alone))
    assert "none" in schedule.window_moves(replace(once, densify=DensifyConfig(strategy="none")))
    short = replace(once, iterations=100, schedule_iterations=30_000)
    assert "no densification falls into its 100 iterations" in schedule.window_moves(short)
    assert "no densification" not in schedule.window_moves(replace(short, iterations=1000))


@pytest.mark.parametrize("length", [1, 2, 100, 545, 560, 800, 2000, 30_000])
@pytest.mark.parametrize("end", [None, 90, 600, 700])
def test_the_first_and_last_densification_are_those_that_happen(length: int, end: int | None):
    found = schedule.resolve(TrainConfig(iterations=length))
    happen = [i for i in range(1, (length if end is None else end) + 1) if found.densifies(i)]
    assert found.first_and_last(end) == ((happen[0], happen[-1]) if happen else None)


def test_means_rate_decays_exponentially_times_the_extent():
    config = TrainConfig(iterations=1000)
    assert schedule.means_lr(config, 0, 2.0) == pytest.approx(3.2e-4)
    assert schedule.means_lr(config, 500, 2.0) == pytest.approx(3.2e-5)
    assert schedule.means_lr(config, 1000, 2.0) == pytest.approx(3.2e-6)
    assert schedule.means_lr(config, 5000, 2.0) == pytest.approx(3.2e-6)
    rates = schedule.learning_rates(config, 1, 2.0)
    assert rates["shN"] == pytest.approx(rates["sh0"] / 20)


def test_zero_stop_means_no_densification():
    found = schedule.resolve(TrainConfig(densify=DensifyConfig(stop=0)))
    assert not any(found.densifies(i) for i in range(1, 30001))
