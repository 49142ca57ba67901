"""Large scratch and output tensors whose memory is used again.

A training step allocates the same tens of megabytes each time. Handed back to the system, every page would be faulted
in and cleared anew, which costs more than the kernels that fill it. Memory returns to the pool when the last tensor
that views it is gone, whoever held it.
"""

from __future__ import annotations

import sys
import threading
from math import prod

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 18
"""Bytes below which torch's own allocator is left to it."""
_KEEP = 24
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.int32: np.int32, torch.int64: np.int64,
          torch.uint8: np.uint8}

_blocks: list[np.ndarray] = []  # uint8, most recently used last
_lock = threading.Lock()


def _references(blocks: list[np.ndarray], place: int) -> int:
    return sys.getrefcount(blocks[place])


_FREE = _references([np.empty(1, dtype=np.uint8)], 0)
"""References to a block that only its list holds; measured, since Python versions count temporaries differently."""


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised contiguous CPU tensor, aligned to 64 bytes when large."""
    size = prod(shape) * dtype.itemsize
    if size < SMALL:
        return torch.empty(shape, dtype=dtype)
    # Rounded up to an eighth of its power of two, so that a slowly growing scene keeps finding its blocks.
    step = max(1 << (size.bit_length() - 4), 4096)
    capacity = -(-size // step) * step + 64
    with _lock:
        block = _take(capacity)
    skip = -block.ctypes.data % 64
    return torch.from_numpy(block[skip:skip + size].view(_NUMPY[dtype]).reshape(shape))


def empty_like(tensor: Tensor) -> Tensor:
    return empty(tuple(tensor.shape), tensor.dtype)


def held_bytes() -> int:
    """Bytes in the pool, in use or waiting."""
    with _lock:
        return sum(block.nbytes for block in _blocks)


def release() -> None:
    """Give back the blocks that nobody uses, as when a scene is closed."""
    with _lock:
        _blocks[:] = [_blocks[place] for place in range(len(_blocks)) if _references(_blocks, place) > _FREE]


def _take(capacity: int) -> np.ndarray:
    for place in range(len(_blocks) - 1, -1, -1):
        if capacity <= _blocks[place].nbytes <= capacity + capacity // 4 and _references(_blocks, place) == _FREE:
            _blocks.append(_blocks.pop(place))
            return _blocks[-1]
    block = np.empty(capacity, dtype=np.uint8)
    _blocks.append(block)
    del _blocks[:-_KEEP]  # what is still in use lives on with its tensors
    return block
