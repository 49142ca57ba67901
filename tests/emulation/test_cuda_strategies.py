"""Strategies of densification on the CUDA backend with no GPU: the same events as on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from app.training.densify.mcmc import MarkovChain
from app.training.trainer import Trainer
from render.backends import cuda
from tests.emulation.host import Emulated
from tests.emulation.test_cuda_training import CONFIG, tiny


@pytest.fixture
def emulated():
    with cuda.driven_by(Emulated(orders=1)):
        yield


@pytest.mark.parametrize("strategy", ["absgs", "mcmc", "taming"])
def test_events_are_those_of_the_cpu(emulated, strategy):
    densify = replace(CONFIG.densify, strategy=strategy, taming_budget=50, taming_views=2, absgs_threshold=4e-5, cap=60)
    config, scene = replace(CONFIG, densify=densify), tiny()
    ours, theirs = (Trainer(scene, config, backend=backend) for backend in ("cuda", "cpu"))
    for _ in range(CONFIG.iterations):
        ours.step()
        theirs.step()
    ours.settle()
    events = [(r.event.iteration, r.event.count, r.event.relocated, r.event.added) for r in ours.records]
    assert events == [(r.event.iteration, r.event.count, r.event.relocated, r.event.added) for r in theirs.records] and events
    assert len(ours.params) > 30 and all(torch.isfinite(t).all() for t in ours.params.trained().values())


def test_a_step_that_does_not_count_makes_no_noise(emulated):
    trainer = Trainer(tiny(), replace(CONFIG, densify=replace(CONFIG.densify, strategy="mcmc")), backend="cuda")
    trainer.step()
    strategy, before = trainer.strategy, trainer.params.means.detach().clone()
    assert isinstance(strategy, MarkovChain)
    strategy._ok = torch.zeros(1)
    strategy.add_noise(trainer.state, 1e6)
    assert torch.equal(trainer.params.means.detach(), before)
    strategy._ok = torch.ones(1)
    strategy.add_noise(trainer.state, 1e6)
    assert not torch.equal(trainer.params.means.detach(), before)
