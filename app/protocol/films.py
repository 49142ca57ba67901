"""Films: a camera path in, a video or a folder of pictures out."""

from __future__ import annotations

from dataclasses import dataclass

from app.camera_path import CameraPath
from app.protocol.commands import Command
from app.protocol.view import ViewRequest


@dataclass(frozen=True)
class ExportVideo(Command):
    """Draw the model, as it is when this begins, along a camera path and write an .mp4, or a folder of PNGs.

    The request says in which mode and colours; its camera does not count, and neither does a second mode beside.
    """
    path: str
    along: CameraPath
    request: ViewRequest
    width: int = 1280
    height: int = 720
    fps: float = 30.0
