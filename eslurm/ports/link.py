"""Links between daemons as the relay, the agents and the controller see them.

Invariant: what `send` accepted goes out in order or the link ends; a link never comes back once it has
ended, a new one takes its place. Callbacks are synchronous and run on the event loop: they must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from eslurm.core.model.hostlist import holds
from eslurm.v1 import link_pb2

IDLE = "idle"
"""The reason of a harmless end: the link was unused, and is dialled again on demand."""
CLOSED_BY_PEER = "closed by the peer: "
CELL = "cell"
"""The role of another cell's controller: never that of one of ours."""


class PeerInfo(msgspec.Struct, frozen=True):
    """The peer, as its Hello and its membership prove it. `process` is new at each start of the peer."""

    cluster: str
    role: str
    process: str
    endpoint: str
    features: frozenset[str]
    protocol: int
    epoch: int
    owner: str = ""
    build: str = ""
    skew_us: int | None = None
    """Lead of its wall clock over ours when the link began; None: not reported."""
    names: str = ""
    """The host list that its membership lets it speak for."""
    serial: bytes = b""
    """Of its membership."""
    cell: str = ""
    """Another cell of the federation, whose controller this is; its role is then CELL. Empty: it is of our own cluster."""


class Wanted(NamedTuple):
    """The required membership of a peer, because any process may claim an endpoint. Empty role and name: not checked;
    empty cell: of our own cluster.
    """

    role: str = ""
    name: str = ""
    cell: str = ""

    def fits(self, peer: PeerInfo) -> bool:
        """Check whether the peer matches."""
        return (
            self.cell == peer.cell
            and self.role in ("", peer.role)
            and (not self.name or holds(peer.names, self.name))
        )


ANYBODY = Wanted()


class LinkError(Exception):
    """A link could not be made or used."""


class LinkUnreachable(LinkError):
    """No process answered at the endpoint, or the back-off since the last failure is not over yet."""

    def __init__(self, text: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class LinkBusy(LinkUnreachable):
    """The peer lives but accepts no more links now: retry after `retry_after_s`."""


class LinkSilent(LinkUnreachable):
    """The peer took too long or broke off: it may be dead, or only overloaded."""


class LinkRefused(LinkError):
    """The peer refused, or its proof is not acceptable: an early retry is useless."""


class LinkClosed(LinkError):
    """The link ended before the bulk item was handed over."""


def is_idle_end(reason: str) -> bool:
    """Check whether this reason of an ended link says that either side closed it as unused."""
    return reason.removeprefix(CLOSED_BY_PEER) == IDLE


class Link(Protocol):
    """One live connection to a peer process, the same on both ends."""

    @property
    def peer(self) -> PeerInfo:
        """The other end."""
        ...

    @property
    def closed(self) -> asyncio.Event:
        """Set as soon as the link has ended; from then on `send` returns False."""
        ...

    @property
    def close_reason(self) -> str:
        """The reason why the link ended; empty while it lives."""
        ...

    @property
    def traceparent(self) -> str:
        """While `on_items` runs: the trace the items belong to, or empty."""
        ...

    @property
    def peer_book_revision(self) -> int:
        """The address book revision of the peer's last frame."""
        ...

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        """Queue an item on the control lane. False when the link has ended (or ends now: full queue), and, while the link
        stays, for an item larger than a control frame: that belongs on the bulk lane.

        The item is encoded at once, so the caller may change or reuse it.
        """
        ...

    async def send_bulk(self, item: link_pb2.Item) -> None:
        """Send an item of at most 256 KiB of data on the bulk lane; return when it was handed to the
        transport. Raises `LinkClosed` when the link ends first, ValueError when the item is too large."""
        ...

    def close(self, reason: str) -> None:
        """End the link after its queue has gone out, within a short grace."""
        ...


class LinkSink(Protocol):
    """Callbacks of a process for its links."""

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Items arrived, of either lane, in the order they were sent on their lane."""
        ...

    def on_up(self, link: Link) -> None:
        """A link to a peer process is usable. Comes before its first `on_items`."""
        ...

    def on_down(self, link: Link, reason: str) -> None:
        """The link ended. Comes once per `on_up`, after its last `on_items`."""
        ...


class Links(Protocol):
    """All links of a process."""

    async def get(self, endpoint: str, wanted: Wanted = ANYBODY) -> Link:
        """The live link to the process that listens at `endpoint`, dialled if need be.

        Raises `LinkUnreachable` or `LinkRefused`, also when the process there is not such a peer.
        """
        ...

    def find(self, endpoint: str, wanted: Wanted = ANYBODY) -> Link | None:
        """The live link to such a peer at `endpoint`, if there is one now."""
        ...
