"""A GPU that is none, for each test that asks for it."""

from __future__ import annotations

import pytest

from render.backends import cuda
from tests.emulation.fake_pycuda import install


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    made = install(monkeypatch, tmp_path / "cache")
    yield made
    cuda.problems.cache_clear()
    assert not any(made.balance.values()), "a thread ends with a context on its stack, which aborts the process"
