"""A state kept warm by another controller's log, without I/O: begun with the rows, brought forward by what is committed.

The standby and the simulator drive this one machine. Invariant: it decides nothing; its state is the leader's own as of
some revision, once the rows have been loaded anew where it `lacks_record`. Memory is bounded as the leader's is: jobs leave
when the log says that they are forgotten, timers that mean nothing any more are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from eslurm.core.control.timers import drop_stale
from eslurm.core.model.facts import Fact, decode_fact
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State

SLICE_FACTS: Final = 100
"""Facts applied before others have their turn."""
TIMERS_SLACK: Final = 1_000
"""More timers than twice those that were alive the last time, and so many: time to drop the stale ones."""


class LoggedFact(Protocol):
    """A fact as read from the log: `eslurm.ports.store.LoggedFact` is one."""

    @property
    def revision(self) -> int: ...

    @property
    def at_us(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def blob(self) -> bytes: ...


class UnknownFact(Exception):
    """A newer release wrote this fact: what is not understood is not guessed."""


class Replica:
    """`state` is None until `begin`, and again after `drop`."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.lacks_record = False
        """A job waits for one whose record the leader has and the state does not: it had ended before `begin`. The row says
        since then that it is awaited: drop the state, load the rows and begin anew."""
        self._timers_alive = 0

    @property
    def revision(self) -> int:
        """Up to where it has followed; 0 while it is cold."""
        return self.state.revision if self.state is not None else 0

    def begin(self, state: State) -> State:
        """The state that the rows give."""
        self.state = state
        self.lacks_record = False
        self._timers_alive = len(state.timers)
        return state

    def drop(self) -> None:
        """The log does not go on from here any more: the rows are to be loaded anew."""
        self.state = None

    def advance(self, facts: Sequence[LoggedFact]) -> Iterator[None]:
        """Apply the next facts of the log, in slices; it may be broken off between two. Raises UnknownFact."""
        state = self.state
        assert state is not None
        for at, logged in enumerate(facts, 1):
            apply(state, _read(logged), logged.revision, logged.at_us)
            if not at % SLICE_FACTS:
                yield
        # The leader that committed these facts wrote their rows.
        lacking = state.take_touched().lacking
        self.lacks_record = self.lacks_record or not lacking <= state.jobs.keys()
        if len(state.timers) > 2 * self._timers_alive + TIMERS_SLACK:
            drop_stale(state)
            self._timers_alive = len(state.timers)


def _read(logged: LoggedFact) -> Fact:
    try:
        fact = decode_fact(logged.kind, logged.version, logged.blob)
    except msgspec.ValidationError:
        fact = None
    if fact is None or logged.version > fact.VERSION:
        raise UnknownFact(
            f"revision {logged.revision} is a {logged.kind} of version {logged.version}, which this release "
            "cannot read: upgrade this controller"
        )
    return fact
