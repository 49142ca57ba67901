"""Where the fonts of the window and of saved pictures are. Torch-free."""

from __future__ import annotations

from pathlib import Path


def font_folder() -> Path:
    """Matplotlib ships DejaVu, which has alpha, partial and Sigma on every system."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"
