"""A bounded number of places that a few users cannot fill: each may have a part of the free ones, and some are reserved.

Invariant: a privileged user finds a place while any of all is free; the places of others never reach into the reserve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

PART = 4
"""A user may have at most one in so many of what the others have left."""
RESERVED = 8
"""One in so many places is for privileged users."""


U = TypeVar("U", bound=Hashable)


class FairQuota(Generic[U]):
    """Places for users, or for addresses. `per_user` bounds one of them however much is free."""

    def __init__(self, places: int, per_user: int) -> None:
        self._places = places
        self._open = places - places // RESERVED
        self._per_user = per_user
        self._privileged = 0
        self.taken = 0
        self.by_user: Counter[U] = Counter()

    def enter(self, user: U, *, privileged: bool) -> bool:
        """Take a place, if this user may have one more."""
        mine = self.by_user[user]
        if self.taken >= self._places or mine >= self._per_user:
            may = False
        elif privileged:
            may = True
        else:
            left = self._open - (self.taken - self._privileged)
            may = left > 0 and mine <= (left - 1) // PART
        if not may:
            if not mine:
                del self.by_user[user]
            return False
        self.by_user[user] += 1
        self.taken += 1
        self._privileged += privileged
        return True

    def leave(self, user: U, *, privileged: bool) -> None:
        """Give a place back."""
        self.taken -= 1
        self._privileged -= privileged
        self.by_user[user] -= 1
        if not self.by_user[user]:
            del self.by_user[user]
