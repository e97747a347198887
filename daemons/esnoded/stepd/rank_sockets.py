"""The sockets on which the MPI libraries of a step's tasks speak to the step's command (ADR 43).

The supervisor reads no word of it. Invariants: no write blocks; what is held for a task that does not read is bounded, and
such a task loses its socket; what a task has said before its end is passed on before its end is.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Callable

_READ_BYTES = 64 * 1024
_READS_AT_END_MAX = 16
_HELD_BYTES_MAX = 1024 * 1024
"""Of answers to one task. A library waits for one before it asks again."""


def make_sockets(fds_max: int) -> tuple[socket.socket, socket.socket]:
    """A pair of which the first does not block. Raises OSError when out of descriptors."""
    own, theirs = socket.socketpair()
    if max(own.fileno(), theirs.fileno()) >= fds_max:
        own.close()
        theirs.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    own.setblocking(False)
    return own, theirs


class _Rank:
    """One task's socket, and what it has not taken yet."""

    __slots__ = ("held", "mask", "socket")

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.held = bytearray()
        self.mask = 0
        """The events that its selector waits for; 0: it does not know it."""


class RankSockets:
    """`said` passes on what the task of this local rank has said; `wrap` guards the loop."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        wrap: Callable[[Callable[[int, int], object]], Callable[[int, int], None]],
        said: Callable[[int, bytes], None],
    ) -> None:
        self._selector = selector
        self._on_ready = wrap(self._serve)
        self._said = said
        self._ranks: dict[int, _Rank] = {}
        self._is_paused = False

    def open(self, local: int, fds_max: int) -> int:
        """The other end, for the task; the caller closes it after the task was started. Raises OSError."""
        own, theirs = make_sockets(fds_max)
        self._ranks[local] = _Rank(own)
        self._watch(local)
        return theirs.detach()

    def give(self, local: int, data: bytes) -> None:
        """Pass on an answer to the task, if it has not ended."""
        rank = self._ranks.get(local)
        if rank is None:
            return
        rank.held += data
        self._flush(local, rank)

    def pause(self) -> None:
        """Read nothing for now."""
        self._set_paused(True)

    def resume(self) -> None:
        """Read on."""
        self._set_paused(False)

    def end(self, local: int) -> None:
        """The task has ended: pass on what it has said before. A server that it has started may speak on."""
        # No more is in a socket's buffer, and what keeps it open may write for ever.
        for _ in range(_READS_AT_END_MAX):
            if local not in self._ranks or not self._read(local):
                break

    def close(self) -> None:
        """Close all: the libraries find the end."""
        for local in tuple(self._ranks):
            self._drop(local)

    def _serve(self, local: int, mask: int) -> None:
        rank = self._ranks.get(local)
        if rank is not None and mask & selectors.EVENT_WRITE:
            self._flush(local, rank)
        if mask & selectors.EVENT_READ and local in self._ranks and not self._is_paused:
            self._read(local)

    def _read(self, local: int) -> bool:
        """Pass on what is there; False when nothing is. The end of a socket drops it."""
        try:
            data = self._ranks[local].socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._said(local, data)
        else:
            self._drop(local)
        return bool(data)

    def _flush(self, local: int, rank: _Rank) -> None:
        try:
            del rank.held[: rank.socket.send(rank.held)]
        except BlockingIOError:
            pass
        except OSError:
            # Reading tells that it is gone.
            rank.held.clear()
        if len(rank.held) > _HELD_BYTES_MAX:
            self._drop(local)
            return
        self._watch(local)

    def _set_paused(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        for local in self._ranks:
            self._watch(local)

    def _watch(self, local: int) -> None:
        rank = self._ranks[local]
        mask = 0 if self._is_paused else selectors.EVENT_READ
        if rank.held:
            mask |= selectors.EVENT_WRITE
        if mask == rank.mask:
            return
        if not mask:
            self._selector.unregister(rank.socket)
        elif rank.mask:
            self._selector.modify(rank.socket, mask, self._selector.get_key(rank.socket).data)
        else:
            on_ready = self._on_ready
            self._selector.register(rank.socket, mask, lambda mask: on_ready(local, mask))
        rank.mask = mask

    def _drop(self, local: int) -> None:
        rank = self._ranks.pop(local)
        if rank.mask:
            self._selector.unregister(rank.socket)
        rank.socket.close()
