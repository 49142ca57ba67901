"""Where tests on real data find it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest


def real_data(*parts: str) -> Path:
    """A path below $SPLATSCOPE_TEST_DATA; the test is skipped, with the reason, where the variable is not set."""
    root = os.environ.get("SPLATSCOPE_TEST_DATA")
    if not root:
        pytest.skip("SPLATSCOPE_TEST_DATA is not set: this test reads real data")
    path = Path(root, *parts)
    assert path.exists(), f"SPLATSCOPE_TEST_DATA is set, but {path} is missing"
    return path


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Float32 tensors of a .safetensors file: 8 bytes header length, a JSON header, the raw data."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "F32" for entry in header.values())
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            for name, entry in header.items()}
