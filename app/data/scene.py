"""What a loader returns: views with lazily decoded images, points and everything worth saying aloud. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from render.types import Camera

FARTHEST = 1e15
"""Cameras farther than this from the origin are refused: the squares of their coordinates have to fit float32."""


class SceneError(ValueError):
    """The user's input cannot be used; the message is one sentence: what, where, what to do."""


@dataclass(frozen=True)
class View:
    """One photograph and its pinhole camera (already undistorted and resized)."""

    name: str
    camera: Camera
    load: Callable[[], np.ndarray]
    """Decodes to C-contiguous uint8 [H,W,3] RGB or [H,W,4] RGBA with straight alpha; the scene's image cache keeps it,
    so do not write into it. SceneError where the file cannot be decoded."""
    split: Literal["train", "test"] = "train"


@dataclass(frozen=True)
class PointCloud:
    positions: np.ndarray  # [P,3] float32 world
    colors: np.ndarray     # [P,3] uint8


@dataclass
class Scene:
    path: str
    kind: Literal["colmap", "transforms", "demo"]
    views: list[View]
    points: PointCloud | None
    camera_models: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    has_alpha: bool = False
    image_bytes: Callable[[], int] = field(default=int, repr=False)   # pixels that the image cache holds now

    @property
    def train(self) -> list[View]:
        return [v for v in self.views if v.split == "train"]

    @property
    def test(self) -> list[View]:
        return [v for v in self.views if v.split == "test"]
