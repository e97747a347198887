"""Units in which the core counts: microseconds of time."""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
