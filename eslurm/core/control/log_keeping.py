"""Retention of the log of facts, answers and blobs, without I/O: base states, and removal before them.

The leader's housekeeping and the simulator drive this one machine. Invariant: a base state, made of the rows as of one
revision, is durable before any fact up to its revision may go; rows == base + replay(log).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

BASES: Final = "state_bases"
"""Name of the settings row that lists the base states, oldest first."""
BASES_PER_LOG: Final = 4
"""Number of base states made while the log grows from nothing to its full length."""
TURN_US: Final = (SECOND_US, 30 * SECOND_US)
"""Least and most time between two turns."""
ANSWERS_KEPT_US: Final = 24 * 3600 * SECOND_US
"""Retention of answers for retried requests."""
BLOBS_KEPT_US: Final = 24 * 3600 * SECOND_US
"""Retention of a blob without an unfinished job."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """A stored base state: as of which revision and time, and under which hash its bytes are a blob."""

    revision: int
    at_us: int
    hash: bytes


_bases = msgspec.msgpack.Decoder(list[Base])


def decode_bases(blob: bytes) -> list[Base]:
    """The list of base states, oldest first. Raises msgspec.MsgspecError."""
    return _bases.decode(blob)


class MakeBase(msgspec.Struct, frozen=True):
    """Action: pack the rows as of one revision, then report `packed`."""


class Prune(msgspec.Struct, frozen=True):
    """Action: remove what may go, a bounded number of rows at a time. Fields as in `eslurm.ports.store.Prune`."""

    now_us: int
    answers_before_us: int
    blobs_before_us: int
    blobs_kept: Collection[bytes]
    facts_before_revision: int


Action: TypeAlias = MakeBase | Prune


class LogKeeping:
    """One leader's. `kept_us` is the length of the log; 0: all of it is kept."""

    def __init__(self, kept_us: int) -> None:
        self._kept_us = kept_us
        self._bases: list[Base] | None = None
        self._listed: list[Base] = []
        self._now_us = 0
        self._used: set[bytes] = set()

    @property
    def turn_every_us(self) -> int:
        """The time between two turns."""
        least_us, most_us = TURN_US
        return max(least_us, min(most_us, self._kept_us // BASES_PER_LOG)) if self._kept_us else most_us

    @property
    def is_begun(self) -> bool:
        """Check whether it knows which base states are stored."""
        return self._bases is not None

    def begin(self, bases: Sequence[Base]) -> None:
        """The base states that the store lists, oldest first."""
        self._bases = list(bases)

    def turn(self, state: State, committed: int, now_us: int) -> Action:
        """The next action; `committed` is the last durable revision. An unfinished turn is forgotten."""
        assert self._bases is not None
        self._now_us = now_us
        specs = [job.spec for job in state.jobs.values()]
        self._used = {digest for spec in specs for digest in (spec.script_hash, spec.environment_hash)}
        if self._kept_us:
            old = [base for base in self._bases if base.at_us <= now_us - self._kept_us]
            # Of those that are old enough the newest will do: the log after it is long enough already.
            self._bases = self._bases[max(0, len(old) - 1) :]
            newest = self._bases[-1] if self._bases else None
            if newest is None:
                is_due = committed > 0
            else:
                is_due = (
                    now_us - newest.at_us >= self._kept_us // BASES_PER_LOG and newest.revision < committed
                )
            if is_due:
                return MakeBase()
        return self._limits(self._bases)

    def packed(self, base: Base) -> bytes:
        """The list with this base state, to be committed under `BASES` with its blob; then report `kept`."""
        assert self._bases is not None
        self._listed = [*self._bases, base]
        return msgspec.msgpack.encode(self._listed)

    def kept(self) -> Prune:
        """The base state and the list are durable."""
        self._bases = self._listed
        return self._limits(self._bases)

    def _limits(self, bases: Sequence[Base]) -> Prune:
        now_us = self._now_us
        is_long = bool(self._kept_us and bases) and bases[0].at_us <= now_us - self._kept_us
        return Prune(
            now_us,
            answers_before_us=now_us - ANSWERS_KEPT_US,
            blobs_before_us=now_us - BLOBS_KEPT_US,
            blobs_kept=self._used | {base.hash for base in bases},
            facts_before_revision=bases[0].revision + 1 if is_long else 0,
        )
