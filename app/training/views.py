"""The order in which views are shown, and their pictures as targets of the loss."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.data.scene import View


class ViewOrder:
    """Every view once in a random order, then again in another, from a generator of its own."""

    def __init__(self, count: int, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self._count = count
        self._left: list[int] = []

    def next(self) -> int:
        """Index of the next view."""
        if not self._left:
            self._left = self._rng.permutation(self._count).tolist()
        return self._left.pop()

    def peek(self) -> int:
        """Index of the view that next() gives next."""
        return self._left[-1] if self._left else int(copy.deepcopy(self._rng).permutation(self._count)[-1])

    def memory(self) -> dict[str, Any]:
        """Where in the order it is, as JSON."""
        return {"rng": self._rng.bit_generator.state, "left": list(self._left)}

    def remember(self, memory: Mapping[str, Any]) -> list[str]:
        """Go on where memory() was; sentences about what cannot be taken up."""
        left = [int(index) for index in memory.get("left", ())]
        if any(not 0 <= index < self._count for index in left):
            return ["The order of the views begins anew: the checkpoint names views that this scene has not."]
        self._rng.bit_generator.state, self._left = memory["rng"], left
        return []

    def put_back(self, indices: list[int]) -> None:
        """The views that next() gave last, in that order, come next again."""
        self._left.extend(reversed(indices))


def load_target(view: View, background: Tensor) -> Tensor:
    """[H,W,3] float32 in [0,1] on the background's device.

    Straight alpha is composited over `background` [3], the very one that is rendered with:
    rgb * a + background * (1 - a), so that transparent regions teach transparency (D07, D08).
    Raises ValueError when the picture and its camera differ in size.
    """
    pixels = view.load()
    if pixels.shape[:2] != (view.camera.height, view.camera.width):
        raise ValueError(f"{view.name}: the picture is {pixels.shape[1]}x{pixels.shape[0]} px, "
                         f"its camera {view.camera.width}x{view.camera.height} px")
    return to_target(pixels, background)


def to_target(pixels: np.ndarray, background: Tensor) -> Tensor:
    """[H,W,3] float32 of uint8 pixels [H,W,3 or 4], as load_target() says; of a picture or of a part of one."""
    source = torch.from_numpy(pixels)
    if background.is_cuda:
        source = source.pin_memory()   # else the copy would wait for all that the device has to do before it
    image = source.to(background.device, non_blocking=True).to(torch.float32) * (1.0 / 255.0)
    if image.shape[2] == 4:
        alpha = image[:, :, 3:]
        image = image[:, :, :3] * alpha + background * (1.0 - alpha)
    return image
