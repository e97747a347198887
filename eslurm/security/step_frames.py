"""Frames of one direction of a step's stream, kept until the peer has acknowledged them, for a connection that is cut.

A position is the number of frames before. Both ends count them through all connections: on a new one the sender goes on
where the receiver was. Invariant: frames leave in the order in which they came, and none that the peer lacks is dropped.
"""

from __future__ import annotations

from collections import deque

COST_BYTES = 64
"""Count of a frame beside its body: a step may write single bytes."""


class BadPosition(Exception):
    """The peer has acknowledged what was not sent, or asks for what it has acknowledged."""


class KeptFrames:
    """`held_bytes` are those of all frames that are not acknowledged, `unsent_bytes` of those that were not sent, either."""

    def __init__(self) -> None:
        self.held_bytes = self.unsent_bytes = 0
        self._first = 0
        """Position of the first one that is kept."""
        self._end = 0
        """Position behind all that were ever sent."""
        self._sent: deque[bytes] = deque()
        self._unsent: deque[bytes] = deque()
        self._is_kept = True

    @property
    def has_unsent(self) -> bool:
        """Check whether there is something to send on this connection."""
        return bool(self._unsent)

    def add(self, body: bytes) -> None:
        """Take one more frame."""
        self._unsent.append(body)
        self.held_bytes += len(body) + COST_BYTES
        self.unsent_bytes += len(body) + COST_BYTES

    def take(self) -> bytes | None:
        """The next frame to send on this connection; None: there is none."""
        if not self._unsent:
            return None
        body = self._unsent.popleft()
        self.unsent_bytes -= len(body) + COST_BYTES
        if self._is_kept:
            self._sent.append(body)
            self._end = max(self._end, self._first + len(self._sent))
        else:
            self._drop(body)
        return body

    def acknowledge(self, position: int) -> None:
        """Forget the frames before this position. Raises `BadPosition`."""
        if not self._first <= position <= self._first + len(self._sent):
            raise BadPosition(
                f"position {position} is not within {self._first}..{self._first + len(self._sent)}"
            )
        while self._first < position:
            self._drop(self._sent.popleft())

    def rewind(self, position: int) -> None:
        """Begin a new connection, whose first frame is the one of this position. Raises `BadPosition`.

        The peer may have taken more of an earlier connection since it told where the last one begins.
        """
        if not self._first <= position <= self._end:
            raise BadPosition(f"position {position} is not within {self._first}..{self._end}")
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        while self._first < position:
            self._drop(self._unsent.popleft())
        self.unsent_bytes = self.held_bytes

    def keep_none(self) -> None:
        """Keep nothing from now on that was sent: the peer acknowledges nothing."""
        self._is_kept = False
        while self._sent:
            self._drop(self._sent.popleft())

    def clear(self) -> None:
        """Drop all: nothing more is sent."""
        self._sent.clear()
        self._unsent.clear()
        self.held_bytes = self.unsent_bytes = 0

    def _drop(self, body: bytes) -> None:
        self._first += 1
        self.held_bytes -= len(body) + COST_BYTES
