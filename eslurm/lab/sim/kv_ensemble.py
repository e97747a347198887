"""The common state of the shared store's servers: their leader, the committed changes, the leases that have ended.

The replicated log is one image that changes when its leader commits; each member shows it as far as it has reached that
member. Invariants: nothing is committed without a leader that reaches a majority and is reached by it; a leader has
every committed change, for each is in the logs of a majority; a change without a verdict is found by the next leader or is
lost, once. As in etcd, leases are ended by the leader alone, some time after they have run out, and a new leader gives each
its full life again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.kv.image import KvImage
from eslurm.lab.sim.bare_process import Ground
from eslurm.ports.kv import KvError, KvFull

MEMBERS = 3
LOOK_EVERY_US = 100_000
ELECTION_MIN_US = SECOND_US
ELECTION_MAX_US = 3 * SECOND_US
"""Time from the loss of a leader to the next one."""
EXPIRY_LATE_MAX_US = 2 * SECOND_US
WRITE_MIN_US = 800
WRITE_SPREAD_US = 5_000
SLOW_WRITE_US = 2_500_000
LAG_US = 3_000
LONG_LAG_US = 1_500_000
FOUND_SHARE = 0.5
"""Of changes without a verdict, those that the next leader has in its log."""
DONE_THOUGH_FULL_SHARE = 0.1

Work = Callable[[KvImage], Any]


class Member(Protocol):
    """A server, as the ensemble sees it."""

    index: int
    address: str
    alive: bool

    @property
    def is_paused(self) -> bool: ...

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None: ...

    def advance(self) -> None: ...


class MemberDisk(msgspec.Struct):
    """The state of a member that survives a crash: the end of its log, and the last change that it has applied."""

    logged: int = 1
    applied: int = 1
    contact_us: int = 0
    """The time of its last contact with a leader."""


class KvEnsemble:
    """All members of one store. `elections` are the instants at which a leader was elected."""

    def __init__(self, ground: Ground, image: KvImage, seed: str) -> None:
        self.image = image
        self.disks = [MemberDisk(contact_us=ground.scheduler.at_us) for _ in range(MEMBERS)]
        self.members: dict[int, Member] = {}
        self.leader: Member | None = None
        self.elections: list[int] = []
        self.is_full = False
        self.is_slow = False
        self.lags: set[int] = set()
        """Members that apply late."""
        self._ground = ground
        self._random = random.Random(seed)
        self._elect_at_us: int | None = None
        self._lost_us = 0
        self._expire_at_us: int | None = None
        # Changes that a leader took and could not commit.
        self._open: list[Work] = []

    def draw(self) -> float:
        """A number of [0, 1): the members' luck."""
        return self._random.random()

    def start(self) -> None:
        """Elect a first leader at once and go on looking after it."""
        self._elect(min(self.members))
        self._look_again()

    @property
    def has_quorum(self) -> bool:
        """Check whether changes can be made now."""
        return self.leader is not None and self._majority_of(self.leader) is not None

    def reaches_leader(self, member: Member) -> bool:
        """Check whether the member and the leader hear each other."""
        leader = self.leader
        return leader is not None and self._is_up(leader) and self._are_linked(member, leader)

    def read_index(self, member: Member) -> int:
        """The revision that a read at this member must have seen; 0: there is no leader that could say so."""
        return self.image.revision if self.reaches_leader(member) and self.has_quorum else 0

    # ---- changes ----

    def propose(self, member: Member, work: Work, then: Callable[[Any], None], *, needs_room: bool) -> None:
        """Have a change made; `then` gets its result or the store's error, or is never called."""
        if not self.reaches_leader(member):
            return
        delay_us = WRITE_MIN_US + int(self._random.random() * WRITE_SPREAD_US)
        if self.is_slow:
            delay_us += int(self._random.random() * SLOW_WRITE_US)
        term = len(self.elections)
        commit = partial(self._commit, term, member, work, then, needs_room=needs_room)
        self._ground.scheduler.call_in(delay_us, commit)

    def _commit(
        self, term: int, member: Member, work: Work, then: Callable[[Any], None], *, needs_room: bool
    ) -> None:
        if term != len(self.elections) or not self.has_quorum:
            if not (needs_room and self.is_full):
                self._open.append(work)
            return
        result: Any
        if needs_room and self.is_full and self._random.random() >= DONE_THOUGH_FULL_SHARE:
            result = KvFull("etcdserver: mvcc: database space exceeded")
        else:
            result = self._make(work)
            if needs_room and self.is_full and not isinstance(result, KvError):
                result = KvFull("etcdserver: mvcc: database space exceeded")
        if self.reaches_leader(member):
            member.later(self._hop_us(), then, result)

    def _make(self, work: Work) -> Any:
        before = self.image.revision
        try:
            result = work(self.image)
        except KvError as error:
            result = error
        if self.image.revision != before:
            self._spread()
        return result

    def _spread(self) -> None:
        """Bring the log to all that the leader reaches."""
        for member in self._reached():
            disk = self.disks[member.index]
            if disk.logged < self.image.revision:
                disk.logged = self.image.revision
                most_us = LONG_LAG_US if member.index in self.lags else LAG_US
                member.later(int(self._random.random() * most_us), self._apply, member, disk.logged)

    def _apply(self, member: Member, revision: int) -> None:
        disk = self.disks[member.index]
        disk.applied = max(disk.applied, revision)
        member.advance()

    # ---- leases ----

    def keep(self, member: Member, lease: int, then: Callable[[Any], None]) -> None:
        """Renew a lease, as the leader does by itself; one that has run out is answered when it has ended."""
        if not self.reaches_leader(member):
            return
        now_us = self._ground.scheduler.at_us
        if self.image.is_over(lease, now_us):
            self._ground.scheduler.call_in(LOOK_EVERY_US, partial(self.keep, member, lease, then))
            return
        result: Any
        try:
            result = self.image.keep(lease, now_us)
        except KvError as error:
            result = error
        member.later(self._hop_us(), then, result)

    def _expire(self) -> None:
        now_us = self._ground.scheduler.at_us
        expiry_us = self.image.next_expiry_us()
        if expiry_us is None or expiry_us > now_us:
            self._expire_at_us = None
        elif self._expire_at_us is None:
            self._expire_at_us = now_us + int(self._random.random() * EXPIRY_LATE_MAX_US)
        elif now_us >= self._expire_at_us:
            self._expire_at_us = None
            self._make(lambda image: image.expire(now_us))

    # ---- leaders ----

    def _look_again(self) -> None:
        self._ground.scheduler.call_in(LOOK_EVERY_US, self._look_again)
        now_us = self._ground.scheduler.at_us
        if self.has_quorum:
            self._lost_us = 0
            for member in self._reached():
                self.disks[member.index].contact_us = now_us
            self._make_open(1.0)
            self._spread()
            for index, member in self.members.items():
                if self.disks[index].applied < self.disks[index].logged and index not in self.lags:
                    member.later(0, self._apply, member, self.disks[index].logged)
            self._expire()
            return
        if not self._lost_us:
            self._lost_us = now_us
            span_us = self._random.random() * (ELECTION_MAX_US - ELECTION_MIN_US)
            self._elect_at_us = now_us + ELECTION_MIN_US + int(span_us)
        if self._elect_at_us is not None and now_us >= self._elect_at_us:
            candidate = self._candidate()
            if candidate is not None:
                self._elect(candidate)
            elif self.leader is not None:
                # It has found out that no majority follows it.
                self.leader = None

    def _candidate(self) -> int | None:
        """A member whose log has everything and that a majority hears."""
        fit = [
            index
            for index, member in self.members.items()
            if self.disks[index].logged == self.image.revision and self._majority_of(member) is not None
        ]
        return self._random.choice(fit) if fit else None

    def _elect(self, index: int) -> None:
        now_us = self._ground.scheduler.at_us
        self.leader = self.members[index]
        self.elections.append(now_us)
        self._lost_us = 0
        self._elect_at_us = self._expire_at_us = None
        self.image.extend_all(now_us)
        self._make_open(FOUND_SHARE)
        self._spread()

    def _make_open(self, share: float) -> None:
        """Commit a share of the changes without a verdict; the others are lost."""
        found, self._open = self._open, []
        for work in found:
            if share == 1.0 or self._random.random() < share:
                self._make(work)

    def _majority_of(self, member: Member) -> Sequence[Member] | None:
        """The members that this one hears and is heard by, itself among them; None: they are too few."""
        if not self._is_up(member):
            return None
        found = [
            other for other in self.members.values() if self._is_up(other) and self._are_linked(member, other)
        ]
        return found if 2 * len(found) > MEMBERS else None

    def _reached(self) -> Sequence[Member]:
        return (self._majority_of(self.leader) or ()) if self.leader is not None else ()

    def _is_up(self, member: Member) -> bool:
        return member.alive and not member.is_paused

    def _are_linked(self, one: Member, other: Member) -> bool:
        network = self._ground.network
        return network.reaches(one.address, other.address) and network.reaches(other.address, one.address)

    def _hop_us(self) -> int:
        return 150 + int(self._random.random() * 1_500)
