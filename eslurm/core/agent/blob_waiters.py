"""Attempts that wait for blobs (script, environment).

Invariant: a wait is dropped when any of its blobs arrives or is missing; a woken attempt asks again for its other blobs.
"""

from __future__ import annotations

from collections.abc import Callable

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import FetchBlobs
from eslurm.core.agent.attempt import Attempt


class BlobWaiters:
    """Waits by blob. `has_blob` is a pure look at the shell's cache."""

    def __init__(self, buffer: ActionBuffer, has_blob: Callable[[bytes], bool]) -> None:
        self._buffer = buffer
        self._has_blob = has_blob
        self._waits: dict[bytes, list[tuple[Attempt, int]]] = {}

    def ask(self, attempt: Attempt, step: int, hashes: tuple[bytes, ...]) -> bool:
        """Check whether `step` has to wait; what is missing is asked for. An empty hash is an empty blob."""
        missing = [key for key in dict.fromkeys(hashes) if key and not self._has_blob(key)]
        for key in missing:
            self._waits.setdefault(key, []).append((attempt, step))
        if missing:
            self._buffer.emit(FetchBlobs(tuple(missing)))
        return bool(missing)

    def take(self, hashes: tuple[bytes, ...]) -> list[tuple[Attempt, int]]:
        """The attempts that waited for one of these, each once."""
        waits = [wait for key in hashes for wait in self._waits.pop(key, ())]
        return list(dict.fromkeys(waits))
