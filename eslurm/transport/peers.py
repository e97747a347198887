"""Bounds per address on peers of a gRPC server before they have proven their identity.

A peer has proven itself by a link's handshake or by a valid token. Before that its messages are not read, but for the
first frame of a link, of which few are read at a time; its connections are few and short-lived. Invariant: whatever
strangers at some addresses do, a peer at another address finds a connection, a place for its handshake, and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import socket
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

import msgspec

from eslurm.transport.fair_quota import FairQuota

HANDSHAKE_FRAME_BYTES_MAX = 64 * 1024
"""Of a frame before the end of a link's handshake."""
STRANGERS_MAX = 256
"""Connections of peers that have not proven themselves; one address may have a quarter of what the others leave."""
_PROVEN_MAX = 65_536
_SOCKETS = "/proc/self/fd"

Address = tuple[str, int]


class PeerSettings(msgspec.Struct, frozen=True):
    """Bounds of strangers."""

    handshakes_max: int = 512
    first_frames_max: int = 64
    """First frames that are read at a time: each may have the size of the largest frame before its own is known."""
    first_frames_address_max: int = 8
    strangers_max: int = STRANGERS_MAX
    stranger_s: float = 10.0
    """Seconds after which an unproven connection is closed."""
    look_s: float = 1.0
    crowded_look_s: float = 0.05


class TooMany(Exception):
    """No place for another handshake."""


def address_of(peer: str) -> Address:
    """gRPC's name of a peer (`ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5`) as address and port."""
    _scheme, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return _plain(host.strip("[]")), int(port) if port.isascii() and port.isdigit() else 0


def _plain(host: str) -> str:
    """One spelling for an address, as IPv4 or mapped IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class Peers:
    """One per server. Make it inside the running loop."""

    def __init__(self, settings: PeerSettings | None = None) -> None:
        self.settings = settings or PeerSettings()
        self._handshakes: FairQuota[str] = FairQuota(
            self.settings.handshakes_max, self.settings.handshakes_max
        )
        self._frames = asyncio.Semaphore(self.settings.first_frames_max)
        self._frames_of: dict[str, asyncio.Semaphore] = {}
        self._proven: OrderedDict[Address, None] = OrderedDict()

    @asynccontextmanager
    async def handshake(self, peer: str) -> AsyncIterator[None]:
        """A handshake from its first frame to its end. Raises `TooMany`."""
        host = address_of(peer)[0]
        if not self._handshakes.enter(host, privileged=False):
            raise TooMany("too many handshakes at once")
        try:
            yield
        finally:
            self._handshakes.leave(host, privileged=False)
            if host not in self._handshakes.by_user:
                self._frames_of.pop(host, None)

    @asynccontextmanager
    async def first_frame(self, peer: str) -> AsyncIterator[None]:
        """The turn to read a stranger's frame; those of one address wait for each other first."""
        host = address_of(peer)[0]
        mine = self._frames_of.setdefault(host, asyncio.Semaphore(self.settings.first_frames_address_max))
        async with mine, self._frames:
            yield

    def prove(self, peer: str) -> None:
        """Record that this connection's peer has proven its identity."""
        address = address_of(peer)
        self._proven[address] = None
        self._proven.move_to_end(address)
        if len(self._proven) > _PROVEN_MAX:
            self._proven.popitem(last=False)

    def is_proven(self, address: Address) -> bool:
        """Check whether the peer has proven its identity."""
        return address in self._proven

    def keep_only(self, addresses: set[Address]) -> None:
        """Forget connections that are gone: other peers will get their ports."""
        for address in [one for one in self._proven if one not in addresses]:
            del self._proven[address]


class StrangerWatch:
    """Closes connections of strangers that are too many or too old: gRPC only bounds all connections together.

    It shuts them down on a duplicate of the descriptor, so that gRPC itself sees their end and closes them.
    """

    def __init__(self, peers: Peers, port: int) -> None:
        self._peers = peers
        self._port = port
        self._since: dict[Address, float] = {}
        self._connections = Connections(port)
        self.closed = 0

    async def run(self) -> None:
        """Look periodically, and more often while there are many."""
        settings = self._peers.settings
        loop = asyncio.get_running_loop()
        while True:
            crowded = self.look(loop.time())
            await asyncio.sleep(settings.crowded_look_s if crowded else settings.look_s)

    def look(self, now_s: float) -> bool:
        """Close excess connections; returns whether there were any."""
        here = self._connections.look()
        self._peers.keep_only(set(here))
        strangers = [one for one in here if not self._peers.is_proven(one)]
        self._since = {one: self._since.get(one, now_s) for one in strangers}
        room: FairQuota[str] = FairQuota(
            self._peers.settings.strangers_max, self._peers.settings.strangers_max
        )
        too_old_s = now_s - self._peers.settings.stranger_s
        # The newest keep their places: a peer that has something to prove does it at once.
        closing = [
            here[one]
            for one in sorted(strangers, key=self._since.__getitem__, reverse=True)
            if self._since[one] <= too_old_s or not room.enter(one[0], privileged=False)
        ]
        for descriptor in closing:
            _shut_down(descriptor, self._port)
        self.closed += len(closing)
        return bool(closing)


class Connections:
    """Accepted TCP connections of this process at a port of its own.

    A descriptor known from the last look is not queried again: the peer of an accepted connection stays, and device and
    inode identify it. Querying thousands of links would block the loop.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._known: dict[int, tuple[tuple[int, int], Address | None]] = {}

    def look(self) -> dict[Address, int]:
        """The present connections: peer -> descriptor."""
        known: dict[int, tuple[tuple[int, int], Address | None]] = {}
        for name in os.listdir(_SOCKETS):
            descriptor = int(name)
            try:
                found = os.fstat(descriptor)
            except OSError:
                continue
            identity = found.st_dev, found.st_ino
            before = self._known.get(descriptor)
            if before is not None and before[0] == identity:
                known[descriptor] = before
            else:
                known[descriptor] = identity, _peer_at(descriptor, self._port)
        self._known = known
        return {address: descriptor for descriptor, (_, address) in known.items() if address is not None}


def _peer_at(descriptor: int, port: int) -> Address | None:
    one = _duplicate(descriptor)
    if one is None:
        return None
    with one, contextlib.suppress(OSError):
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] == port:
            host, peer_port = one.getpeername()[:2]
            return _plain(host), peer_port
    # Another's, or the one that listens, or gone meanwhile.
    return None


def _shut_down(descriptor: int, port: int) -> None:
    # The number may be another's by now: what is looked at and what is shut down is one duplicate.
    one = _duplicate(descriptor)
    if one is None:
        return
    with one, contextlib.suppress(OSError):
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] == port:
            one.shutdown(socket.SHUT_RDWR)


def _duplicate(descriptor: int) -> socket.socket | None:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        own = os.dup(descriptor)
    except OSError:
        return None
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None


def connections_room() -> int:
    """Greatest number of connections for a server: half of the descriptors; the rest is for the local API socket, the
    store and this process's own files.
    """
    return max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
