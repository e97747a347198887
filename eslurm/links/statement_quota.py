"""Number of sealed statements that the link of another cell may have looked at.

Invariant: per kind `BURST` at once and then one a second; the rest is counted, not looked at.
"""

from __future__ import annotations

from typing import Final

BURST: Final = 4.0
"""A cell states its keys when a link begins, and again at each change of them."""
DROPPED_MAX: Final = 64
"""A link with more dropped statements ends."""


class StatementQuota:
    """One for each link to a cell."""

    def __init__(self) -> None:
        self.dropped = 0
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, kind: str, now_s: float) -> bool:
        """Use one, unless there is none left."""
        left, at_s = self._left.get(kind, (BURST, now_s))
        left = min(BURST, left + now_s - at_s)
        is_left = left >= 1.0
        self._left[kind] = (left - is_left, now_s)
        self.dropped += not is_left
        return is_left
