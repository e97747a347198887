"""The input of a step's tasks on one node, between the connection that brings it and the pipes that take it.

All tasks read the same bytes, each at its own pace. Invariants: what is held is bounded by the window, whatever the number
of tasks; a task that reads nothing keeps more from being granted, and nothing else; a task that has left delays no other.
"""

from __future__ import annotations

from collections.abc import Iterable

WINDOW_BYTES = 256 * 1024


class TooMuch(Exception):
    """The peer has sent more than it was granted."""


class InputWindow:
    """`readers` are the tasks that take the input, until they `leave`."""

    def __init__(self, readers: Iterable[int], window_bytes: int = WINDOW_BYTES) -> None:
        self._window_bytes = window_bytes
        self._held = bytearray()
        self._first = 0
        """Number of bytes before those held."""
        self._taken = dict.fromkeys(readers, 0)
        self._granted = window_bytes
        self.is_ended = False
        """No more bytes follow."""

    @property
    def readers(self) -> frozenset[int]:
        """The tasks that have not left."""
        return frozenset(self._taken)

    def add(self, data: bytes) -> None:
        """Take what has come. Raises `TooMuch`."""
        end = self._first + len(self._held)
        if end + len(data) > self._granted:
            raise TooMuch(f"{end + len(data)} bytes of input where {self._granted} were granted")
        if self.is_ended and data:
            raise TooMuch("input after its end")
        self._held += data
        self._trim()

    def rest(self, reader: int) -> memoryview:
        """The bytes that a task has not taken yet. Release it before the next change."""
        return memoryview(self._held)[self._taken[reader] - self._first :]

    def has_rest(self, reader: int) -> bool:
        """Check whether something is there that a task has not taken."""
        return self._taken[reader] < self._first + len(self._held)

    def took(self, reader: int, count: int) -> None:
        """A task has taken so many bytes."""
        self._taken[reader] += count
        self._trim()

    def leave(self, reader: int) -> None:
        """A task reads no more. The rest is not kept for it."""
        if self._taken.pop(reader, None) is not None:
            self._trim()

    def grant(self) -> int:
        """The number of bytes that the peer may have sent from now on, if it is to hear that; else 0."""
        now = self._first + self._window_bytes
        if self.is_ended or now - self._granted < self._window_bytes // 4:
            return 0
        self._granted = now
        return now

    def _trim(self) -> None:
        end = self._first + len(self._held)
        least = min(self._taken.values(), default=end)
        if least == end:
            self._held.clear()
            self._first = end
        elif least - self._first >= self._window_bytes // 4:
            del self._held[: least - self._first]
            self._first = least
