"""A cell's membership: its record, its number, its lease, and the word that it is alive.

The leader of the cell runs it. Invariants: a name has one number and a number one name, for each joining changes one key; a
leader that knows of a newer epoch writes nothing any more, and each of its later writes is conditional on an `alive` word
that is not newer than its own. Leases say which cells are alive and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.federation.actions import (
    Failure,
    GrantedLease,
    GrantLease,
    KeepLease,
    LeaseAction,
    MemberAction,
    Problem,
    RevokeLease,
    StoredEntry,
    SwapAnswer,
    SwapKeys,
)
from eslurm.core.federation.member_changes import ChangeRecord, Join, Own, ShowAlive
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Change, Result, Swap
from eslurm.core.federation.values import Keys, Unreadable, encode
from eslurm.core.model.federation import FORMAT, Alive, CellRecord, FederationConfig

KEEPS_PER_LEASE: Final = 4
AGAIN_US: Final = 1_000_000
"""The shortest time between two leases, and after a change that failed."""
KEEP_AGAIN_US: Final = 500_000
OTHERS_MAX: Final = 5
RING_BYTES_MAX: Final = 6_144
ECHO_US: Final = 5_000_000
"""A value that this cell has written comes back within this time, or the mirror lists again."""


class Identity(msgspec.Struct, frozen=True):
    """The identity of this cell, for its record. `ring` is the sealed ring of its site."""

    cluster: str
    ring: bytes
    build: str = ""
    protocol: int = 0


class Lead(msgspec.Struct, frozen=True):
    """The lead of this controller: its epoch in the cell's log, its endpoint and those of the standbys."""

    epoch: int
    endpoint: str
    others: tuple[str, ...] = ()
    since_us: int = 0


class Standing(enum.Enum):
    """The membership of this cell."""

    AWAY = "away"
    """The store is not to be had, or the lease may have ended."""
    JOINING = "joining"
    MEMBER = "member"
    REFUSED = "refused"
    """The name is another site's, or its record cannot be read; `problem` has the way out."""
    SUPERSEDED = "superseded"
    """A newer leader of this cell has shown itself."""
    LEFT = "left"
    """The cell has left, until an administrator lets it rejoin."""


ENDED: Final = frozenset({Standing.REFUSED, Standing.SUPERSEDED, Standing.LEFT})
"""Nothing is written, and no lease is kept."""


class Membership:
    """Feed it with answers and `tick` it; it reads the mirrors of `cells/` and `alive/`.

    `standing`, `problem`, `number` and `lease` are for readers; `problem` is a text for people, empty when all is well.
    """

    def __init__(
        self,
        config: FederationConfig,
        identity: Identity,
        cells: Mirror,
        alive: Mirror,
        is_own_ring: Callable[[bytes], bool],
    ) -> None:
        self.own = Own(Keys(config.name), config.cell, is_own_ring)
        self.standing = Standing.AWAY
        self.problem = ""
        self.record: CellRecord | None = None
        self.lease = 0
        self._config = config
        self._identity = identity
        self._cells = cells
        self._alive = alive
        self._lead: Lead | None = None
        self._draining: bool | None = None
        self._left: bool | None = None
        self._is_stopping = False
        self._newest_epoch = 0
        # What the latest answer said of a key, and at which revision: newer than the mirror until that has come so far.
        self._answers: dict[str, tuple[int, StoredEntry | None]] = {}
        self._swap: Swap | None = None
        self._swap_at_us = 0
        self._failure = self._lease_failure = ""
        self._lease_action: LeaseAction | None = None
        self._lease_sent_us = 0
        self._lease_until_us = 0
        self._lease_at_us = 0
        self._grant_at_us = 0
        # Revision of what was written last below a prefix, and when it must have come back.
        self._echoes: dict[str, tuple[int, int]] = {}
        self._done_us: dict[type[Change], int] = {}
        self._alive_bytes = b""

    @property
    def number(self) -> int:
        """The cell's number; 0: it has none yet."""
        return self.record.number if self.record is not None else 0

    @property
    def epoch(self) -> int:
        """Epoch of this controller's lead; 0: it does not lead yet."""
        return self._lead.epoch if self._lead is not None else 0

    # ---- inputs of the controller ----

    def leads(self, lead: Lead) -> None:
        """This controller leads its cell: nothing is written before. Also when its endpoint or standbys have changed.

        Raises `ValueError` for what other cells could not read; `identify` does so, too.
        """
        self._say_alive(lead, self._identity)
        self._lead = lead

    def identify(self, identity: Identity) -> None:
        """The site's ring or the build has changed."""
        self._say_alive(self._lead, identity)
        self._identity = identity

    def change(self, *, draining: bool | None = None, left: bool | None = None) -> None:
        """An administrator's order, which holds from now on; None: the one before, if there was one."""
        self._draining = self._draining if draining is None else draining
        self._left = self._left if left is None else left

    @property
    def is_draining(self) -> bool:
        """The cell takes no work of others: the latest order says so, or without one its record."""
        ordered = self.record is not None and self.record.draining
        return ordered if self._draining is None else self._draining

    @property
    def must_leave(self) -> bool:
        """The latest order is to leave, or stay away."""
        return bool(self._left)

    @property
    def is_changed(self) -> bool:
        """True when the store has all that was ordered."""
        if self._cells.problem or not self._cells.is_listed:
            return False
        if self.record is None:
            return bool(self._left)
        updated = self._updated(self.record)
        return (updated.draining, updated.left) == (self.record.draining, self.record.left)

    def stop(self) -> None:
        """End in good order: the lease is revoked, so others see at once that the cell is away."""
        self._is_stopping = True

    @property
    def is_stopped(self) -> bool:
        """True when nothing is left to end."""
        return self._is_stopping and not self.lease and self._lease_action is None and self._swap is None

    # ---- what next ----

    def tick(self, now_us: int, draw: float) -> tuple[MemberAction, ...]:
        """The next requests to the store, each once. `draw` is of [0, 1), for pauses."""
        if self._lead is None:
            return ()
        self._take_result(now_us, draw)
        self._judge(now_us)
        self._check_echo(now_us)
        actions: list[MemberAction] = []
        if lease_action := self._tick_lease(now_us):
            actions.append(lease_action)
        if self._swap is None and now_us >= self._swap_at_us and not self._is_stopping:
            self._swap = self._next_swap(self._lead, now_us)
        if self._swap is not None and (swap := self._swap.tick(now_us, draw)):
            actions.append(swap)
        return tuple(actions)

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        times = [
            self._lease_at_us,
            self._grant_at_us,
            self._swap_at_us,
            self._lease_until_us,
            *(at for _, at in self._echoes.values()),
        ]
        if self._swap is not None:
            times.append(self._swap.due_us or 0)
        return min((at for at in times if at > now_us), default=None)

    def is_alive_word(self, entry: StoredEntry | None) -> bool:
        """Check whether this is the word of this controller that the cell is alive."""
        return entry is not None and entry.lease == self.lease != 0 and entry.value == self._alive_bytes

    @property
    def alive_entry(self) -> StoredEntry | None:
        """The word that the cell is alive, as far as is known: its own, that of another leader, or none."""
        return self._held(self._alive, self.own.alive_key)

    # ---- answers ----

    def granted(self, action: GrantLease, lease: GrantedLease, now_us: int) -> None:
        """There is a lease."""
        if action is self._lease_action:
            self.lease = lease.lease
            self._hold(lease.ttl_s, now_us)

    def kept(self, action: KeepLease, ttl_s: float, now_us: int) -> None:
        """The lease has its full life again."""
        if action is self._lease_action:
            self._hold(ttl_s, now_us)

    def revoked(self, action: RevokeLease) -> None:
        """The lease has ended."""
        if action is self._lease_action:
            self._lease_action = None
            self._drop_lease()

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        if self._swap is not None:
            self._swap.swapped(action, answer)

    def failed(self, action: MemberAction, failure: Failure, now_us: int) -> None:
        """The call failed."""
        if isinstance(action, SwapKeys):
            if self._swap is not None:
                self._swap.failed(action, failure)
            return
        if action is not self._lease_action:
            return
        self._lease_action = None
        if isinstance(action, RevokeLease):
            # It ends by itself.
            self._drop_lease()
            return
        self._lease_failure = failure.text or failure.problem.value
        if failure.problem is Problem.LEASE_LOST:
            self._drop_lease()
        self._lease_at_us = max(
            self._lease_at_us, now_us + min(KEEP_AGAIN_US, self._keep_us(self._config.lease_s))
        )

    # ---- within ----

    def _say_alive(self, lead: Lead | None, identity: Identity) -> None:
        if len(identity.ring) > RING_BYTES_MAX:
            raise ValueError(
                f"the ring of site {identity.cluster} has {len(identity.ring)} bytes: at most {RING_BYTES_MAX}"
            )
        if lead is None:
            return
        alive = Alive(
            FORMAT,
            lead.epoch,
            lead.endpoint,
            lead.others[:OTHERS_MAX],
            identity.build,
            identity.protocol,
            lead.since_us,
        )
        read = self.own.read_alive(encode(alive))
        if isinstance(read, Unreadable):
            raise ValueError(f"cell {self.own.name} cannot show itself at {lead.endpoint!r}: {read.reason}")
        self._alive_word = alive
        self._alive_bytes = encode(alive)

    def _held(self, mirror: Mirror, key: str) -> StoredEntry | None:
        revision, entry = self._answers.get(key, (0, None))
        return entry if revision > mirror.revision else mirror.words.get(key)

    def _judge(self, now_us: int) -> None:
        entry = self._held(self._cells, self.own.record_key)
        self.record = self.own.find_record(entry)
        if self.record is not None:
            # Under the name of another site's cell it is that cell's leader that shows itself.
            self._newest_epoch = max(self._newest_epoch, self.own.epoch_in(self.alive_entry, self.epoch))
        mirrors = self._cells.problem or self._alive.problem
        if self._newest_epoch > self.epoch:
            text = f"epoch {self._newest_epoch} leads cell {self.own.name}, this controller has epoch {self.epoch}"
            self._stand(Standing.SUPERSEDED, text)
        elif self._has_left():
            self._stand(Standing.LEFT, mirrors)
        elif not (self._cells.is_listed and self._alive.is_listed):
            self._stand(Standing.AWAY, mirrors or "the store has not answered yet")
        elif entry is not None and self.record is None:
            self._stand(Standing.REFUSED, self._refusal(entry))
        elif mirrors:
            self._stand(Standing.AWAY, mirrors)
        elif now_us < self._lease_until_us and self.is_alive_word(self.alive_entry):
            self._stand(Standing.MEMBER, self._failure)
        else:
            problem = self._lease_failure or self._failure
            self._stand(Standing.AWAY if problem else Standing.JOINING, problem)

    def _stand(self, standing: Standing, problem: str) -> None:
        self.standing, self.problem = standing, problem

    def _has_left(self) -> bool:
        if self.record is None:
            return bool(self._left)
        return self.record.left and self._left is not False

    def _refusal(self, entry: StoredEntry) -> str:
        record = self.own.read_record(entry)
        if isinstance(record, Unreadable):
            return (
                f"the record of cell {self.own.name} in the store cannot be read ({record.reason}): "
                f"run the release that wrote it, or remove the key {entry.key}"
            )
        return (
            f"{self.own.name} is the name of a cell of another site (cluster {record.cluster}, other keys): "
            f"choose another federation.cell, or remove the key {entry.key} if that cell is gone for good"
        )

    # ---- its keys ----

    def _take_result(self, now_us: int, draw: float) -> None:
        swap = self._swap
        if swap is None or swap.result is None:
            return
        self._swap = None
        if swap.revision:
            for key, entry in swap.current.items():
                self._answers[key] = swap.revision, entry
        if swap.result is Result.FAILED and swap.failure is not None:
            self._failure = swap.failure.text or swap.failure.problem.value
            self._swap_at_us = now_us + int(AGAIN_US * (1 + draw) / 2)
            of_lease = isinstance(swap.change, ShowAlive) and swap.change.lease == self.lease
            if of_lease and swap.failure.problem is Problem.LEASE_LOST:
                self._drop_lease()
            return
        self._failure = ""
        if swap.result is Result.DONE:
            self._done_us[type(swap.change)] = now_us
            for mirror in (self._cells, self._alive):
                versions = [
                    e.version
                    for k, e in swap.current.items()
                    if e is not None and k.startswith(mirror.prefix)
                ]
                if versions:
                    self._echoes[mirror.prefix] = max(versions), now_us + ECHO_US

    def _check_echo(self, now_us: int) -> None:
        for mirror in (self._cells, self._alive):
            revision, by_us = self._echoes.get(mirror.prefix, (0, 0))
            if mirror.revision >= revision:
                self._echoes.pop(mirror.prefix, None)
            elif now_us >= by_us:
                self._echoes[mirror.prefix] = revision, now_us + ECHO_US
                mirror.doubt()

    def _next_swap(self, lead: Lead, now_us: int) -> Swap | None:
        change = self._next_change(lead)
        if change is None or now_us < self._done_us.get(type(change), -AGAIN_US) + AGAIN_US:
            return None
        known = {key: self._held(self._mirror_of(key), key) for key in change.keys}
        return Swap(change, known)

    def _next_change(self, lead: Lead) -> Change | None:
        if self.standing in ENDED or any(
            not one.is_listed or one.problem for one in (self._cells, self._alive)
        ):
            return None
        if self.record is None:
            identity = self._identity
            record = CellRecord(
                FORMAT, 1, self.own.name, identity.cluster, identity.ring, lead.since_us, self._config.users
            )
            return Join(self.own, self._updated(record), self._cells)
        if self._updated(self.record) != self.record:
            return ChangeRecord(self.own, self.epoch, self._updated)
        if self.lease and not self.is_alive_word(self.alive_entry):
            return ShowAlive(self.own, self._alive_word, self.lease)
        return None

    def _mirror_of(self, key: str) -> Mirror:
        return self._cells if key.startswith(self._cells.prefix) else self._alive

    def _updated(self, record: CellRecord) -> CellRecord:
        return msgspec.structs.replace(
            record,
            cluster=self._identity.cluster,
            ring=self._identity.ring,
            users=self._config.users,
            draining=record.draining if self._draining is None else self._draining,
            left=record.left if self._left is None else self._left,
        )

    # ---- its lease ----

    def _tick_lease(self, now_us: int) -> LeaseAction | None:
        if self._lease_action is not None:
            return None
        if self._is_stopping or self.record is None or self.standing in ENDED:
            self._lease_action = RevokeLease(self.lease) if self.lease else None
            return self._lease_action
        if now_us < (self._lease_at_us if self.lease else max(self._lease_at_us, self._grant_at_us)):
            return None
        self._lease_sent_us = now_us
        self._lease_action = KeepLease(self.lease) if self.lease else GrantLease(self._config.lease_s)
        if not self.lease:
            self._lease_at_us = self._grant_at_us = now_us + AGAIN_US
        return self._lease_action

    def _hold(self, ttl_s: float, now_us: int) -> None:
        self._lease_action = None
        self._lease_failure = ""
        self._lease_until_us = self._lease_sent_us + int(ttl_s * 1e6)
        self._lease_at_us = now_us + self._keep_us(ttl_s)

    def _keep_us(self, ttl_s: float) -> int:
        return int(ttl_s * 1e6) // KEEPS_PER_LEASE

    def _drop_lease(self) -> None:
        self.lease = 0
        self._lease_until_us = 0
