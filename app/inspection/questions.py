"""What panels may ask of an instrument: frozen dataclasses of plain values that compare by value. Torch-free."""

from __future__ import annotations
