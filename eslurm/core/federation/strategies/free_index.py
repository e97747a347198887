"""Cells ordered by their free nodes (X-31): best fit, most, and changes in logarithmic time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator


class FreeIndex:
    """Cells and their free nodes. Cells of equal counts are in the order of their numbers."""

    def __init__(self) -> None:
        self._ordered: list[tuple[int, int]] = []
        self._free: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ordered)

    def get(self, cell: int) -> int | None:
        """The count of a cell; None: it is not here."""
        return self._free.get(cell)

    def put(self, cell: int, free: int) -> None:
        """Enter a cell, or change its count."""
        if self._free.get(cell) == free:
            return
        self.remove(cell)
        self._free[cell] = free
        insort(self._ordered, (free, cell))

    def remove(self, cell: int) -> None:
        """Take a cell out, if it is here."""
        free = self._free.pop(cell, None)
        if free is not None:
            del self._ordered[bisect_left(self._ordered, (free, cell))]

    def best_fit(self, count: int, without: Collection[int] = ()) -> int | None:
        """The cell with the fewest free nodes that are `count` or more, else that with most; None: all are full."""
        for place in range(bisect_left(self._ordered, (count, -1)), len(self._ordered)):
            if self._ordered[place][1] not in without:
                return self._ordered[place][1]
        return next((cell for cell in self.descending() if cell not in without), None)

    def most_free(self, count: int) -> list[int]:
        """Up to `count` cells with most free nodes, the most first."""
        found: list[int] = []
        for cell in self.descending():
            if len(found) == count:
                break
            found.append(cell)
        return found

    def descending(self) -> Iterator[int]:
        """Cells with free nodes, the most first."""
        for free, cell in reversed(self._ordered):
            if not free:
                break
            yield cell
