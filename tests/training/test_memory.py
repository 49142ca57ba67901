"""Memory: the cap that comes from it, and that training does not eat it."""

from __future__ import annotations

import pytest

from app.config import DensifyConfig, TrainConfig
from app.engine.memory import rss_bytes
from app.training import trainer as trainer_module
from app.training.memory import BYTES_PER_GAUSSIAN, available_bytes, default_cap, peak_rss_bytes
from app.training.trainer import Trainer
from tests.training.tiny import make_scene


def test_F11_default_cap_comes_from_free_memory(monkeypatch):
    assert default_cap(8 << 30) == (4 << 30) // BYTES_PER_GAUSSIAN
    monkeypatch.setattr(trainer_module, "available_bytes", lambda: 1 << 30)
    trainer = Trainer(make_scene(3), TrainConfig(iterations=2))
    assert trainer.cap == trainer.state.cap == default_cap(1 << 30)
    trainer.set_option("densify.cap", 100)
    assert trainer.cap == trainer.state.cap == 100


def test_F11_a_start_above_the_cap_is_said(monkeypatch):
    trainer = Trainer(make_scene(3), TrainConfig(iterations=2, densify=DensifyConfig(cap=50)))
    assert any("60 Gaussians, more than the cap of 50" in notice for notice in trainer.notices)


def test_figures_of_this_process_are_plausible():
    assert 10 << 20 < peak_rss_bytes() < 1 << 40
    assert peak_rss_bytes() >= 0.5 * rss_bytes()
    assert 1 << 20 < available_bytes() < 1 << 50


@pytest.mark.slow
def test_M01_5000_steps_do_not_grow():
    config = TrainConfig(iterations=6000, schedule_iterations=30000,
                         densify=DensifyConfig(start=0, every=100, stop=600, reset_every=3000))
    trainer = Trainer(make_scene(6, 80, size=56, points=400), config)
    for _ in range(1000):   # warm-up: the number of Gaussians settles
        trainer.step()
    before = rss_bytes()
    for _ in range(5000):
        trainer.step()
    assert rss_bytes() - before < 100 << 20
