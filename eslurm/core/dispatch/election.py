"""Election: when a standby may claim the lead, from what it sees of the leader row.

Invariant: a lead is claimed against its holder's will only after the row was watched, without a gap, for a whole lease and
did not move. No clocks are compared: the leader moves its row, the standby measures with its own monotonic clock for how
long it did not. A wrong claim costs a switch, never a commit: the claim is a compare-and-swap on the row as seen, and the
fence is checked in each commit.
"""

from __future__ import annotations

from typing import Protocol

LOOKS_PER_LEASE = 8
"""Least number of a standby's looks within a lease."""
GAP_PER_LEASE = 2
"""The part of a lease without a look (the store was away, the standby stood still) after which its watch begins
anew: a leader that could not reach the store either is to have its chance first."""


class LeaderRow(Protocol):
    """The leader row as read from the store: `eslurm.ports.store.Leader` is one."""

    @property
    def epoch(self) -> int:
        """Epoch of the latest leader; 0: there was none."""

    @property
    def revision(self) -> int:
        """The last committed revision."""

    @property
    def at_us(self) -> int:
        """The time of that commit."""

    @property
    def beat(self) -> int:
        """Rises with each renewal."""

    @property
    def holder(self) -> str:
        """The latest leader's name."""

    @property
    def endpoint(self) -> str:
        """The latest leader's endpoint for links."""

    @property
    def released(self) -> bool:
        """True when the holder released the lead in good order."""

    @property
    def successor(self) -> str:
        """Name of the successor after a release; empty: any."""


def is_dialled(leader: LeaderRow, name: str) -> bool:
    """Check whether the standby of this name links to the row's holder."""
    return not leader.released and bool(leader.endpoint) and leader.holder != name


def is_led_under(leader: LeaderRow, epoch: int) -> bool:
    """Check whether a process that says that it leads under this epoch may: the row names no later leader."""
    return not leader.released and epoch >= leader.epoch


class Election:
    """One standby's watch of one leader row. Call `look` with every row read, at least every `look_every_us`.

    `name` and `endpoint` are its own: a row with both belongs to its own former process, which is dead or will be fenced.
    The name alone is not enough, because two hosts may have the same by mistake. `now_us` is monotonic time in
    microseconds. Make a new one after a lost lead; raises ValueError for a lease that is not positive.
    """

    def __init__(self, name: str, endpoint: str, lease_us: int) -> None:
        if lease_us <= 0:
            raise ValueError(f"a lease of {lease_us} us is none")
        self._name = name
        self._endpoint = endpoint
        self._lease_us = lease_us
        self._seen: tuple[int, int, int, bool] | None = None
        self._since_us = 0
        self._looked_us = 0

    @property
    def look_every_us(self) -> int:
        """The time between two looks at the row."""
        return max(1, self._lease_us // LOOKS_PER_LEASE)

    def look(self, leader: LeaderRow, now_us: int) -> bool:
        """Check whether to claim the lead now, against exactly this row."""
        self._watch(leader, now_us)
        if not leader.epoch or not leader.holder:
            # There was no leader, or one of a release without standbys: its lead is never shared, the fence ends it.
            return True
        if leader.released and leader.successor in ("", self._name):
            return True
        if (leader.holder, leader.endpoint) == (self._name, self._endpoint) and not leader.released:
            return True
        return now_us - self._since_us >= self._lease_us

    def _watch(self, leader: LeaderRow, now_us: int) -> None:
        seen = (leader.epoch, leader.revision, leader.beat, leader.released)
        blind = now_us - self._looked_us > self._lease_us // GAP_PER_LEASE
        if seen != self._seen or blind:
            self._seen = seen
            self._since_us = now_us
        self._looked_us = now_us
