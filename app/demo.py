"""Where the bundled demo is."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def demo_folder() -> Path:
    """Folder of the bundled demo scene, whether or not it is installed."""
    return Path(str(resources.files("assets"))) / "demo"
