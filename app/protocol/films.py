"""Films: cameras in, a video or a folder of pictures out."""

from __future__ import annotations

from dataclasses import dataclass

from app.protocol.commands import Command
from app.protocol.view import ViewRequest
from render.types import Camera


@dataclass(frozen=True)
class ExportVideo(Command):
    """Draw the model, as it is when this begins, at every camera (all of one size) and write an .mp4, or a folder of PNGs.

    The request says in which mode and colours; its camera does not count, and neither does a second mode beside.
    """
    path: str
    cameras: tuple[Camera, ...]
    request: ViewRequest
    fps: float = 30.0
