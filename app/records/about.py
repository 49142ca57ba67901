"""What a record says of itself: program, packages, machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from typing import Any

FORMAT = 1
"""Of config.json and the lines beside it; a reader refuses a newer one."""


def versions() -> dict[str, str]:
    """What computed the results."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("splatscope", "torch", "numpy", "scipy", "pycolmap", "pillow"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def about(config: Mapping[str, Any], scene: Mapping[str, Any], *, backend: str, threads: int, device: str = ""
          ) -> dict[str, Any]:
    """What config.json holds. `config` is flat ("densify.absgrad": False), `scene` has at least path, name and kind."""
    return {"format": FORMAT, "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "scene": dict(scene), "seed": config.get("seed"), "config": dict(config),
            "machine": {"backend": backend, "threads": threads, "device": device, "cores": os.cpu_count(),
                        "processor": platform.processor() or platform.machine()},
            "versions": versions()}
