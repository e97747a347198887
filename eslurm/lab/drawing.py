"""Pictures by matplotlib: their formats, and whether they can be drawn here, for matplotlib is an extra of the lab."""

from __future__ import annotations

import importlib.util
from typing import Final

FORMATS: Final = (".svg", ".png")


def available() -> bool:
    """Check whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None
