"""The relay protocol's vocabulary: messages on the wire, actions for the daemon, and the tuning.

Invariant: messages name nodes by number only; the daemon's address book maps numbers to processes and links. Times on the
wire are remaining durations, never instants.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from eslurm.core.relay.results import EMPTY, Results
from eslurm.core.relay.trace import Trace

BroadcastId = int | bytes
Peer = Hashable
"""The daemon's handle of a peer process, or of itself as a source."""


class Broadcast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Do `command` on `nodes`, which lie in tree order (X-02); the first one is the addressee.

    A relay that hosts no nodes (satellite, controller) is not in the list and splits all of it.
    `deadline_us` is the remaining time for the answer, `hop` the number of relays passed. `grouping` names
    the rule that every hop cuts its list by (E-21).

    From a controller to a satellite only: `root_width` for the satellite's own first level (0: `width`),
    `predicted` nodes to be put on leaves (E-24); with `differences` the final answer leaves out what is
    expected: ok for most nodes, unreached for those in `missing`. `traced` asks for the spans of the tree.
    """

    broadcast_id: BroadcastId
    nodes: tuple[int, ...]
    width: int
    deadline_us: int
    kind: str
    command: bytes
    hop: int = 0
    grouping: str = "positional"
    root_width: int = 0
    predicted: tuple[int, ...] = ()
    differences: bool = False
    missing: tuple[int, ...] = ()
    traced: bool = False


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The lists that begin with `heads` have arrived; with `refused` set, they will not be served."""

    broadcast_id: BroadcastId
    heads: tuple[int, ...]
    refused: str = ""


class Reply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """News of the lists that begin with `heads`; empty results only say that they are being worked on.

    A final reply holds everything known of its lists, so a lost partial reply loses nothing. With
    `as_expected` it leaves out the nodes that answered as its `Broadcast` said: see `differences` there.
    `trace` comes with the final reply of a traced broadcast.
    """

    broadcast_id: BroadcastId
    heads: tuple[int, ...]
    results: Results = EMPTY
    final: bool = False
    as_expected: bool = False
    trace: Trace | None = None


class Leg(msgspec.Struct, frozen=True, gc=False):
    """Nodes handed to a relay that is not one of them: a controller's share for one satellite."""

    to_node: int
    nodes: tuple[int, ...]


class SendBroadcast(msgspec.Struct, frozen=True):
    """Send to the process that serves `to_node`; items for one process may share an envelope."""

    to_node: int
    broadcast: Broadcast


class SendAck(msgspec.Struct, frozen=True):
    """Send at once, from the reading task."""

    to_source: Peer
    ack: Ack


class SendReply(msgspec.Struct, frozen=True):
    """Send to the requester; a root's own caller gets its answer the same way."""

    to_source: Peer
    reply: Reply


class RunLocal(msgspec.Struct, frozen=True):
    """Do the command for these nodes of this process; said once per (broadcast, node).

    Each outcome comes back through `Relay.on_local_result`, within `deadline_us` if it is to count.
    """

    broadcast_id: BroadcastId
    nodes: tuple[int, ...]
    kind: str
    command: bytes
    deadline_us: int


class Suspect(msgspec.Struct, frozen=True):
    """A notice, not a verdict: `node` (or the satellite of that number) did not serve its list."""

    broadcast_id: BroadcastId
    node: int
    why: str


class Reallocated(msgspec.Struct, frozen=True):
    """A notice: what a failed satellite still owed, so many `nodes`, went to the next one (E-15)."""

    broadcast_id: BroadcastId
    from_node: int
    to_node: int
    nodes: int


class TookOver(msgspec.Struct, frozen=True):
    """A notice: what a failed satellite still owed, so many `nodes`, is now sent from here (E-16)."""

    broadcast_id: BroadcastId
    from_node: int
    nodes: int


Notice = Suspect | Reallocated | TookOver
Action = SendBroadcast | SendAck | SendReply | RunLocal | Notice


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound and delay of a relay. Raises ValueError when they contradict each other.

    A child must acknowledge within max(`ack_floor_us`, twice the 99th percentile of recent delays),
    at most `ack_ceiling_us`, plus twice this process' own lag. A child at work says so every
    `keepalive_us`; its parent gives it up after `progress_timeout_us`.
    """

    ack_floor_us: int = 250_000
    ack_ceiling_us: int = 5_000_000
    progress_timeout_us: int = 3_000_000
    keepalive_us: int = 1_000_000
    flush_us: int = 200_000
    """Time for which partial results are gathered before they go up."""
    gather_us: int = 3_000
    """Time for which a finished list waits for others of the same requester to share a reply."""
    margin_max_us: int = 1_000_000
    """The most that a relay keeps of the remaining time for its own answer; never above a tenth."""
    recheck_delay_us: int = 50_000
    """Delay of the recheck of a node that was refused, and may be starting again."""
    linger_us: int = 500_000
    """Time for which a relay that serves nodes keeps an answered broadcast, for the next list of it."""
    max_unacknowledged: int = 1024
    max_live: int = 4096
    max_hops: int = 64
    remember_us: int = 600_000_000
    max_remembered: int = 8192
    max_remembered_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.keepalive_us * 2 > self.progress_timeout_us:
            raise ValueError("keepalive_us must be at most half of progress_timeout_us")
        if not 0 < self.ack_floor_us <= self.ack_ceiling_us:
            raise ValueError("ack_floor_us must be positive and at most ack_ceiling_us")
        if self.recheck_delay_us < 0:
            raise ValueError("recheck_delay_us must not be negative")
        if min(self.max_unacknowledged, self.max_live, self.max_remembered, self.max_hops) < 1:
            raise ValueError("every bound must be at least 1")

    def child_time_us(self, remaining_us: int) -> int:
        """The time a child gets of `remaining_us`, so that its answer arrives before ours is due."""
        return remaining_us - min(self.margin_max_us, remaining_us // 10 + 1)


DEFAULT_TUNING = Tuning()
