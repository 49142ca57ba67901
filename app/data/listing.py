"""What a loader found in a folder before anything is decoded or resized; both loaders return this."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from app.data.photos import Located, Photo
from app.data.scene import PointCloud


@dataclass
class Listing:
    """A recognised scene: its photographs with cameras, its points and every sentence to say aloud."""

    path: Path
    kind: Literal["colmap", "transforms"]
    photos: list[Photo]
    located: Located
    points: PointCloud | None
    listed: int                  # images that have a pose
    on_disk: int                 # image files in the folder; more than listed = some were not registered
    image_folder: Path
    model: Path                  # the model folder or the JSON file
    prepared: int = 0            # images_N was chosen for -r N: the files are already downscaled
    warnings: list[str] = field(default_factory=list)

    def camera_models(self) -> dict[str, int]:
        """Usable images by COLMAP camera model."""
        counts: dict[str, int] = {}
        for photo in self.photos:
            counts[photo.lens.model] = counts.get(photo.lens.model, 0) + 1
        return dict(sorted(counts.items()))
