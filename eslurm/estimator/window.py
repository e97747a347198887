"""The interest window of the published methods: the last ended jobs (E-41), learnt from periodically (E-42).

Invariant: the window holds at most `jobs` entries; a lesson is due at most once a period, and only when jobs have ended
since the last one.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from eslurm.estimator.settings import SettingsReader

WINDOW_JOBS: Final = 700
RETRAIN_EVERY_S: Final = 15 * 3_600
LEAST_JOBS: Final = 10
"""Of a window."""
FIRST_JOBS: Final = 30
"""Number of ended jobs before the first lesson."""

Item = TypeVar("Item")


class Window(Generic[Item]):
    """The interest window and its clock."""

    def __init__(self, jobs: int = WINDOW_JOBS, every_s: int = RETRAIN_EVERY_S) -> None:
        self.jobs = jobs
        self.every_s = every_s
        self._items: deque[Item] = deque(maxlen=jobs)
        self._fresh = 0
        self._learnt_at_s: int | None = None

    @staticmethod
    def of(reader: SettingsReader) -> Window[Item]:
        """The window with the settings `window_jobs` and `retrain_every_s`."""
        return Window(
            reader.integer("window_jobs", WINDOW_JOBS, LEAST_JOBS, 100_000),
            reader.integer("retrain_every_s", RETRAIN_EVERY_S, 1, 365 * 86_400),
        )

    def add(self, item: Item) -> None:
        """Add the item of an ended job."""
        self._items.append(item)
        self._fresh += 1

    def due(self, at_s: int) -> bool:
        """True when a period has passed and jobs have ended since."""
        if not self._fresh or len(self._items) < min(FIRST_JOBS, self.jobs):
            return False
        return self._learnt_at_s is None or at_s - self._learnt_at_s >= self.every_s

    def take(self, at_s: int) -> tuple[Item, ...] | None:
        """The items to learn from, oldest first, and restart the clock; None when nothing is due."""
        if not self.due(at_s):
            return None
        self._fresh = 0
        self._learnt_at_s = at_s
        return tuple(self._items)
