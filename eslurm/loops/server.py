"""The coordinator's side of all connections: one thread, no blocking call but the wait for any of them.

Bounds: `STRANGERS_MAX` connections that have proven nothing, each for `PROVE_S`; each may make this side hold some
kilobytes, and others wait in the kernel's queue meanwhile. A worker that has proven itself may send one chunk's results
at a time.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from eslurm.loops import words
from eslurm.loops.alive import keep_alive
from eslurm.loops.frames import FrameError, Frames

__all__ = ["Asked", "Done", "Event", "Failed", "Gone", "Joined", "Server"]

STRANGERS_MAX = 64
PROVE_S = 20.0
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker has proven that it belongs to the loop."""

    worker: int
    label: str


@dataclass(frozen=True, slots=True)
class Done:
    """Pickled results of a chunk."""

    worker: int
    number: int
    seconds: float
    pickled: memoryview


@dataclass(frozen=True, slots=True)
class Failed:
    """A chunk's error."""

    worker: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The connection of a worker has ended."""

    worker: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A worker is asked to leave its core to another job."""

    worker: int


Event = Joined | Done | Failed | Gone | Asked


@dataclass(slots=True)
class _Peer:
    worker: int
    connection: socket.socket
    frames: Frames
    until: float
    """An unproven peer's deadline."""
    has_joined: bool = False
    wanted: int = selectors.EVENT_READ
    out: bytearray = field(default_factory=bytearray)


class Server:
    """All connections of one loop. Workers are numbered from 1 in the order in which they connect."""

    def __init__(self, cookie: bytes) -> None:
        self.cookie = cookie
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, _Peer] = {}
        self._strangers: dict[int, _Peer] = {}
        """Connections from outside that have proven nothing yet, in the order of their deadlines."""
        self._next = 1
        self._listener: socket.socket | None = None
        self._is_listening = False

    def listen(self, host: str) -> tuple[str, int]:
        """Take connections at this address alone, on a port of the kernel's choice. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=4096)
        listener.setblocking(False)
        self._listener = listener
        self._listen_or_wait()
        return host, int(listener.getsockname()[1])

    def adopt(self, connection: socket.socket, prove_s: float = math.inf) -> int:
        """Take a connection; returns its worker's number. It is closed when it proves nothing within `prove_s`."""
        connection.setblocking(False)
        number = self._next
        self._next += 1
        peer = _Peer(number, connection, Frames(self.cookie, is_coordinator=True), time.monotonic() + prove_s)
        self._peers[number] = peer
        if prove_s < math.inf:
            self._strangers[number] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)
        peer.out += peer.frames.greeting
        self._flush(peer)
        return number

    def send(self, worker: int, payload: bytes) -> None:
        """Send a frame once the peer takes it. A worker that has gone is heard of by `poll`."""
        peer = self._peers.get(worker)
        if peer is not None:
            peer.out += peer.frames.seal(payload)
            self._flush(peer)

    def poll(self, timeout_s: float) -> Iterator[Event]:
        """Yield the events that are there, after waiting up to `timeout_s` for one."""
        for key, mask in self._selector.select(timeout_s):
            peer = key.data
            if peer is None:
                self._accept()
                continue
            if peer.worker not in self._peers:
                continue  # dropped by an answer to an event before this one
            if mask & selectors.EVENT_WRITE:
                self._flush(peer)
            if mask & selectors.EVENT_READ:
                yield from self._read(peer)
        self._end_strangers()
        self._listen_or_wait()

    def drop(self, worker: int) -> None:
        """Close a connection."""
        peer = self._peers.pop(worker, None)
        self._strangers.pop(worker, None)
        if peer is not None:
            self._selector.unregister(peer.connection)
            peer.connection.close()

    def close(self) -> None:
        """Close everything."""
        for worker in list(self._peers):
            self.drop(worker)
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            keep_alive(connection)
            self.adopt(connection, PROVE_S)

    def _flush(self, peer: _Peer) -> None:
        with contextlib.suppress(OSError):  # its end is read
            while peer.out:
                try:
                    sent = peer.connection.send(memoryview(peer.out)[:_READ_BYTES])
                except BlockingIOError:
                    break
                del peer.out[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        if wanted != peer.wanted:
            self._selector.modify(peer.connection, wanted, peer)
            peer.wanted = wanted

    def _read(self, peer: _Peer) -> Iterator[Event]:
        try:
            data = peer.connection.recv(_READ_BYTES)
            payloads = peer.frames.feed(data) if data else []
            events = [self._event(peer, payload) for payload in payloads]
        except BlockingIOError:
            return
        except (OSError, FrameError, words.WordError):
            data, events = b"", []
        yield from events
        if not data:
            yield from self._gone(peer)

    def _event(self, peer: _Peer, payload: bytes) -> Event:
        kind, rest = payload[:1], payload[1:]
        if not peer.has_joined and kind == words.JOIN:
            peer.has_joined = True
            self._strangers.pop(peer.worker, None)
            return Joined(peer.worker, words.text_of(rest, words.LABEL_CHARS_MAX))
        if peer.has_joined and kind == words.DONE:
            return Done(peer.worker, *words.read_done(rest))
        if peer.has_joined and kind == words.FAILED:
            return Failed(peer.worker, *words.read_failed(rest))
        if peer.has_joined and kind == words.ASKED:
            return Asked(peer.worker)
        raise words.WordError(f"a payload of the unknown kind {kind!r}")

    def _gone(self, peer: _Peer) -> Iterator[Event]:
        self.drop(peer.worker)
        if peer.has_joined:
            yield Gone(peer.worker)

    def _end_strangers(self) -> None:
        now = time.monotonic()
        for peer in list(self._strangers.values()):
            if peer.until < now:
                self.drop(peer.worker)

    def _listen_or_wait(self) -> None:
        """Take connections from the kernel's queue as long as there are few strangers: workers there wait for their
        turn.
        """
        wanted = self._listener is not None and len(self._strangers) < STRANGERS_MAX
        if self._listener is not None and wanted != self._is_listening:
            if wanted:
                self._selector.register(self._listener, selectors.EVENT_READ, None)
            else:
                self._selector.unregister(self._listener)
            self._is_listening = wanted
