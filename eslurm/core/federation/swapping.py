"""One change of shared keys by comparison of versions: tried, changed, tried again.

A swap that fails brings the present values, and the change is worked out anew from these. A swap without an answer may have
been done, or may yet be: the keys are read, and the change itself says whether the values there are its own (each value
carries its writer and a serial). Invariant: `DONE` is never said of a change that the store does not have.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Protocol

from eslurm.core.federation.actions import Failure, Problem, StoredEntry, SwapAnswer, SwapKeys, Write

TRIES_MAX: Final = 10
BACK_OFF_MIN_US: Final = 20_000
BACK_OFF_MAX_US: Final = 1_000_000

Entries = Mapping[str, StoredEntry | None]


class Change(Protocol):
    """The change that a swap makes."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that it reads or writes."""

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """The writes that make the change from these values; none: nothing is to be done, or it must not be."""

    def is_mine(self, current: Entries) -> bool:
        """Check whether these values are the outcome of this change."""


class Result(enum.Enum):
    """The end of a change."""

    DONE = "done"
    NEEDLESS = "needless"
    """There was nothing to write, see `Change.writes`."""
    FAILED = "failed"
    """`Swap.failure` says why. With `Swap.is_unknown` it may have been done all the same."""


class Swap:
    """Drives one change until it has a `result`. `known` are the values of its keys seen last; wrong ones cost one try.

    `reads_first`: nothing is known, and a change that finds no keys would end for nothing.
    """

    def __init__(self, change: Change, known: Entries, *, reads_first: bool = False) -> None:
        self.change = change
        self.current: Entries = {key: known.get(key) for key in change.keys}
        self.revision = 0
        """Of the store, when `current` was read; 0: it was not read yet."""
        self.result: Result | None = None
        self.failure: Failure | None = None
        """The latest one."""
        self.is_unknown = False
        """A swap had no answer: it may have been done."""
        self.tries = 0
        self._action: SwapKeys | None = None
        self._misses = 0
        self._must_read = reads_first
        self._at_us: int | None = None

    def tick(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request, given once. `draw` is of [0, 1), for the pause after the second failure and later."""
        if self.result is not None or self._action is not None:
            return None
        if self._at_us is None:
            longest = min(BACK_OFF_MAX_US, BACK_OFF_MIN_US << min(self._misses, 8)) if self._misses > 1 else 0
            self._at_us = now_us + int(draw * longest)
        if now_us < self._at_us:
            return None
        then: tuple[Write, ...] = ()
        if not self._must_read:
            then = self.change.writes(self.current)
            if not then:
                self.result = Result.NEEDLESS
                return None
        self._at_us = None
        self.tries += 1
        self._action = SwapKeys(self._versions(), then)
        return self._action

    @property
    def due_us(self) -> int | None:
        """Time at which `tick` next has something, unless an event comes before."""
        return self._at_us

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The store has answered."""
        if action is not self._action:
            return
        self._action = None
        self.current = {key: answer.current.get(key) for key in self.change.keys}
        self.revision = answer.revision
        self._must_read = False
        if (action.then and answer.done) or (self.is_unknown and self.change.is_mine(self.current)):
            self.result = Result.DONE
        elif action.then:
            self._miss(
                Failure(Problem.UNAVAILABLE, f"{self.change.keys[0]} is changed by others all the time")
            )

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        if action is not self._action:
            return
        self._action = None
        if action.then and failure.problem in (Problem.AMBIGUOUS, Problem.FULL):
            self.is_unknown = True
            self._must_read = True
        if failure.problem in (Problem.LEASE_LOST, Problem.DENIED, Problem.REFUSED):
            self.failure = failure
            self.result = Result.FAILED
        else:
            self._miss(failure)

    # ---- within ----

    def _miss(self, failure: Failure) -> None:
        self._misses += 1
        self.failure = failure
        if self.tries >= TRIES_MAX:
            self.result = Result.FAILED

    def _versions(self) -> tuple[tuple[str, int], ...]:
        return tuple((key, entry.version if entry is not None else 0) for key, entry in self.current.items())
