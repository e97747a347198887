"""A leader's lease, without I/O: when the leader row is moved, what the store's answer means, and how the lead is let go.

The controller and the simulator drive this one machine, from the claim on: they make the write that `next` returns,
report its answer, and ask again after `pause_us`. Invariants: one write is under way at a time; after a lost fence none is
made; the lead counts as held at a time only if a renewal that began then has succeeded. Times are the driver's own.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

RENEWS_PER_LEASE: Final = 4
"""Least number of a leader's renewals within a lease."""
RELEASE_TRIES: Final = 3
RELEASE_RETRY_US: Final = 100_000


class Renew(msgspec.Struct, frozen=True):
    """Action: move the leader row's beat."""

    began_us: int


class Release(msgspec.Struct, frozen=True):
    """Action: let go of the lead, after the last commit; `successor` empty: any standby may follow."""

    successor: str


Write: TypeAlias = Renew | Release


class LeaderLease:
    """One lead's. Raises ValueError for a lease that is not positive."""

    def __init__(self, lease_us: int) -> None:
        if lease_us <= 0:
            raise ValueError(f"a lease of {lease_us} us is none")
        self._renew_every_us = max(1, lease_us // RENEWS_PER_LEASE)
        self._under_way: Write | None = None
        self._successor: str | None = None
        self._tries = 0
        self.is_lost = False
        """Another controller leads."""
        self.is_over = False
        """Nothing is written any more: the lead is lost, let go, or cannot be let go."""

    @property
    def pause_us(self) -> int:
        """Pause after an answer before `next`, in microseconds."""
        return self._renew_every_us if self._successor is None else RELEASE_RETRY_US

    def next(self, now_us: int) -> Write | None:
        """The write that is due: report it as `succeeded`, `unavailable` or `lost`. None while one is under way."""
        if self._under_way is None and not self.is_over:
            self._under_way = Renew(now_us) if self._successor is None else Release(self._successor)
            return self._under_way
        return None

    def let_go(self, successor: str) -> None:
        """From now on `next` releases the lead; the answer to a renewal under way means nothing any more."""
        self._successor = successor
        self._under_way = None

    def succeeded(self, write: Write) -> int | None:
        """The store has it: the time at which the lead is known to have been held, for a renewal that still counts."""
        if not self._take(write):
            return None
        if isinstance(write, Renew):
            return write.began_us
        self.is_over = True
        return None

    def unavailable(self, write: Write) -> None:
        """The store is away. A release is tried a few times: without it standbys wait for the lease to run out."""
        if self._take(write) and isinstance(write, Release):
            self._tries += 1
            self.is_over = self._tries >= RELEASE_TRIES

    def lost(self, write: Write) -> None:
        """Another controller leads."""
        self._take(write)
        self.is_lost = self.is_over = True

    def _take(self, write: Write) -> bool:
        """Check whether this is the write under way, which is answered now."""
        is_current = write is self._under_way
        if is_current:
            self._under_way = None
        return is_current
