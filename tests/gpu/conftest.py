"""Where the GPU tests run: on the card with `pytest -m gpu`, and those that take `way` on the host's emulation as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from render.backends import cuda
from tests.emulation.host import Emulated


@pytest.fixture(scope="session")
def card() -> torch.device:
    """The GPU, or a skip that says what is missing."""
    problem = cuda.problem()
    if problem:
        pytest.skip(f"CUDA cannot run here: {problem}")
    return cuda.device()


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """"card" or "emulated": which of them runs the kernels in the test."""
    if request.param == "card":
        request.getfixturevalue("card")
        yield request.param
    else:
        with cuda.driven_by(Emulated(orders=1)):
            yield request.param
