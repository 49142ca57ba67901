"""Births and deaths over time in bounded memory."""

from __future__ import annotations

import numpy as np

from app.gui.population import BORN, ITERATION, PRUNED, SPLIT, TOTAL, Population
from app.gui.view_model import ViewModel
from app.messages import Densified, Snapshot


def test_events_stack_up_and_resets_are_marks():
    population = Population()
    population.add(Densified(100, cloned=5, split=3, pruned=2, count=106))
    population.add(Densified(100, relocated=4, added=1, count=107))     # asked for, in the same iteration
    population.add(Densified(200, reset=107, count=107))
    population.add(Densified(200, cloned=1, count=108))
    assert population.table.tolist() == [[100, 6, 3, 4, 2, 107], [200, 1, 0, 0, 0, 108]] and population.resets == [200]
    stacked = population.stacked()
    assert stacked["born"].tolist() == [6, 1] and stacked["split"].tolist() == [9, 1]
    assert stacked["relocated"].tolist() == [13, 1] and stacked["pruned"].tolist() == [-2, 0]


def test_no_more_points_than_can_be_drawn_and_no_count_lost():
    population = Population(limit=20)
    for i in range(1, 1001):
        population.add(Densified(10 * i, cloned=2, split=1, pruned=1, count=100 + i))
        assert len(population.table) <= 20
    table = population.table
    assert table[:, BORN].sum() == 2000 and table[:, SPLIT].sum() == table[:, PRUNED].sum() == 1000
    assert table[-1, ITERATION] == 10_000 and table[-1, TOTAL] == 1100 and (np.diff(table[:, ITERATION]) > 0).all()


def test_a_reset_of_the_run_takes_the_future_away():
    model = ViewModel()
    for i in (100, 200, 300):
        model.apply(Densified(i, cloned=1, reset=5 if i == 200 else 0, count=i), 0.0)
    model.observe(Snapshot(iteration=300))
    model.observe(Snapshot(iteration=150))
    assert model.population.table[:, ITERATION].tolist() == [100] and model.population.resets == []
    model.observe(Snapshot(iteration=0))
    assert not len(model.population.table)
