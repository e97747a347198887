"""Requests of a federation's machines to the store, and the forms of its answers.

A driver makes each action a call of `eslurm.ports.kv`, once, and passes the answer back together with the action itself (the
same object); a machine ignores answers to actions that it has given up. After each answer it asks `tick` what is next. The
structs of the port have the forms of the protocols below.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

# ---- actions ----


class List(msgspec.Struct, frozen=True):
    """Read a page of the keys below `prefix`. It takes the place of the mirror's `Watch`, which is to be closed.

    Answered by `Mirror.listed` or `failed`.
    """

    prefix: str
    after: str = ""
    revision: int = 0


class Watch(msgspec.Struct, frozen=True):
    """Watch the keys below `prefix` from the change after `revision` on.

    Answered by `Mirror.changed`, often, and by `failed` at its end.
    """

    prefix: str
    revision: int


class Write(msgspec.Struct, frozen=True):
    """A new value of a key, bound to a lease unless that is 0; None removes the key."""

    key: str
    value: bytes | None
    lease: int = 0


class SwapKeys(msgspec.Struct, frozen=True):
    """Write if all keys of `expect` have these versions (0: there is no such key); without writes it only reads them.

    Answered by `swapped` or `failed`.
    """

    expect: tuple[tuple[str, int], ...]
    then: tuple[Write, ...] = ()


class GrantLease(msgspec.Struct, frozen=True):
    """Get a lease. Answered by `Membership.granted` or `failed`."""

    ttl_s: float


class KeepLease(msgspec.Struct, frozen=True):
    """Renew the lease. Answered by `Membership.kept` or `failed`."""

    lease: int


class RevokeLease(msgspec.Struct, frozen=True):
    """End the lease, and all keys with it. Answered by `Membership.revoked` or `failed`."""

    lease: int


class AskBid(msgspec.Struct, frozen=True):
    """Ask another cell when it would start this waiting job. Answered by `Participant.called`."""

    job_id: int
    cell: str


class DeliverJob(msgspec.Struct, frozen=True):
    """Deliver a job to the cell that it is offered to, as its user. Answered by `Participant.called`.

    `is_repeated`: an earlier delivery of this offer may have arrived.
    """

    job_id: int
    cell: str
    serial: int
    is_repeated: bool = False


class CancelThere(msgspec.Struct, frozen=True):
    """Cancel a job in the cell that owns it, as its user. Answered by `Participant.called`."""

    job_id: int
    cell: str


class AskGuest(msgspec.Struct, frozen=True):
    """Have another cell hold nodes for a spanning job, as a job of its user. Answered by `Participant.called`.

    `is_repeated`: an earlier call for this serial may have arrived.
    """

    job_id: int
    cell: str
    serial: int
    nodes: int
    is_repeated: bool = False


class TellGuest(msgspec.Struct, frozen=True):
    """Keep a guest (`wish` keep), end it (end), or look at it (look). Answered by `Participant.called`."""

    job_id: int
    cell: str
    serial: int
    guest_id: int
    wish: str


MirrorAction: TypeAlias = List | Watch
LeaseAction: TypeAlias = GrantLease | KeepLease | RevokeLease
MemberAction: TypeAlias = SwapKeys | LeaseAction
CellCall: TypeAlias = AskBid | DeliverJob | CancelThere | AskGuest | TellGuest
"""Calls to other cells. A driver answers each, within its own time limit."""
Action: TypeAlias = MirrorAction | MemberAction | CellCall

# ---- answers ----


class Problem(enum.Enum):
    """Why a call failed: the class of the port's exception."""

    UNAVAILABLE = "unavailable"
    """Nothing has changed (`KvUnavailable`)."""
    AMBIGUOUS = "ambiguous"
    """The change may have been made (`KvAmbiguous`)."""
    FULL = "full"
    """The store's quota is reached; the change may have been made (`KvFull`)."""
    DENIED = "denied"
    """Certificate, password or permission (`KvDenied`)."""
    LEASE_LOST = "lease lost"
    """The lease has ended, and its keys are gone (`LeaseLost`)."""
    BROKEN = "broken"
    """The store no longer has the changes asked for: list again (`WatchBroken`)."""
    REFUSED = "refused"
    """Beyond the bounds of the port, or otherwise a fault of this program."""


class Failure(msgspec.Struct, frozen=True):
    """The answer to a call that failed; `text` is for people."""

    problem: Problem
    text: str


class CellAnswer(msgspec.Struct, frozen=True):
    """The answer to a call to another cell, which has it done, has refused it for good, or may have it done.

    `wait_us` is the time until it would start the job; None: it cannot say. `text` is for people. `guest_id` is the id of a
    guest there, which `is_held` when it has its nodes, `node_list`; `is_waiting` while none are set aside for it;
    `is_ended` when it has ended or is not known.
    """

    is_done: bool
    is_refused: bool = False
    wait_us: int | None = None
    text: str = ""
    guest_id: int = 0
    is_held: bool = False
    is_ended: bool = False
    node_list: str = ""
    is_waiting: bool = False


class StoredEntry(Protocol):
    """A key, its value and its version: `eslurm.ports.kv.Entry`."""

    @property
    def key(self) -> str:
        """Its path."""

    @property
    def value(self) -> bytes:
        """Written by any cell: to be judged, never believed."""

    @property
    def version(self) -> int:
        """The store's revision at its last change."""

    @property
    def lease(self) -> int:
        """The lease that it vanishes with; 0: none."""


class StoredPage(Protocol):
    """A part of a listing: `eslurm.ports.kv.Page`."""

    @property
    def entries(self) -> Sequence[StoredEntry]:
        """In the order of keys."""

    @property
    def revision(self) -> int:
        """At which all pages of the listing are read."""

    @property
    def more(self) -> bool:
        """False for the last page."""


class StoredChanges(Protocol):
    """Changes of whole revisions: `eslurm.ports.kv.Changes`."""

    @property
    def revision(self) -> int:
        """Of the last one."""

    @property
    def entries(self) -> Sequence[StoredEntry]:
        """Keys as they are now."""

    @property
    def deleted(self) -> Sequence[str]:
        """Keys that are gone."""


class SwapAnswer(Protocol):
    """The answer to `SwapKeys`: `eslurm.ports.kv.Swapped`."""

    @property
    def done(self) -> bool:
        """False: nothing has changed."""

    @property
    def revision(self) -> int:
        """Of the store, at that moment."""

    @property
    def current(self) -> Mapping[str, StoredEntry | None]:
        """The present values of the keys."""


class GrantedLease(Protocol):
    """A lease: `eslurm.ports.kv.Lease`."""

    @property
    def lease(self) -> int:
        """Its id."""

    @property
    def ttl_s(self) -> float:
        """Its life, which may be longer than asked for."""
