"""Ids of jobs: positive 31-bit numbers, and the ranges of them that a cell of a federation may draw from."""

from __future__ import annotations

from typing import Final

import msgspec

JOB_ID_MAX: Final = 2**31 - 1
ID_BLOCK: Final = 100_000
"""Cells lease ids by so many, or by several times as many."""


class IdRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ids from `first` on. Leased ones no other cell ever has; `version` is the store's revision at which they were leased.

    0: this cell's own by its own word, as those of a cluster alone. They may be ids of other cells, too.
    """

    first: int
    count: int
    version: int = 0

    @property
    def end(self) -> int:
        """The first id after it."""
        return self.first + self.count

    @property
    def is_open(self) -> bool:
        """True of a cluster that is no member any more: whatever comes after its leased ids is its own."""
        return not self.version and self.end >= JOB_ID_MAX


def left_of(blocks: tuple[IdRange, ...], next_id: int) -> int:
    """Count the leased ids in these ranges that have not been drawn."""
    return sum(max(0, one.end - max(next_id, one.first)) for one in blocks if one.version)
