"""What instruments answer: frozen dataclasses of numpy arrays and plain values. Torch-free, for the window reads them."""

from __future__ import annotations
