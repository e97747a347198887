"""One term as a standby, without I/O: watch the leader row, claim the lead, come to the log's end, lead.

The controller and the simulator drive this one machine: they carry out its actions in order and report what came of them.
Invariants: nothing is written before the claim, and one claim is under way at a time; the lead is taken with a state that
stands exactly where the log does, under the claim's own epoch; from the claim on `lease` is to be kept.
"""

from __future__ import annotations

from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from eslurm.core.dispatch.election import Election, LeaderRow
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.core.state.cluster import State

FOLLOW_RETRY_US: Final = 200_000
"""Pause after the store could not be read."""

R = TypeVar("R", bound=LeaderRow)
"""The leader row as the driver reads it."""


class Follow(msgspec.Struct, frozen=True):
    """Action: apply the log at least up to this revision, then report `followed`."""

    revision: int


class Claim(msgspec.Struct, Generic[R], frozen=True):
    """Action: claim the lead against exactly this row, then report `claimed` or `not_claimed`."""

    seen: R


class Lead(msgspec.Struct):
    """Action: the lead is won: under this epoch, with the state where the log stands."""

    name: str
    endpoint: str
    epoch: int
    state: State


class Withdraw(msgspec.Struct, frozen=True):
    """Action: another controller leads by now; the process ends."""

    reason: str


Action: TypeAlias = Follow | Claim[R] | Lead | Withdraw


class StandbyTerm(Generic[R]):
    """One standby's. `now_us` is monotonic time; raises ValueError for a lease that is not positive."""

    def __init__(self, name: str, endpoint: str, lease_us: int, leader: R) -> None:
        """`leader` is a row that says nothing."""
        self.lease = LeaderLease(lease_us)
        self.leader = leader
        """The leader row as it was last read."""
        self.epoch = 0
        """That of the claim; 0 before."""
        self._name = name
        self._endpoint = endpoint
        self._election = Election(name, endpoint, lease_us)
        self._is_claiming = False

    @property
    def look_every_us(self) -> int:
        """The time between two looks at the row."""
        return self._election.look_every_us

    def looked(self, leader: R, now_us: int) -> list[Action[R]]:
        """The row was read, by a look that began at `now_us`."""
        has_grown = leader.revision > self.leader.revision
        self.leader = leader
        if self.epoch:
            if leader.epoch != self.epoch:
                return [Withdraw(f"claimed epoch {self.epoch}, the store has epoch {leader.epoch}")]
            return [Follow(leader.revision)]
        actions: list[Action[R]] = [Follow(leader.revision)] if has_grown else []
        if self._election.look(leader, now_us) and not self._is_claiming:
            self._is_claiming = True
            actions.append(Claim(leader))
        return actions

    def claimed(self, epoch: int) -> None:
        """The lead is won: no other controller writes now. Read the row next: it says where the log ends."""
        self.epoch = epoch

    def not_claimed(self) -> None:
        """Too late, or the store does not say: the row will."""
        self._is_claiming = False

    def followed(self, state: State) -> list[Action[R]]:
        """The state stands at the revision that was to be followed, or at a later one."""
        if not self.epoch or self.leader.epoch != self.epoch:
            return []
        if state.revision != self.leader.revision:
            return [Withdraw(f"the state is at revision {state.revision}, the log at {self.leader.revision}")]
        # A batch of answers alone moves the log's time and leaves no fact to learn it from.
        state.now_us = max(state.now_us, self.leader.at_us)
        # Following may have been interrupted between two facts: what it touched is in the store already.
        state.take_touched()
        return [Lead(self._name, self._endpoint, self.epoch, state)]
